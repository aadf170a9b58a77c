"""Parallel coordinates with Plotly: brush an axis to keep the choices that pass there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainonce.extras import require
from trainonce.report.drawing import edges, plans, style, weight_space
from trainonce.report.drawing.log_axis import LogScale
from trainonce.report.drawing.style import COLOURS
from trainonce.report.plotly import elements
from trainonce.text import shorten

if TYPE_CHECKING:
    from trainonce.study.summary import Summary


def parallel_coordinates(summary: Summary) -> Any:
    """Three or more auxiliary terms: brush an axis to keep the choices that pass there."""
    plotly = require("plotly.graph_objects", "plotly", "interactive")
    found = [(place, o.mean, 0.0) for row, o, place in weight_space.fixed_choices(summary) if row.kind == "set"]
    ours = summary.one_shot
    records = ours.chosen.records.items() if ours else ()
    found += [(weight_space.ratios(r.weights), ours.chosen.report[s], 1.0) for s, r in records if r.weights and ours]
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
    line = {"color": [kind for _, _, kind in found], "cmin": 0, "cmax": 1, "showscale": False}
    line["colorscale"] = [[0, COLOURS["set"]], [1, COLOURS["learned"]]]
    figure = elements.new_figure(
        "All choices of weights",
        f"results beyond the axis are drawn at its end; orange: {plans.name_of_ours(summary)}"
        if beyond
        else f"weight / weight of {shorten(summary.task.terms[0], style.NAME)}; orange: {plans.name_of_ours(summary)}",
        {},
        {},
    )
    figure.add_trace(plotly.Parcoords(dimensions=axes, line=line, labelangle=-30 if len(axes) > 6 else 0))
    figure.update_layout(title={"y": 0.97, "yanchor": "top"})
    return figure.update_layout(margin={"l": 70, "r": 70, "t": 135, "b": 30})
