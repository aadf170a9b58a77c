"""Sweeps: plans that vary one setting of the paper's rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainonce.report.drawing.plans import base_name
from trainonce.report.drawing.style import NothingToDrawError
from trainonce.text import is_number

if TYPE_CHECKING:
    from trainonce.study.summary import Outcome, Row, Summary

LABELS = {
    "init": "init: the starting ratio to the base",
    "decay": "decay",
    "lr": "learning rate of the exponents",
}


def setting(row: Row) -> str:
    """Return the name of the setting that a sweep varies."""
    return base_name(row.plan).removeprefix("sweep-")


def values(row: Row) -> list[tuple[float, Outcome]]:
    """Return the values of a sweep in order, each with its outcome."""
    found = [(o.rule.settings.get(setting(row)), o) for o in row.outcomes if o.rule is not None]
    return sorted(((float(v), o) for v, o in found if v is not None and is_number(v)), key=lambda pair: pair[0])


def find(summary: Summary, plan: str | None) -> Row:
    """Return the sweep of that name, by default the first; raises where it has no complete trial."""
    row = next((r for r in summary.sweeps if plan in (None, r.plan) and any(o.report for _, o in values(r))), None)
    if row is None:
        raise NothingToDrawError("This study has no sweep with complete trials: add one, such as sweep-init.")
    return row


def axis_label(row: Row) -> str:
    """Return the setting in words."""
    return f"{LABELS.get(setting(row), setting(row))} (log scale)"
