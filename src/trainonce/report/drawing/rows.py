"""Axes with one row for each plan."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from trainonce.report.drawing import labels, plans, style
from trainonce.report.drawing.style import COLOURS, Margins

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matplotlib.axes import Axes

    from trainonce.study.summary import Row, Summary


def name_width(rows: Sequence[Row]) -> float:
    """The room for the names, in inches."""
    return max(labels.text_width(plans.label(row), 9.5, bold=True) for row in rows) / 72 + 0.3


@contextlib.contextmanager
def plan_rows(axes: Axes | None, summary: Summary, rows: Sequence[Row]) -> Iterator[Axes]:
    """Axes with a row for each plan, the first on top, its name on the left."""
    names = [plans.label(row) for row in rows]
    height = 0.24 * len(rows) + 1.45
    with style.panel(axes, height=height, margins=Margins(left=name_width(rows))) as axes:
        yield axes
        axes.set_ylim(-0.6, len(rows) - 0.4)
        axes.set_yticks(range(len(rows)), names[::-1])
        for label, row in zip(axes.get_yticklabels(), reversed(rows), strict=True):
            label.set_color(COLOURS[plans.role(summary, row)])
            label.set_fontweight("bold" if row.kind == "learned" else "normal")
        axes.tick_params(axis="y", length=0, pad=9)
        axes.spines["left"].set_visible(False)
        style.grid_lines(axes, "x")


def set_titles(axes: Axes, rows: Sequence[Row], title: str, above: str, below: str) -> None:
    """The figure's titles, starting above the names."""
    style.head(axes, title, above, below, 72 * name_width(rows) - 8)
