"""The data of the page as files: the summary as JSON, the trials as CSV."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
from typing import TYPE_CHECKING, Any, NamedTuple

from trainonce.study import sentences
from trainonce.study.summary import keys_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from trainonce.study.store import Record
    from trainonce.study.summary import Outcome, Row, Summary

FORMAT = 1


class TrialRow(NamedTuple):
    """A record and the plans that use it. ``last`` is False if a later record of the same trial replaces it."""

    plans: tuple[str, ...]
    record: Record
    last: bool


def plans_by_key(manifest: Mapping[str, Any]) -> dict[str, list[str]]:
    """The names of the plans that use each trial, by the trial's key."""
    identity, found = manifest["task"]["identity"], dict[str, list[str]]()
    for plan in manifest["plans"]:
        for key in dict.fromkeys(keys_of(plan, identity)):
            found.setdefault(key, []).append(plan["name"])
    return found


def trial_rows(manifest: Mapping[str, Any], records: Iterable[Record]) -> list[TrialRow]:
    """The records that the study's plans use, plan by plan; records of other plans or earlier tasks are left out."""
    plans, order = plans_by_key(manifest), [plan["name"] for plan in manifest["plans"]]
    kept = [record for record in records if record.key in plans]
    last = {record.key: index for index, record in enumerate(kept)}
    found = [TrialRow(tuple(plans[r.key]), r, last[r.key] == i) for i, r in enumerate(kept)]
    return sorted(found, key=lambda t: (order.index(t.plans[0]), t.record.weighting.label, t.record.seed))


def summary_json(summary: Summary, trials: Sequence[TrialRow], figures: Sequence[str]) -> dict[str, Any]:
    """The content of the page as JSON data; numbers that are not finite become null."""
    reference = summary.reference
    content = {
        "format": FORMAT,
        "sentence": sentences.sentence(summary),
        "evidence": sentences.evidence(summary),
        "task": dataclasses.asdict(summary.task),
        "margin": summary.margin,
        "reference": None if reference is None else reference.plan,
        "plans": [_row(summary, row) for row in summary.rows],
        "trials": [_trial(trial) for trial in trials],
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
        "weights": outcome.weights,
        "select": {str(seed): value for seed, value in outcome.select.items()},
        "report": {str(seed): value for seed, value in outcome.report.items()},
        "mean": outcome.mean,
        "deviation": outcome.deviation,
        "wanted": outcome.wanted,
        "diverged": outcome.diverged,
    }


def _trial(trial: TrialRow) -> dict[str, Any]:
    record = trial.record
    return {
        "key": record.key,
        "plans": list(trial.plans),
        "point": record.weighting.to_json(),
        "label": record.weighting.label,
        "seed": record.seed,
        "status": record.status,
        "last": trial.last,
        "metrics": dict(record.metrics),
        "weights": list(record.weights),
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


def to_json(content: Any, indent: int | None = None) -> str:
    """JSON text; values that JSON does not know become strings."""
    return json.dumps(content, indent=indent, allow_nan=False, ensure_ascii=False, default=str)


def trials_csv(summary: Summary, trials: Sequence[TrialRow]) -> str:
    """One line per record: plans, weights, seed, status, metrics, time."""
    metrics = sorted({name for trial in trials for name in trial.record.metrics})
    head = ["plans", "weights", "seed", "status", "last", *metrics, *(f"weight/{t}" for t in summary.task.terms)]
    target = io.StringIO(newline="")
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow([*head, "seconds", "fraction", "device", "key", "error"])
    for plans, record, last in trials:
        weights = [*record.weights, *[""] * (len(summary.task.terms) - len(record.weights))]
        error = "" if record.error is None else f"{record.error.get('type')}: {record.error.get('message')}"
        writer.writerow(
            [
                " ".join(plans),
                record.weighting.label,
                record.seed,
                record.status,
                last,
                *(record.metrics.get(name, "") for name in metrics),
                *weights,
                record.seconds,
                record.fraction,
                record.device,
                record.key,
                error,
            ]
        )
    return target.getvalue()
