"""The figure of how the result depends on one setting of the learned weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainonce.report.catalogue import each_sweep, entry
from trainonce.report.drawing import labels, plans, style, sweeps
from trainonce.report.drawing.labels import Label
from trainonce.report.drawing.log_axis import LogScale
from trainonce.report.drawing.style import COLOURS, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from trainonce.study.summary import Summary


@entry(
    part="sensitivity",
    title="Sensitivity to {case}",
    caption="The result of learned weights when one setting changes: dots are seeds, bars one standard deviation. The "
    "dashed line and its band are the reference.",
    cases=each_sweep,
)
def sensitivity(summary: Summary, plan: str | None = None, axes: Axes | None = None) -> Figure:
    """The result over the values of a sweep: dots are seeds, the line joins the means.

    :param plan: The sweep, by default the first.
    """
    row = sweeps.find(summary, plan)
    found = [(value, o) for value, o in sweeps.values(row) if o.report]
    scale = LogScale([value for value, _ in found])
    with style.panel(axes) as axes:
        colour = COLOURS["learned"]
        for value, o in found:
            axes.plot([scale(value)] * len(o.report), list(o.report.values()), "o", color=colour, alpha=0.4, gid="seed")
        xs, ys, bars = [scale(v) for v, _ in found], [o.mean for _, o in found], [o.deviation for _, o in found]
        axes.errorbar(xs, ys, bars, fmt="-", color=colour, linewidth=1.8, elinewidth=1.2, capsize=3, gid="mean")
        scale.apply(axes, "x")
        named = [Label(xs[-1], ys[-1], "learned", colour, True)]
        if summary.reference is not None:
            best, right = summary.reference.chosen, axes.get_xlim()[1]
            ends = axes.get_xlim()
            axes.plot(ends, [best.mean] * 2, color=INK, linewidth=1.2, linestyle=(0, (5, 3)), gid="reference")
            band = (best.mean - best.deviation, best.mean + best.deviation)
            axes.fill_between(ends, *band, color=INK, alpha=0.07, linewidth=0)
            named.append(Label(right, best.mean, f"best of {plans.base_name(summary.reference.plan)}", INK))
        style.grid_lines(axes, "y")
        axes.autoscale(axis="y")
        labels.place_at_ends(axes, named)
        style.head(axes, f"Sensitivity to {sweeps.setting(row)}", plans.metric_label(summary), sweeps.axis_label(row))
    return style.root(axes)
