"""The trials of a study as one table of plain values: for CSV and for any library of data frames."""

from __future__ import annotations

import contextlib
import csv
import io
import os
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from trainonce.study.record import Record


class TrialRow(NamedTuple):
    """A record and the plans that use it. ``last`` is False if a later record of the same trial replaces it."""

    plans: tuple[str, ...]
    record: Record
    last: bool


def columns(trials: Sequence[TrialRow], terms: Sequence[str]) -> dict[str, list[Any]]:
    """Return a value per record in each column: plans, rule, seed, status, metrics, time; None where there is none.

    A metric that has the name of another column is called ``metric/NAME``.
    """
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
        for i, term in enumerate(terms)
    } | {
        "seconds": [record.seconds for record in records],
        "fraction": [record.fraction for record in records],
        "device": [record.device for record in records],
        "key": [record.key for record in records],
        "error": [message(record.error) for record in records],
    }
    metrics = {
        f"metric/{name}" if name in head or name in tail else name: [record.metrics.get(name) for record in records]
        for name in sorted({name for record in records for name in record.metrics})
    }
    return head | metrics | tail


def message(error: Mapping[str, str] | None) -> str | None:
    """Return the error in a line; what is no text in it, such as parts of a file's name, no table could hold."""
    text = None if error is None else f"{error.get('type')}: {error.get('message')}"
    return text and text.encode("utf-8", "replace").decode()


def to_csv(table: Mapping[str, Sequence[Any]]) -> bytes:
    """Return the columns as a CSV file."""
    target = io.StringIO(newline="")
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow(table)
    writer.writerows(zip(*table.values(), strict=True))
    return target.getvalue().encode("utf-8", "replace")


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
