"""Interactive figures of where the weights are: response curve, simplex, parallel coordinates."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, Any

from trainonce.extras import require
from trainonce.report.drawing import style, weight_space
from trainonce.report.drawing.log_axis import Scale
from trainonce.report.drawing.style import COLOURS, INK
from trainonce.report.figures.simplex import corner
from trainonce.report.plotly import elements
from trainonce.study import sentences
from trainonce.study.weightings import Fixed

if TYPE_CHECKING:
    from trainonce.study.summary import Summary


def response_curve(summary: Summary) -> Any:
    """One auxiliary term: the result over its ratio."""
    choices = [c for c in weight_space.fixed_choices(summary) if c[0].kind == "set"]
    ends = [weight_space.ratios(path[-1])[0] for path in weight_space.paths(summary)]
    scale = Scale([place[0] for _, _, place in choices] + ends)
    base, other = (elements.plain(term) for term in summary.task.terms)
    axis = elements.ticks(scale)
    figure = elements.figure(
        "Response curve",
        elements.plain(style.measured(summary)),
        axis | {"title": {"text": f"weight of {other} / weight of {base}"}},
        {},
    )
    for name in dict.fromkeys(row.plan for row, _, _ in choices):
        mine = sorted(((scale(p[0]), o) for row, o, p in choices if row.plan == name), key=lambda pair: pair[0])
        figure.add_scatter(
            x=[x for x, _ in mine],
            y=[o.mean for _, o in mine],
            error_y={"array": [o.deviation for _, o in mine], "thickness": 1.2},
            text=[elements.plain(o.label) for _, o in mine],
            mode="lines+markers",
            name=elements.plain(name),
            line={"color": COLOURS["set"]},
        )
    ours = summary.one_shot
    if ours is not None and ours.chosen.report and ends:
        logs = [scale(end) for end in ends]
        figure.add_scatter(
            x=[statistics.fmean(logs)],
            y=[ours.chosen.mean],
            error_y={"array": [ours.chosen.deviation]},
            error_x={"array": [statistics.stdev(logs) if len(logs) > 1 else 0.0]},
            mode="markers",
            name="learned",
            marker={"color": COLOURS["learned"], "symbol": "star", "size": 15},
        )
    return figure


def simplex(summary: Summary) -> Any:
    """Three terms: all weights in a triangle, with names and results where the pointer is."""
    hidden = {"visible": False, "fixedrange": False}
    terms = [elements.plain(term) for term in summary.task.terms]
    figure = elements.figure(
        "The simplex of the weights", f"{terms[0]} on top, {terms[1]} left, {terms[2]} right", hidden, hidden
    )
    figure.update_yaxes(scaleanchor="x")
    edge = {"mode": "lines", "line": {"color": INK, "width": 1}, "hoverinfo": "skip", "showlegend": False}
    figure.add_scatter(x=[0, 1, 0.5, 0], y=[0, 0, math.sqrt(3) / 2, 0], **edge)
    decimals = sentences.places(summary)
    choices = [
        c for c in weight_space.fixed_choices(summary) if c[0].kind == "set" and isinstance(c[1].weighting, Fixed)
    ]
    points = [corner(o.weighting.weights) for _, o, _ in choices if isinstance(o.weighting, Fixed)]
    told = [f"{elements.plain(o.label)}<br>{style.pretty(sentences.spread(o, decimals))}" for _, o, _ in choices]
    strong = weight_space.strength(summary, [o.mean for _, o, _ in choices]) if choices else []
    look = {"color": INK, "size": 10, "opacity": [0.15 + 0.7 * s for s in strong]}
    elements.points(figure, points, told, "fixed weights", look)
    for row in summary.ranked:
        if row.kind in ("peer", "search", "fixed") and len(row.chosen.weights) == 3:
            look = {"color": COLOURS[row.kind], "symbol": elements.MARKERS[row.kind], "size": 9}
            result = f"{elements.plain(row.plan)}<br>{style.pretty(sentences.spread(row.chosen, decimals))}"
            elements.points(figure, [corner(row.chosen.weights)], [result], elements.plain(row.plan), look)
    for number, path in enumerate(weight_space.paths(summary)):
        xs, ys = zip(*map(corner, path), strict=True)
        sizes = [0] * (len(path) - 1) + [14]
        figure.add_scatter(
            x=xs,
            y=ys,
            mode="lines+markers",
            name="learned",
            legendgroup="learned",
            showlegend=number == 0,
            line={"color": COLOURS["learned"]},
            marker={"symbol": "star", "size": sizes, "color": COLOURS["learned"]},
            text=[", ".join(f"{t} {w:.3g}" for t, w in zip(terms, point, strict=True)) for point in path],
            hovertemplate="%{text}<extra>learned</extra>",
        )
    return figure


def parallel_coordinates(summary: Summary) -> Any:
    """Three or more auxiliary terms: brush an axis to keep the choices that pass there."""
    plotly = require("plotly.graph_objects", "plotly", "interactive")
    found = [(place, o.mean, 0.0) for row, o, place in weight_space.fixed_choices(summary) if row.kind == "set"]
    ours = summary.one_shot
    records = ours.chosen.records.items() if ours else ()
    found += [(weight_space.ratios(r.weights), ours.chosen.report[s], 1.0) for s, r in records if r.weights and ours]
    scale = Scale([r for place, _, _ in found for r in place])
    ticks = elements.ticks(scale)
    axes = [
        {
            "label": elements.plain(term),
            "values": [scale(place[i]) for place, _, _ in found],
            "range": list(scale.limits),
            **ticks,
        }
        for i, term in enumerate(summary.task.terms[1:])
    ]
    axes.append({"label": elements.plain(summary.task.metric), "values": [value for _, value, _ in found]})
    line = {"color": [kind for _, _, kind in found], "cmin": 0, "cmax": 1, "showscale": False}
    line["colorscale"] = [[0, COLOURS["set"]], [1, COLOURS["learned"]]]
    figure = elements.figure(
        "All choices of weights", f"weight / weight of {elements.plain(summary.task.terms[0])}; orange: learned", {}, {}
    )
    figure.add_trace(plotly.Parcoords(dimensions=axes, line=line))
    return figure.update_layout(margin={"l": 70, "r": 70, "t": 120, "b": 30})
