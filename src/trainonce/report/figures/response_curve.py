"""The figure for one auxiliary term: the response curve."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

from trainonce.report import numbers
from trainonce.report.catalogue import entry
from trainonce.report.drawing import edges, labels, plans, style, titles, weight_space
from trainonce.report.drawing.labels import Label
from trainonce.report.drawing.log_axis import LogScale
from trainonce.report.drawing.style import COLOURS, INK, NothingToDrawError
from trainonce.study.intervals import standard_deviation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from trainonce.study.summary import Outcome, Summary


@entry(
    part="ratios",
    title="Response curve",
    caption="The result at each fixed ratio, and of each rule at the ratio where it ended. Bars are one standard "
    "deviation over the seeds, for a rule in both directions. A ratio of 0 is drawn left of the dotted line; an arrow "
    "is what lies beyond the axis.",
    applies=lambda summary: len(summary.task.terms) == 2,
)
def response_curve(summary: Summary, axes: Axes | None = None) -> Figure:
    """Draw the metric over the ratio of the one auxiliary term, and where the rules ended.

    Error bars are one standard deviation over the seeds, those of a rule in both directions.
    """
    weight_space.require_auxiliary(summary, 1)
    choices = weight_space.fixed_choices(summary)
    if not choices:
        raise NothingToDrawError("A response curve needs a set of fixed weights, such as a grid.")
    ends = {row.plan: [place[0] for place, _ in weight_space.ends(row)] for row in plans.rules(summary)}
    scale = LogScale([place[0] for _, _, place in choices] + [r for of_row in ends.values() for r in of_row])
    decimals = numbers.decimal_places(summary)
    points = [(scale(place[0]), 0.0, row, o) for row, o, place in choices]
    for row in plans.rules(summary):
        logs = [scale(ratio) for ratio in ends[row.plan]]
        points += [(statistics.fmean(logs), standard_deviation(logs), row, row.chosen)] if logs else []
    with style.panel(axes) as axes:
        scale.apply(axes, "x", (min(x - w for x, w, _, _ in points), max(x + w for x, w, _, _ in points)))
        edges.set_height_for(axes, [o for *_, o in points])
        low, high = axes.get_ylim()
        odd = (scale(0), scale(math.inf))  # they have no place on the line
        for plan in dict.fromkeys(row.plan for row, _, _ in choices):
            mine = sorted((scale(p[0]), o.mean) for r, o, p in choices if r.plan == plan)
            joined = [(x, y if low <= y <= high else math.nan) for x, y in mine if x not in odd]
            axes.plot(*zip(*joined, strict=True), color=COLOURS["set"], linewidth=1.2)
        named: list[Label] = []
        obstacles: list[labels.Box] = _break_boxes(axes, scale)
        reference = summary.reference
        for x, wide, row, outcome in points:
            is_rule, best = row.kind == "rule", reference is not None and outcome is reference.chosen
            colour = plans.colour(summary, row) if is_rule else INK if best else COLOURS["set"]
            marker, size = ("*", 15) if is_rule else ("D", 7) if best else ("o", 5)
            name = plans.label(row, summary.rows) if is_rule or best else ""
            made = [edges.draw_beyond(axes, x, *one, colour) for one in edges.describe_beyond(axes, outcome, decimals)]
            obstacles += [box for _, box in made]
            if low <= outcome.mean <= high:
                edges.draw_bar(axes, x, outcome.mean, outcome.standard_deviation, colour, cap=5)
                if wide:
                    axes.plot([x - wide, x + wide], [outcome.mean] * 2, color=colour, linewidth=1.2, gid="spread")
                axes.plot([x], [outcome.mean], marker, color=colour, markersize=size, zorder=5 if is_rule else 4)
                named += [Label(x, outcome.mean, name, colour, is_rule)] if name else []
                named += [label for label, _ in made]
                obstacles += _marker_boxes(axes, x, outcome, wide)
            else:
                named += [label._replace(text=f"{name} {label.text}".strip(), bold=is_rule) for label, _ in made]
        style.grid_lines(axes)
        labels.place_beside(axes, named, obstacles)
        titles.head(axes, "Response curve", plans.metric_label(summary), weight_space.ratio_label(summary, 1))
    return style.root(axes)


def _break_boxes(axes: Axes, scale: LogScale) -> list[labels.Box]:
    """Return the boxes of the dotted lines where the axis is interrupted."""
    places = [labels.to_points(axes, at, 0)[0] for at in scale.breaks]
    return [labels.Box(x - 5, 0, x + 5, labels.axes_size(axes)[1]) for x in places]


def _marker_boxes(axes: Axes, x: float, outcome: Outcome, wide: float) -> list[labels.Box]:
    """Return the boxes of a point's marker and error bars; the horizontal one reaches ``wide`` to both sides."""
    u, v = labels.to_points(axes, x, outcome.mean)
    low, high = (labels.to_points(axes, x, outcome.mean + s * outcome.standard_deviation)[1] for s in (-1, 1))
    left, right = (labels.to_points(axes, x + side * wide, outcome.mean)[0] for side in (-1, 1))
    bars = [labels.Box(u - 3, low, u + 3, high), labels.Box(left, v - 3, right, v + 3)]
    return [labels.Box(u - 7, v - 7, u + 7, v + 7), *bars]
