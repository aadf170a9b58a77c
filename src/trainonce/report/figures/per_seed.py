"""Figures with one row a plan: every seed, and the differences on the same seeds."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from trainonce.report.drawing import labels, style
from trainonce.report.drawing.style import COLOURS, INK, Margins, NothingToDrawError
from trainonce.report.figures.cost_quality import EMPTY, focus, name_of
from trainonce.study import sentences

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from trainonce.study.summary import Row, Summary


def _left(rows: Sequence[Row]) -> float:
    """The room for the names, in inches."""
    return max(labels.width(name_of(row), 9.5, bold=True) for row in rows) / 72 + 0.3


@contextlib.contextmanager
def _strip(axes: Axes | None, summary: Summary, rows: Sequence[Row]) -> Iterator[Axes]:
    """Axes with a line for each row, the first on top, its name on the left."""
    names = [name_of(row) for row in rows]
    left = _left(rows)
    height = 0.24 * len(rows) + 1.45
    with style.panel(axes, height=height, margins=Margins(left=left)) as axes:
        yield axes
        axes.set_ylim(-0.6, len(rows) - 0.4)
        axes.set_yticks(range(len(rows)), names[::-1])
        for label, row in zip(axes.get_yticklabels(), reversed(rows), strict=True):
            label.set_color(COLOURS[style.role(summary, row)])
            label.set_fontweight("bold" if row.kind == "learned" else "normal")
        axes.tick_params(axis="y", length=0, pad=9)
        axes.spines["left"].set_visible(False)
        style.grid_lines(axes, "x")


def seeds(summary: Summary, axes: Axes | None = None) -> Figure:
    """Every complete trial of every plan as a dot, one row a plan, best on top; a bar marks the mean."""
    rows = summary.ranked
    if not rows:
        raise NothingToDrawError(EMPTY)
    with _strip(axes, summary, rows) as axes:
        low, high = focus(summary, rows)
        for y, row in enumerate(reversed(rows)):
            colour, values = COLOURS[style.role(summary, row)], list(row.chosen.report.values())
            for marker, kept in (
                ("o", [v for v in values if low <= v <= high]),
                ("<", [low for v in values if v < low]),
                (">", [high for v in values if v > high]),
            ):
                look = {"color": colour, "alpha": 0.65, "markersize": 6, "clip_on": False, "gid": "seed"}
                axes.plot(kept, [y] * len(kept), marker, **look)  # type: ignore[arg-type]
            mean = row.chosen.mean
            if low <= mean <= high:
                axes.plot([mean] * 2, [y - 0.32, y + 0.32], color=colour, linewidth=2.4, gid=f"mean {row.plan}")
        axes.set_xlim(low, high)
        above = "dot: one training; bar: mean; arrow: beyond the axis"
        style.head(axes, "Every seed", above, style.measured(summary), 72 * _left(rows) - 8)
    return style.root(axes)


def differences(summary: Summary, axes: Axes | None = None) -> Figure:
    """The difference of each plan to the reference on the same seeds, with its 95 % interval and the margin."""
    rows = [row for row in summary.ranked if row.difference is not None and row.difference.seeds > 1]
    if summary.reference is None or not rows:
        raise NothingToDrawError("Differences need a reference, such as a grid, and two seeds.")
    rows.sort(key=lambda row: -row.difference.mean if row.difference else 0)
    with _strip(axes, summary, rows) as axes:
        found = [row.difference for row in rows if row.difference is not None]
        sizes = [max(abs(d.low), abs(d.high)) for d in found]
        ours = summary.one_shot.difference if summary.one_shot else None
        must = [2 * summary.margin, *([1.2 * max(abs(ours.low), abs(ours.high))] if ours and ours.seeds > 1 else [])]
        reach = max([*must, 1.1 * sorted(sizes)[(len(sizes) - 1) // 2]])  # the better half in full
        axes.set_xlim(-reach, reach)
        axes.axvspan(-summary.margin, summary.margin, color=INK, alpha=0.08, linewidth=0, gid="margin")
        axes.axvline(0, color=INK, linewidth=1)
        for y, (row, d) in enumerate(zip(reversed(rows), reversed(found), strict=True)):
            colour = COLOURS[style.role(summary, row)]
            axes.plot(
                [d.low, d.high], [y, y], color=colour, linewidth=2, solid_capstyle="butt", gid=f"interval {row.plan}"
            )
            mean = min(max(d.mean, -reach), reach)
            marker = "o" if mean == d.mean else "<" if d.mean < 0 else ">"
            axes.plot([mean], [y], marker, color=colour, markersize=7, clip_on=False, gid=f"difference {row.plan}")
        style.head(
            axes,
            "Difference to the reference, on the same seeds",
            f"95 % interval; shaded: the margin of ±{sentences.number(summary.margin, sentences.places(summary))}",
            "← worse than the reference · better →",
            72 * _left(rows) - 8,
        )
    return style.root(axes)
