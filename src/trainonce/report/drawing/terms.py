"""A quantity of every term: lines on one pair of axes, or small panels where they are many."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from trainonce.report.drawing import style, ticks
from trainonce.report.drawing.multiples import draw_multiples
from trainonce.report.drawing.over_steps import NO_HISTORY, STEPS, describe_band, draw_curve, end_label, finish
from trainonce.report.drawing.style import NothingToDrawError
from trainonce.text import shorten

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from trainonce.report.drawing.curves import Curve
    from trainonce.report.drawing.labels import Label
    from trainonce.report.drawing.log_axis import LogScale
    from trainonce.study.summary import Summary


def draw_terms(
    summary: Summary,
    axes: Axes | None,
    lines: Mapping[str, Curve],
    title: str,
    above: str,
    scale: LogScale | None = None,
) -> Figure:
    """Draw one line per term over steps, or one panel for each where they are many.

    :param scale: The vertical axis, where the curves are in places on a logarithmic one.
    """
    if not lines:
        raise NothingToDrawError(NO_HISTORY)
    if not any(math.isfinite(value) for line in lines.values() for value in line.mean):
        raise NothingToDrawError(f"{title}: no step has a finite value.")
    above = f"{above}; {describe_band(max(line.seeds for line in lines.values()))}"
    if axes is None and len(lines) > style.TOGETHER:
        longest = max(line.steps[-1] for line in lines.values())
        return draw_multiples(lines, title, above, STEPS, lambda panel: _set_steps(panel, longest), scale)
    with style.panel(axes) as axes:
        ends: list[Label] = []
        for term, line in lines.items():
            colour, dash = style.term_style(summary.task.terms.index(term))
            draw_curve(axes, line, colour, dash, f"line {term}")
            ends += end_label(line, shorten(term, 24), colour)
        if scale is not None:
            scale.apply(axes, "y")
        finish(axes, ends, title, above, zero=True)
    return style.root(axes)


def _set_steps(panel: Axes, longest: float) -> None:
    panel.set_xlim(0, longest)
    ticks.fit(panel, 0, longest, stay_inside=True)
