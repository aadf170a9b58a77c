"""The data of the page as JSON."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import TYPE_CHECKING, Any

from trainonce.report import headline
from trainonce.report.drawing import weight_space

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainonce.study.summary import Outcome, Row, Summary
    from trainonce.study.trial_rows import TrialRow

FORMAT = 2


def summary_json(summary: Summary, figures: Sequence[str]) -> dict[str, Any]:
    """Return the content of the page as JSON data; numbers that are not finite become null."""
    reference = summary.reference
    content = {
        "format": FORMAT,
        "sentence": headline.sentence(summary),
        "evidence": headline.evidence(summary),
        "task": dataclasses.asdict(summary.task),
        "margin": summary.margin,
        "reference": None if reference is None else reference.plan,
        "plans": [_row(summary, row) for row in summary.rows],
        "trials": [_trial(trial) for trial in summary.trials],
        "figures": list(figures),
    }
    return dict(_null_nonfinite(content))


def _row(summary: Summary, row: Row) -> dict[str, Any]:
    difference = None if row.difference is None else row.difference._asdict()
    return {
        "plan": row.plan,
        "kind": row.kind,
        "chosen": _outcome(row.chosen),
        "cost": row.cost,
        "seconds": row.seconds,
        "counts": dict(row.counts),
        "difference": difference,
        "verdict": summary.verdict(row),
        "beaten_by": row.beaten_by,
        "outcomes": [_outcome(outcome) for outcome in row.outcomes],
    }


def _outcome(outcome: Outcome) -> dict[str, Any]:
    return {
        "label": outcome.label,
        "rule": None if outcome.rule is None else outcome.rule.to_json(),
        "ratios": [1.0, *last] if (last := weight_space.last_ratios(outcome)) else [],
        "select": {str(seed): value for seed, value in outcome.select.items()},
        "report": {str(seed): value for seed, value in outcome.report.items()},
        "mean": outcome.mean,
        "deviation": outcome.standard_deviation,
        "wanted": outcome.wanted,
        "diverged": outcome.diverged,
    }


def _trial(trial: TrialRow) -> dict[str, Any]:
    record = trial.record
    return {
        "key": record.key,
        "plans": list(trial.plans),
        "rule": record.rule.to_json(),
        "label": record.rule.label,
        "seed": record.seed,
        "status": record.status,
        "last": trial.last,
        "metrics": dict(record.metrics),
        "coefficients": list(record.coefficients),
        "ratios": list(record.ratios),
        "seconds": record.seconds,
        "fraction": record.fraction,
        "device": record.device,
        "warnings": list(record.warnings),
        "error": None if record.error is None else dict(record.error),
    }


def _null_nonfinite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(k): _null_nonfinite(v) for k, v in value.items()}
    return [_null_nonfinite(v) for v in value] if isinstance(value, (list, tuple)) else value


def to_json(content: Any) -> str:
    """JSON text; values that JSON does not know become strings."""
    return json.dumps(content, allow_nan=False, ensure_ascii=False, default=str)


def to_lines(content: Mapping[str, Any]) -> str:
    """Return the same with a line for each entry and element of a list: the encoder in C knows no indent."""
    return "{\n" + ",\n".join(f" {to_json(key)}: {_lines(value)}" for key, value in content.items()) + "\n}\n"


def read_entry(text: str, key: str) -> Any:
    """Return one entry of what :func:`to_lines` wrote, without reading the others, which may be thousands."""
    begin = f"\n {to_json(key)}: "
    place = text.find(begin)
    return json.loads(text)[key] if place < 0 else json.JSONDecoder().raw_decode(text, place + len(begin))[0]


def _lines(value: Any) -> str:
    if not isinstance(value, list) or not value:
        return to_json(value)
    return "[\n" + ",\n".join(f"  {to_json(one)}" for one in value) + "\n ]"
