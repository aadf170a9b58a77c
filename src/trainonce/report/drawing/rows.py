"""Axes with one row for each plan."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from trainonce.report.drawing import edges, labels, plans, style, ticks, titles
from trainonce.report.drawing.style import SMALL, Margins

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matplotlib.axes import Axes

    from trainonce.study.summary import Row, Summary


def name_width(names: Sequence[str]) -> float:
    """Return the room for the names, in inches."""
    return max(labels.text_width(name, 9.5, bold=True) for name in names) / 72 + 0.3


@contextlib.contextmanager
def plan_rows(axes: Axes | None, summary: Summary, rows: Sequence[Row], notes: Sequence[str]) -> Iterator[Axes]:
    """Yield axes with a row for each plan, the first on top, its name on the left.

    :param notes: What follows each name.
    """
    names = [plans.label(row, rows) + note for row, note in zip(rows, notes, strict=True)]
    height = 0.24 * len(rows) + 1.45
    with style.panel(axes, height=height, margins=Margins(left=name_width(names))) as axes:
        axes.set_ylim(-0.6, len(rows) - 0.4)
        axes.set_yticks(range(len(rows)), names[::-1])
        yield axes
        for label, row in zip(axes.get_yticklabels(), reversed(rows), strict=True):
            label.set_color(plans.colour(summary, row))
            label.set_fontweight("bold" if row.kind == "rule" else "normal")
        axes.tick_params(axis="y", length=0, pad=9)
        axes.spines["left"].set_visible(False)
        style.grid_lines(axes, "x")


def set_width(axes: Axes, low: float, high: float, left: Sequence[str], right: Sequence[str]) -> None:
    """Set the horizontal limits, with room left and right of the range for arrows and the texts beside them."""
    across = labels.axes_size(axes)[0]
    rooms = [max([0.0, *(labels.text_width(t, SMALL) + 14 for t in texts if t)]) for texts in (left, right)]
    unit = (high - low) / max(across - sum(rooms), 0.3 * across)
    axes.set_xlim(low - rooms[0] * unit, high + rooms[1] * unit)
    axes.spines["bottom"].set_bounds(low, high)
    ticks.fit(axes, low, high)


def mark_beyond(axes: Axes, ends: tuple[float, float], y: float, texts: tuple[str, str], colour: str) -> None:
    """Draw an arrow with its text at each end of a row that has one."""
    for x, text, way, side in zip(ends, texts, ("left", "right"), (-1, 1), strict=True):
        if text:
            edges.draw_arrow(axes, x, y, way, colour)
            look = {"fontsize": SMALL, "va": "center", "ha": "right" if side < 0 else "left", "color": colour}
            axes.annotate(text, (x, y), (8 * side, 0), "data", "offset points", gid="beyond", **look)  # type: ignore[arg-type]


def set_titles(axes: Axes, title: str, above: str, below: str) -> None:
    """Write the figure's titles, starting above the names."""
    names = [label.get_text() for label in axes.get_yticklabels()]
    titles.head(axes, title, above, below, 72 * name_width(names) - 8)
