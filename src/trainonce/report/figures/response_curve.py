"""The figure for one auxiliary term: the response curve."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

from trainonce.report.catalogue import entry
from trainonce.report.drawing import edges, labels, plans, style, titles, weight_space
from trainonce.report.drawing.labels import Label
from trainonce.report.drawing.log_axis import LogScale
from trainonce.report.drawing.style import COLOURS, INK, NothingToDrawError
from trainonce.report.plotly.response_curve import response_curve as interactive
from trainonce.study import sentences
from trainonce.study.intervals import standard_deviation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from trainonce.study.summary import Outcome, Summary


@entry(
    part="weights",
    title="Response curve",
    caption="The result at each fixed ratio, and the {ours} at the ratio where they ended. Bars are one "
    "standard deviation over the seeds, for the {ours} in both directions. A ratio of 0 is drawn left of the "
    "dotted line; an arrow is what lies beyond the axis.",
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
    scale, decimals = LogScale([place[0] for _, _, place in choices] + ends), sentences.decimal_places(summary)
    ours = summary.one_shot if summary.one_shot is not None and summary.one_shot.chosen.report and ends else None
    logs = [math.log10(max(r, LogScale.FLOOR)) if r else scale(0) for r in ends]
    at, wide = statistics.fmean(logs or [0.0]), standard_deviation(logs)
    points = [(scale(place[0]), o, COLOURS["set"]) for _, o, place in choices]
    points += [(at, ours.chosen, COLOURS["learned"])] if ours is not None else []
    with style.panel(axes) as axes:
        scale.apply(axes, "x", (at - wide, at + wide) if ours is not None else None)
        edges.set_height_for(axes, [o for _, o, _ in points])
        low, high = axes.get_ylim()
        for plan in dict.fromkeys(row.plan for row, _, _ in choices):
            mine = sorted((scale(p[0]), o.mean) for r, o, p in choices if r.plan == plan)
            joined = [(x, y if low <= y <= high else math.nan) for x, y in mine if x != scale(0)]
            axes.plot(*zip(*joined, strict=True), color=COLOURS["set"], linewidth=1.2)
        named: list[Label] = []
        obstacles: list[labels.Box] = _break_boxes(axes, scale)
        reference = summary.reference
        for x, outcome, colour in points:
            learned, best = ours is not None and outcome is ours.chosen, reference and outcome is reference.chosen
            colour = INK if best and not learned else colour
            marker, size = ("*", 15) if learned else ("D", 7) if best else ("o", 5)
            name = plans.label(reference, summary.rows) if reference and best else ""
            name = plans.name_of_ours(summary) if learned else name
            made = [edges.draw_beyond(axes, x, *one, colour) for one in edges.describe_beyond(axes, outcome, decimals)]
            obstacles += [box for _, box in made]
            if low <= outcome.mean <= high:
                edges.draw_bar(axes, x, outcome.mean, outcome.standard_deviation, colour, cap=5)
                if learned and wide:
                    axes.plot([x - wide, x + wide], [outcome.mean] * 2, color=colour, linewidth=1.2, gid="spread")
                axes.plot([x], [outcome.mean], marker, color=colour, markersize=size, zorder=5 if learned else 4)
                named += [Label(x, outcome.mean, name, colour, learned)] if name else []
                named += [label for label, _ in made]
                obstacles += _marker_boxes(axes, x, outcome, wide if learned else 0.0)
            else:
                named += [label._replace(text=f"{name} {label.text}".strip(), bold=learned) for label, _ in made]
        style.grid_lines(axes)
        labels.place_beside(axes, named, obstacles)
        titles.head(axes, "Response curve", plans.metric_label(summary), weight_space.ratio_label(summary, 1))
    return style.root(axes)


def _break_boxes(axes: Axes, scale: LogScale) -> list[labels.Box]:
    """The boxes of the dotted lines where the axis is interrupted."""
    places = [labels.to_points(axes, at, 0)[0] for at in scale.breaks]
    return [labels.Box(x - 5, 0, x + 5, labels.axes_size(axes)[1]) for x in places]


def _marker_boxes(axes: Axes, x: float, outcome: Outcome, wide: float) -> list[labels.Box]:
    """The boxes of a point's marker and error bars, of which the horizontal one reaches ``wide`` to both sides."""
    u, v = labels.to_points(axes, x, outcome.mean)
    low, high = (labels.to_points(axes, x, outcome.mean + s * outcome.standard_deviation)[1] for s in (-1, 1))
    left, right = (labels.to_points(axes, x + side * wide, outcome.mean)[0] for side in (-1, 1))
    bars = [labels.Box(u - 3, low, u + 3, high), labels.Box(left, v - 3, right, v + 3)]
    return [labels.Box(u - 7, v - 7, u + 7, v + 7), *bars]
