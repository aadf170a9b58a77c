"""Sweeps: plans that vary one setting of the learned weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainonce.report.drawing.plans import base_name
from trainonce.report.drawing.style import NothingToDrawError
from trainonce.study.weightings import Learned
from trainonce.text import is_number

if TYPE_CHECKING:
    from trainonce.study.summary import Outcome, Row, Summary

LABELS = {
    "init": "init: the starting ratio to the base",
    "decay": "decay",
    "lr": "learning rate of the exponents",
}


def setting(row: Row) -> str:
    """The name of the setting that a sweep varies."""
    return base_name(row.plan).removeprefix("sweep-")


def values(row: Row) -> list[tuple[float, Outcome]]:
    """The values of a sweep in order, each with its outcome."""
    found = [(getattr(o.weighting, setting(row), None), o) for o in row.outcomes if isinstance(o.weighting, Learned)]
    return sorted(((float(v), o) for v, o in found if is_number(v)), key=lambda pair: pair[0])  # type: ignore[arg-type]


def find(summary: Summary, plan: str | None) -> Row:
    """The sweep of that name, by default the first; raises where it has no complete trial."""
    row = next((r for r in summary.sweeps if plan in (None, r.plan) and any(o.report for _, o in values(r))), None)
    if row is None:
        raise NothingToDrawError("This study has no sweep with complete trials: add one, such as sweep-init.")
    return row


def axis_label(row: Row) -> str:
    """The setting in words."""
    return f"{LABELS.get(setting(row), setting(row))} (log scale)"
