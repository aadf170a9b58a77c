"""The simplex of the weights with Plotly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainonce.report.drawing import plans, style, weight_space
from trainonce.report.drawing.style import COLOURS, INK
from trainonce.report.drawing.weight_space import TOP, place_in_triangle
from trainonce.report.plotly import elements
from trainonce.study import sentences
from trainonce.study.weightings import Fixed
from trainonce.text import shorten

if TYPE_CHECKING:
    from trainonce.study.summary import Summary


def simplex(summary: Summary) -> Any:
    """Three terms: all weights in a triangle, with names and results under the pointer."""
    hidden = {"visible": False, "fixedrange": False}
    terms, escaped = ([write(term, 14) for term in summary.task.terms] for write in (shorten, elements.label))
    figure = elements.new_figure(
        "The simplex of the weights", f"{terms[0]} on top, {terms[1]} left, {terms[2]} right", hidden, hidden
    )
    figure.update_yaxes(scaleanchor="x")
    edge = {"mode": "lines", "line": {"color": INK, "width": 1}, "hoverinfo": "skip", "showlegend": False}
    figure.add_scatter(x=[0, 1, 0.5, 0], y=[0, 0, TOP, 0], **edge)
    decimals = sentences.decimal_places(summary)
    choices = [
        c for c in weight_space.fixed_choices(summary) if c[0].kind == "set" and isinstance(c[1].weighting, Fixed)
    ]
    points = [place_in_triangle(o.weighting.weights) for _, o, _ in choices if isinstance(o.weighting, Fixed)]
    texts = [
        f"{elements.escape(o.label)}<br>{style.typeset(sentences.mean_and_deviation(o, decimals))}"
        for _, o, _ in choices
    ]
    strong = weight_space.strength(summary, [o.mean for _, o, _ in choices]) if choices else []
    look = {"color": INK, "size": 10, "opacity": [0.15 + 0.7 * s for s in strong]}
    elements.add_points(figure, points, texts, "fixed weights", look)
    for row in summary.ranked:
        if row.kind in ("peer", "search", "fixed") and len(row.chosen.weights) == 3:
            look = {"color": COLOURS[row.kind], "symbol": elements.MARKERS[row.kind], "size": 9}
            result = (
                f"{elements.escape(row.plan)}<br>{style.typeset(sentences.mean_and_deviation(row.chosen, decimals))}"
            )
            elements.add_points(
                figure, [place_in_triangle(row.chosen.weights)], [result], elements.escape(row.plan), look
            )
    for number, path in enumerate(weight_space.paths(summary)):
        xs, ys = zip(*map(place_in_triangle, path), strict=True)
        sizes = [0] * (len(path) - 1) + [14]
        figure.add_scatter(
            x=xs,
            y=ys,
            mode="lines+markers",
            name=plans.name_of_ours(summary),
            legendgroup="learned",
            showlegend=number == 0,
            line={"color": COLOURS["learned"]},
            marker={"symbol": "star", "size": sizes, "color": COLOURS["learned"]},
            text=[", ".join(f"{t} {w:.3g}" for t, w in zip(escaped, point, strict=True)) for point in path],
            hovertemplate="%{text}",
        )
    return figure
