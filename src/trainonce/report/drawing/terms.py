"""A quantity of every term: lines on one pair of axes, or small panels where they are many."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from trainonce.report.drawing import curves, style, ticks
from trainonce.report.drawing.multiples import draw_multiples
from trainonce.report.drawing.over_steps import (
    NO_HISTORY,
    STEPS,
    choose_scale,
    describe_band,
    draw_curve,
    end_label,
    finish,
    learned_plan,
)
from trainonce.report.drawing.style import INK, NothingToDrawError
from trainonce.study import sentences
from trainonce.text import shorten

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from trainonce.report.drawing.curves import Curve
    from trainonce.report.drawing.labels import Label
    from trainonce.study.summary import Summary


def draw_terms(
    summary: Summary, axes: Axes | None, column: str, terms: Sequence[str], title: str, above: str
) -> Figure:
    """A column of the histories of the learned weights, one line per term, or one panel where they are many."""
    row = learned_plan(summary)
    runs = curves.read_histories(summary, row.chosen)
    found = {term: curves.curve(runs, f"{column}/{term}") for term in terms}
    lines = {term: line for term, line in found.items() if line is not None}
    if not lines:
        raise NothingToDrawError(NO_HISTORY)
    if column == "exponent" and sentences.is_in_units(row) and all(map(_is_at_rest, lines.values())):
        raise NothingToDrawError("No held-out data moved the exponents of the gradient units, so they are not drawn.")
    above = f"{above}; {describe_band(len(runs))}"
    if axes is None and len(lines) > style.TOGETHER:
        longest = max(line.steps[-1] for line in lines.values())
        return draw_multiples(lines, title, above, STEPS, lambda panel: _set_steps(panel, longest))
    with style.panel(axes) as axes:
        ends: list[Label] = []
        for term, line in lines.items():
            colour, dash = style.term_style(summary.task.terms.index(term))
            draw_curve(axes, line, colour, dash, f"{column} {term}")
            ends += end_label(line, shorten(term, 24), colour)
        if column == "weight":
            axes.set_ylim(0, None)
        elif column == "unit" and choose_scale(axes, list(lines.values())):
            above = f"{above} (log scale)"
        elif axes.get_ylim()[0] < 0 < axes.get_ylim()[1]:
            axes.axhline(0, color=INK, linewidth=0.8, alpha=0.5)
        finish(axes, ends, title, above)
    return style.root(axes)


def _is_at_rest(line: Curve) -> bool:
    return len({value for value in (*line.low, *line.high) if math.isfinite(value)}) <= 1


def _set_steps(panel: Axes, longest: float) -> None:
    panel.set_xlim(0, longest)
    ticks.fit(panel, 0, longest, stay_inside=True)
