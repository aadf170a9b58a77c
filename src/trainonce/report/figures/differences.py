"""The figure of each plan's difference to the reference, seed by seed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainonce.report.catalogue import entry
from trainonce.report.drawing import plans, style
from trainonce.report.drawing.rows import plan_rows, set_titles
from trainonce.report.drawing.style import COLOURS, INK, NothingToDrawError
from trainonce.study import sentences

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from trainonce.study.summary import Summary


@entry(
    part="comparison",
    title="Difference to the reference",
    caption="How each plan differs from the reference on the same seeds, mean and 95 % interval: right of zero is "
    "better. An interval that stays right of the left edge of the shaded margin is not worse by more than the margin.",
)
def differences(summary: Summary, axes: Axes | None = None) -> Figure:
    """The difference of each plan to the reference on the same seeds, with its 95 % interval and the margin."""
    rows = [row for row in summary.ranked if row.difference is not None and row.difference.seeds > 1]
    if summary.reference is None or not rows:
        raise NothingToDrawError("Differences need a reference, such as a grid, and two seeds.")
    rows.sort(key=lambda row: -row.difference.mean if row.difference else 0)
    with plan_rows(axes, summary, rows) as axes:
        found = [row.difference for row in rows if row.difference is not None]
        sizes = [max(abs(d.low), abs(d.high)) for d in found]
        ours = summary.one_shot.difference if summary.one_shot else None
        must = [2 * summary.margin, *([1.2 * max(abs(ours.low), abs(ours.high))] if ours and ours.seeds > 1 else [])]
        reach = max([*must, 1.1 * sorted(sizes)[(len(sizes) - 1) // 2]])  # the better half in full
        axes.set_xlim(-reach, reach)
        axes.axvspan(-summary.margin, summary.margin, color=INK, alpha=0.08, linewidth=0, gid="margin")
        axes.axvline(0, color=INK, linewidth=1)
        for y, (row, d) in enumerate(zip(reversed(rows), reversed(found), strict=True)):
            colour = COLOURS[plans.role(summary, row)]
            axes.plot(
                [d.low, d.high], [y, y], color=colour, linewidth=2, solid_capstyle="butt", gid=f"interval {row.plan}"
            )
            mean = min(max(d.mean, -reach), reach)
            marker = "o" if mean == d.mean else "<" if d.mean < 0 else ">"
            axes.plot([mean], [y], marker, color=colour, markersize=7, clip_on=False, gid=f"difference {row.plan}")
        margin = sentences.amount(summary.margin)
        set_titles(
            axes,
            rows,
            "Difference to the reference, on the same seeds",
            f"95 % interval; shaded: the margin of ±{margin}",
            "← worse than the reference · better →",
        )
    return style.root(axes)
