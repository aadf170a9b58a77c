"""The figure for one auxiliary term: the response curve."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

from trainonce.report.catalogue import entry
from trainonce.report.drawing import labels, plans, style, weight_space
from trainonce.report.drawing.labels import Label
from trainonce.report.drawing.log_axis import LogScale
from trainonce.report.drawing.style import COLOURS, INK, NothingToDrawError
from trainonce.report.plotly.response_curve import response_curve as interactive
from trainonce.study.weightings import Fixed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from trainonce.study.summary import Outcome, Summary


@entry(
    part="weights",
    title="Response curve",
    caption="The result at each fixed ratio, and the learned weights at the ratio where they ended. Bars are one "
    "standard deviation over the seeds, for the learned weights in both directions. A ratio of 0 is drawn left of the "
    "dotted line.",
    applies=lambda summary: len(summary.task.terms) == 2,
    interactive=interactive,
)
def response_curve(summary: Summary, axes: Axes | None = None) -> Figure:
    """One auxiliary term: the metric over its ratio to the base weight, and where the learned weights ended.

    Error bars are one standard deviation over the seeds, those of the learned weights in both directions.
    """
    weight_space.require_auxiliary(summary, 1)
    choices = [c for c in weight_space.fixed_choices(summary) if c[0].kind == "set"]
    if not choices:
        raise NothingToDrawError("A response curve needs a set of fixed weights, such as a grid.")
    ends = [weight_space.ratios(path[-1])[0] for path in weight_space.paths(summary)]
    scale = LogScale([place[0] for _, _, place in choices] + ends)
    with style.panel(axes) as axes:
        named, reference = [], summary.reference
        for row in dict.fromkeys(row.plan for row, _, _ in choices):
            mine = sorted(((scale(p[0]), o) for r, o, p in choices if r.plan == row), key=lambda pair: pair[0])
            xs, ys, bars = [x for x, _ in mine], [o.mean for _, o in mine], [o.standard_deviation for _, o in mine]
            joined = [(x, y) for x, y in zip(xs, ys, strict=True) if x != scale(0)]
            axes.plot(*zip(*joined, strict=True), color=COLOURS["set"], linewidth=1.2)
            axes.errorbar(xs, ys, bars, fmt="o", color=COLOURS["set"], markersize=5, elinewidth=1, capsize=2)
        if reference is not None and isinstance(reference.chosen.weighting, Fixed):
            at, best = scale(weight_space.ratios(reference.chosen.weighting.weights)[0]), reference.chosen
            axes.errorbar(
                [at], [best.mean], [best.standard_deviation], fmt="D", color=INK, markersize=7, capsize=2, zorder=4
            )
            named.append(Label(at, best.mean, f"best of {plans.base_name(reference.plan)}", INK))
        ours = summary.one_shot
        if ours is not None and ours.chosen.report and ends:
            logs = [math.log10(max(r, LogScale.FLOOR)) if r else scale(0) for r in ends]
            at, wide = statistics.fmean(logs), statistics.stdev(logs) if len(logs) > 1 else 0.0
            mean, deep = ours.chosen.mean, ours.chosen.standard_deviation
            axes.errorbar(
                [at], [mean], [deep], [wide], "*", color=COLOURS["learned"], markersize=15, capsize=3, zorder=5
            )
            named.append(Label(at, mean, "learned", COLOURS["learned"], True))
        scale.apply(axes, "x")
        style.grid_lines(axes)
        axes.autoscale(axis="y")
        points = [(scale(p[0]), o) for _, o, p in choices]
        points += [(at, ours.chosen)] if ours is not None and ours.chosen.report and ends else []
        markers = [box for x, outcome in points for box in _marker_boxes(axes, x, outcome)]
        labels.place_beside(axes, named, [*markers, *_break_boxes(axes, scale)])
        style.head(axes, "Response curve", plans.metric_label(summary), weight_space.ratio_label(summary, 1))
    return style.root(axes)


def _break_boxes(axes: Axes, scale: LogScale) -> list[labels.Box]:
    """The boxes of the dotted lines where the axis is interrupted."""
    places = [labels.to_points(axes, at, 0)[0] for at in scale.breaks]
    return [labels.Box(x - 5, 0, x + 5, labels.axes_size(axes)[1]) for x in places]


def _marker_boxes(axes: Axes, x: float, outcome: Outcome) -> list[labels.Box]:
    """The boxes of a point's marker and error bar."""
    u, v = labels.to_points(axes, x, outcome.mean)
    low, high = (labels.to_points(axes, x, outcome.mean + s * outcome.standard_deviation)[1] for s in (-1, 1))
    return [labels.Box(u - 7, v - 7, u + 7, v + 7), labels.Box(u - 3, low, u + 3, high)]
