"""The figure of each plan's difference to the reference, seed by seed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainonce.report import numbers
from trainonce.report.catalogue import entry
from trainonce.report.drawing import edges, plans, style
from trainonce.report.drawing.rows import mark_beyond, plan_rows, set_titles, set_width
from trainonce.report.drawing.style import INK, NothingToDrawError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from trainonce.study.intervals import Interval
    from trainonce.study.summary import Summary


@entry(
    part="comparison",
    title="Difference to the reference",
    caption="How each plan differs from the reference on the same seeds, mean and 95 % interval: right of zero is "
    "better. An interval that stays right of the left edge of the shaded margin is not worse by more than the margin. "
    "An arrow is an interval that goes on, to the number beside it, or a mean there; a ring is a single seed.",
)
def differences(summary: Summary, axes: Axes | None = None) -> Figure:
    """Draw the difference of each plan to the reference on the same seeds, with its 95 % interval and the margin."""
    rows = [row for row in summary.ranked if row.difference is not None]
    if summary.reference is None or not any(row.difference.seeds > 1 for row in rows if row.difference):
        raise NothingToDrawError("Differences need a reference, such as a grid, and two seeds.")
    rows.sort(key=lambda row: -row.difference.mean if row.difference else 0)
    found = [row.difference for row in rows if row.difference is not None]
    with plan_rows(axes, summary, rows, plans.seed_notes([d.seeds for d in found])) as axes:
        reach = _reach(summary, found)
        decimals = numbers.decimal_places(summary)
        beyond = [_beyond(d, reach, decimals) for d in found]
        set_width(axes, -reach, reach, *zip(*beyond, strict=True))
        axes.axvspan(-summary.margin, summary.margin, color=INK, alpha=0.08, linewidth=0, gid="margin")
        axes.axvline(0, color=INK, linewidth=1)
        for y, (row, d, texts) in enumerate(reversed(list(zip(rows, found, beyond, strict=True)))):
            colour, ends = plans.colour(summary, row), [max(d.low, -reach), min(d.high, reach)]
            if d.seeds > 1 and ends[0] < ends[1]:
                gid = f"interval {row.plan}"
                axes.plot(ends, [y, y], color=colour, linewidth=2, solid_capstyle="butt", gid=gid)
            mark_beyond(axes, (-reach, reach), y, texts, colour)
            if -reach <= d.mean <= reach:
                look = {"markersize": 7, "markerfacecolor": colour if d.seeds > 1 else "none"}
                axes.plot([d.mean], [y], "o", color=colour, zorder=5, gid=f"difference {row.plan}", **look)  # type: ignore[arg-type]
        margin = numbers.amount(summary.margin)
        set_titles(
            axes,
            "Difference to the reference, on the same seeds",
            f"95 % interval; shaded: the margin of ±{margin}",
            "← worse than the reference · better →",
        )
    return style.root(axes)


def _reach(summary: Summary, found: Sequence[Interval]) -> float:
    """Return how far the axis reaches to both sides: the better half in full, the others unless far off."""
    sizes = [max(abs(d.low), abs(d.high)) if d.seeds > 1 else abs(d.mean) for d in found]
    half = sorted(sizes)[(len(sizes) - 1) // 2]
    rules = [row.difference for row in plans.rules(summary) if row.difference and row.difference.seeds > 1]
    must = [max(abs(d.low), abs(d.high)) for d in rules]
    usual = edges.usual_range([*sizes, *(abs(d.mean) for d in found)])[1]
    wanted = [half, *(size for size in must if size <= usual), *(size for size in sizes if size <= 2 * half)]
    return max(2 * summary.margin, 1.1 * max(wanted)) or 1.0


def _beyond(found: Interval, reach: float, decimals: int) -> tuple[str, str]:
    """Return what to write left and right of the axis: the mean or the end of the interval, if it is there."""
    texts = []
    for side, end in ((-1, found.low), (1, found.high)):
        if side * found.mean > reach:
            texts.append(f"mean {edges.signed(found.mean, decimals)}")
        else:
            texts.append(edges.signed(end, decimals) if found.seeds > 1 and side * end > reach else "")
    return texts[0], texts[1]
