"""Parallel coordinates with Plotly: brush an axis to keep the choices that pass there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainonce.extras import require
from trainonce.report.drawing import edges, plans, style, weight_space
from trainonce.report.drawing.log_axis import LogScale
from trainonce.report.drawing.style import COLOURS
from trainonce.report.plotly import elements

if TYPE_CHECKING:
    from trainonce.study.summary import Summary


def parallel_coordinates(summary: Summary) -> Any:
    """Three or more auxiliary terms: brush an axis to keep the choices that pass there."""
    plotly = require("plotly.graph_objects", "plotly", "interactive")
    found = [(place, o.mean, 0) for _, o, place in weight_space.fixed_choices(summary)]
    colours = [COLOURS["set"], *style.RULES]
    for row in plans.rules(summary):
        found += [(*end, colours.index(plans.colour(summary, row))) for end in weight_space.ends(row)]
    scale = LogScale([r for place, _, _ in found for r in place])
    ticks = elements.log_ticks(scale)
    axes = [
        {
            "label": elements.label(term, 12),
            "values": [scale(place[i]) for place, _, _ in found],
            "range": list(scale.limits),
            **ticks,
        }
        for i, term in enumerate(summary.task.terms[1:])
    ]
    low, high = edges.limits([value for _, value, _ in found], 0.05)
    beyond = any(not low <= value <= high for _, value, _ in found)
    results = [min(max(value, low), high) for _, value, _ in found]
    axes.append({"label": elements.label(summary.task.metric, 12), "values": results, "range": [low, high]})
    line = {"color": [kind for _, _, kind in found], "cmin": 0, "cmax": len(colours) - 1, "showscale": False}
    line["colorscale"] = [[i / (len(colours) - 1), colour] for i, colour in enumerate(colours)]
    figure = elements.new_figure(
        "All choices of ratios",
        f"{'results beyond the axis are at its end' if beyond else 'log scale'}; {plans.legend(summary)}",
        {},
        {},
    )
    figure.add_trace(plotly.Parcoords(dimensions=axes, line=line, labelangle=-30 if len(axes) > 6 else 0))
    figure.update_layout(title={"y": 0.97, "yanchor": "top"})
    return figure.update_layout(margin={"l": 70, "r": 70, "t": 135, "b": 30})
