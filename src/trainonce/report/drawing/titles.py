"""The words around the axes: the title, what the vertical axis shows, the label of the horizontal axis."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

from trainonce.extras import require
from trainonce.report.drawing import labels, style
from trainonce.text import shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from trainonce.study.summary import Summary

EDGE = 4.0  # points between a text and the edge of the figure


def head(axes: Axes, title: str, above: str, below: str = "", outset: float = 0.0, lift: float = 0.0) -> None:
    """Write the title, under it what the vertical axis shows, and the label of the horizontal axis.

    :param outset: How many points to start left of the axes.
    :param lift: How many points to leave free above the axes.
    """
    frame = ("axes fraction", "offset points")
    room = 72 * style.root(axes).get_size_inches()[0] - labels.left_edge(axes) + outset - EDGE
    title, above = fit(title, 52, room, 12, bold=True), fit(above, 66, room, 9.5)
    axes.annotate(title, (0, 1), (-outset, 25 + lift), *frame, fontweight="bold", fontsize=12, va="bottom")
    axes.annotate(above, (0, 1), (-outset, 9 + lift), *frame, fontsize=9.5, va="bottom", alpha=0.75)
    name_below(axes, below)
    for axis in (axes.xaxis, axes.yaxis):
        _plain_ticks(axis)
    axes.tick_params(length=3, width=0.8, labelsize=9.5)


def ratio_to_base(summary: Summary) -> str:
    """Return the name of an axis of ratios."""
    return f"ratio to {shorten(summary.task.terms[0], 20)} (log scale)"


def name_below(axes: Axes, text: str, size: float = 10.5) -> None:
    """Write the label of the horizontal axis, under its middle or as near to it as the figure allows."""
    wide, left = 72 * style.root(axes).get_size_inches()[0], labels.left_edge(axes)
    text = fit(text, 62, wide - 2 * EDGE, size)
    low, high = axes.spines["bottom"].get_bounds() or axes.get_xlim()
    middle = axes.transLimits.transform(axes.transScale.transform([(low, 1), (high, 1)]))[:, 0].mean()
    across, half = labels.axes_size(axes)[0], labels.text_width(text, size) / 2
    at = min(max(float(middle) * across, half - left + EDGE), wide - left - half - EDGE)
    axes.set_xlabel(text, fontsize=size, x=at / across)


def fit(text: str, length: int, room: float, size: float, bold: bool = False) -> str:
    """Return the text in at most so many columns and points."""
    found = shorten(text, length)
    while length > 8 and labels.text_width(found, size, bold) > room:
        length -= 1
        found = shorten(text, length)
    return found


def _plain_ticks(axis: Any) -> None:
    """Write tick labels as plain numbers or each with its own power of 10, without a common factor at the axis' end."""
    ticker = require("matplotlib.ticker", "matplotlib", "study")
    if isinstance(axis.get_major_formatter(), ticker.ScalarFormatter):
        largest = max(map(abs, axis.get_view_interval()))
        if 1e-3 <= largest < 1e6 or not largest:
            axis.get_major_formatter().set_scientific(False)
        else:
            step = min(abs(b - a) for a, b in itertools.pairwise(axis.get_majorticklocs()))
            digits = 3 + max(0, math.floor(math.log10(largest / step)))
            axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:.{digits}g}"))
