"""The trials of a study as one table: for CSV and Parquet files, pandas and Polars."""

from __future__ import annotations

import contextlib
import csv
import io
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from trainonce.extras import require
from trainonce.study.summary import keys_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from trainonce.study.record import Record
    from trainonce.study.summary import Summary


class TrialRow(NamedTuple):
    """A record and the plans that use it. ``last`` is False if a later record of the same trial replaces it."""

    plans: tuple[str, ...]
    record: Record
    last: bool


def trial_rows(summary: Summary) -> list[TrialRow]:
    """The records that the study's plans use, plan by plan; records of other plans or earlier tasks are left out."""
    plans, order = _plans_by_key(summary), {plan["name"]: place for place, plan in enumerate(summary.plans)}
    kept = [record for record in summary.records if record.key in plans]
    last = {record.key: index for index, record in enumerate(kept)}
    found = [TrialRow(tuple(plans[r.key]), r, last[r.key] == i) for i, r in enumerate(kept)]
    return sorted(found, key=lambda t: (order[t.plans[0]], t.record.rule.label, t.record.seed))


def _plans_by_key(summary: Summary) -> dict[str, list[str]]:
    """The names of the plans that use each trial, by the trial's key."""
    found: dict[str, list[str]] = {}
    for plan in summary.plans:
        for key in dict.fromkeys(keys_of(plan, summary.task.identity)):
            found.setdefault(key, []).append(plan["name"])
    return found


def columns(summary: Summary, trials: Sequence[TrialRow] | None = None) -> dict[str, list[Any]]:
    """One value per record in each column: plans, rule, seed, status, metrics, time; None where there is none.

    A metric that has the name of another column is called ``metric/NAME``.
    """
    trials = trial_rows(summary) if trials is None else trials
    records = [trial.record for trial in trials]
    head: dict[str, list[Any]] = {
        "plans": [" ".join(trial.plans) for trial in trials],
        "rule": [record.rule.label for record in records],
        "seed": [record.seed for record in records],
        "status": [record.status for record in records],
        "last": [trial.last for trial in trials],
    }
    tail: dict[str, list[Any]] = {
        f"{kind}/{term}": [values[i] if i < len(values) else None for values in found]
        for kind, found in (("ratio", [r.ratios for r in records]), ("coefficient", [r.coefficients for r in records]))
        for i, term in enumerate(summary.task.terms)
    } | {
        "seconds": [record.seconds for record in records],
        "fraction": [record.fraction for record in records],
        "device": [record.device for record in records],
        "key": [record.key for record in records],
        "error": [_message(record.error) for record in records],
    }
    metrics = {
        f"metric/{name}" if name in head or name in tail else name: [record.metrics.get(name) for record in records]
        for name in sorted({name for record in records for name in record.metrics})
    }
    return head | metrics | tail


def _message(error: Mapping[str, str] | None) -> str | None:
    """The error in a line; what is no text in it, such as parts of a file's name, no table could hold."""
    text = None if error is None else f"{error.get('type')}: {error.get('message')}"
    return text and text.encode("utf-8", "replace").decode()


def to_csv(table: Mapping[str, Sequence[Any]]) -> bytes:
    """The columns as a CSV file."""
    target = io.StringIO(newline="")
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow(table)
    writer.writerows(zip(*table.values(), strict=True))
    return target.getvalue().encode("utf-8", "replace")


def to_parquet(table: Mapping[str, Sequence[Any]]) -> bytes:
    """The columns as a Parquet file, which keeps their types."""
    parquet, arrow = require("pyarrow.parquet", "pyarrow", "parquet"), require("pyarrow", "pyarrow", "parquet")
    target = io.BytesIO()
    parquet.write_table(arrow.table(dict(table)), target)
    return target.getvalue()


#: How a table is written, by the end of the file's name.
FORMATS = {".csv": to_csv, ".parquet": to_parquet}


def check_format(path: Path) -> None:
    """Raise if the name of a file does not say how to write a table, or the package for that is not installed."""
    if path.suffix not in FORMATS:
        raise ValueError(f"A table is written to a file that ends in {' or '.join(FORMATS)}; got {path}.")
    if path.suffix == ".parquet":
        require("pyarrow.parquet", "pyarrow", "parquet")


def write(content: bytes, path: Path) -> None:
    """Write a table's file, all of it or nothing."""
    partial = path.with_name(f"{path.name}.part{os.getpid()}")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise OSError(f"The table cannot be written to {path}: {error.strerror}. Choose another path.") from None


def to_frame(table: Mapping[str, Sequence[Any]], package: str) -> Any:
    """The columns as a data frame of ``"pandas"`` or ``"polars"``."""
    return require(package, package, package).DataFrame(dict(table))
