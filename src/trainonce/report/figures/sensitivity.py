"""The figure of how the result depends on one setting of the paper's rule."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from trainonce.report import numbers
from trainonce.report.catalogue import each_sweep, entry
from trainonce.report.drawing import edges, labels, plans, style, sweeps, titles
from trainonce.report.drawing.labels import Label
from trainonce.report.drawing.log_axis import LogScale
from trainonce.report.drawing.style import COLOURS, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from trainonce.study.summary import Outcome, Summary


@entry(
    part="sensitivity",
    title="Sensitivity to {case}",
    caption="The result of yoto when one setting changes: dots are seeds, bars one standard deviation. The "
    "dashed line and its band are the reference. An arrow is what lies beyond the axis.",
    cases=each_sweep,
)
def sensitivity(summary: Summary, plan: str | None = None, axes: Axes | None = None) -> Figure:
    """Draw the result over the values of a sweep: dots are seeds, the line joins the means.

    :param plan: The sweep, by default the first.
    """
    row = sweeps.find(summary, plan)
    found = [(value, o) for value, o in sweeps.values(row) if o.report]
    scale, decimals = LogScale([value for value, _ in found]), numbers.decimal_places(summary)
    best = summary.reference.chosen if summary.reference else None
    with style.panel(axes) as axes:
        scale.apply(axes, "x")
        edges.set_height_for(axes, [o for _, o in found], [best] if best else [])
        low, high = axes.get_ylim()
        colour, ends = COLOURS["sweep"], axes.get_xlim()
        xs = [scale(value) for value, _ in found]
        inside = [o.mean if low <= o.mean <= high else math.nan for _, o in found]
        axes.plot(xs, inside, "-", color=colour, linewidth=1.8, gid="mean")
        for x, (_, o) in zip(xs, found, strict=True):
            dots = [v for v in o.report.values() if low <= v <= high]
            axes.plot([x] * len(dots), dots, "o", color=colour, alpha=0.4, gid="seed")
            if low <= o.mean <= high:
                edges.draw_bar(axes, x, o.mean, o.standard_deviation, colour, cap=6)
        named = [Label(xs[-1], min(max(found[-1][1].mean, low), high), "yoto", colour, True)]
        if best is not None and summary.reference is not None:
            name = plans.label(summary.reference, summary.rows)
            named.append(_draw_reference(axes, best, name, ends, decimals))
        style.grid_lines(axes, "y")
        labels.place_at_ends(axes, named)
        beyond = [
            edges.draw_beyond(axes, x, *one, colour)
            for x, (_, o) in zip(xs, found, strict=True)
            for one in edges.describe_beyond(axes, o, decimals)
        ]
        labels.place_beside(axes, [label for label, _ in beyond], [box for _, box in beyond])
        titles.head(axes, f"Sensitivity to {sweeps.setting(row)}", plans.metric_label(summary), sweeps.axis_label(row))
    return style.root(axes)


def _draw_reference(axes: Axes, best: Outcome, name: str, ends: tuple[float, float], decimals: int) -> Label:
    """Draw the reference's mean as a line and its standard deviation as a band; returns its label."""
    low, high = axes.get_ylim()
    if not low <= best.mean <= high:
        way, edge = ("up", high) if best.mean > high else ("down", low)
        edges.draw_arrow(axes, ends[1], edge, way, INK)
        return Label(ends[1], edge, f"{name} {edges.number(best.mean, decimals)}", INK)
    axes.plot(ends, [best.mean] * 2, color=INK, linewidth=1.2, linestyle=(0, (5, 3)), gid="reference")
    bottom, top = best.mean - best.standard_deviation, best.mean + best.standard_deviation
    axes.fill_between(ends, max(low, bottom), min(high, top), color=INK, alpha=0.07, linewidth=0, gid="band")
    for end, edge, way in ((bottom, low, "down"), (top, high, "up")):
        if not low <= end <= high:
            edges.draw_arrow(axes, ends[1], edge, way, INK)
    return Label(ends[1], best.mean, name, INK)
