"""The response curve with Plotly."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from trainonce.report.drawing import plans, weight_space
from trainonce.report.drawing.log_axis import LogScale
from trainonce.report.drawing.style import COLOURS
from trainonce.report.plotly import elements

if TYPE_CHECKING:
    from trainonce.study.summary import Summary


def response_curve(summary: Summary) -> Any:
    """One auxiliary term: the result over its ratio."""
    choices = [c for c in weight_space.fixed_choices(summary) if c[0].kind == "set"]
    ends = [weight_space.ratios(path[-1])[0] for path in weight_space.paths(summary)]
    scale = LogScale([place[0] for _, _, place in choices] + ends)
    axis = elements.log_ticks(scale)
    figure = elements.new_figure(
        "Response curve",
        plans.metric_label(summary),
        axis | {"title": {"text": elements.escape(weight_space.ratio_label(summary, 1))}},
        {},
    )
    for name in dict.fromkeys(row.plan for row, _, _ in choices):
        mine = sorted(((scale(p[0]), o) for row, o, p in choices if row.plan == name), key=lambda pair: pair[0])
        figure.add_scatter(
            x=[x for x, _ in mine],
            y=[o.mean for _, o in mine],
            error_y={"array": [o.standard_deviation for _, o in mine], "thickness": 1.2},
            text=[elements.escape(o.label) for _, o in mine],
            mode="lines+markers",
            name=elements.escape(name),
            line={"color": COLOURS["set"]},
        )
    ours = summary.one_shot
    if ours is not None and ours.chosen.report and ends:
        logs = [scale(end) for end in ends]
        figure.add_scatter(
            x=[statistics.fmean(logs)],
            y=[ours.chosen.mean],
            error_y={"array": [ours.chosen.standard_deviation]},
            error_x={"array": [statistics.stdev(logs) if len(logs) > 1 else 0.0]},
            mode="markers",
            name="learned",
            marker={"color": COLOURS["learned"], "symbol": "star", "size": 15},
        )
    return figure
