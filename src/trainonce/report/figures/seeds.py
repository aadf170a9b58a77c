"""The figure of every seed's result, one row per plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainonce.report.catalogue import entry
from trainonce.report.drawing import plans, style
from trainonce.report.drawing.rows import plan_rows, set_titles
from trainonce.report.drawing.style import COLOURS, NothingToDrawError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from trainonce.study.summary import Summary


@entry(
    part="comparison",
    title="Every seed",
    caption="One dot for each seed with a complete training, a bar at the mean, the best plan on top. A set is shown "
    "by the weights it chose.",
)
def seeds(summary: Summary, axes: Axes | None = None) -> Figure:
    """Every complete trial of every plan as a dot, one row per plan, best on top; a bar marks the mean."""
    rows = summary.ranked
    if not rows:
        raise NothingToDrawError(plans.NO_RESULT)
    with plan_rows(axes, summary, rows) as axes:
        low, high = plans.metric_range(summary, rows)
        for y, row in enumerate(reversed(rows)):
            colour, values = COLOURS[plans.role(summary, row)], list(row.chosen.report.values())
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
        set_titles(axes, rows, "Every seed", above, plans.metric_label(summary))
    return style.root(axes)
