"""The simplex of the coefficients with Plotly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainonce.report.drawing import plans, style, weight_space
from trainonce.report.drawing.style import COLOURS, INK
from trainonce.report.drawing.weight_space import TOP, place_in_triangle
from trainonce.report.plotly import elements
from trainonce.study import sentences
from trainonce.text import shorten

if TYPE_CHECKING:
    from trainonce.study.summary import Summary


def simplex(summary: Summary) -> Any:
    """Draw the coefficients of three terms in a triangle, with names and results under the pointer."""
    hidden = {"visible": False, "fixedrange": False}
    terms, escaped = ([write(term, 14) for term in summary.task.terms] for write in (shorten, elements.label))
    figure = elements.new_figure(
        "Simplex of the coefficients", f"{terms[0]} on top, {terms[1]} left, {terms[2]} right", hidden, hidden
    )
    figure.update_yaxes(scaleanchor="x")
    edge = {"mode": "lines", "line": {"color": INK, "width": 1}, "hoverinfo": "skip", "showlegend": False}
    figure.add_scatter(x=[0, 1, 0.5, 0], y=[0, 0, TOP, 0], **edge)
    decimals = sentences.decimal_places(summary)
    choices = weight_space.fixed_choices(summary)
    points = [place_in_triangle(o.rule.coefficients) for _, o, _ in choices if o.rule]
    texts = [
        f"{elements.escape(o.label)}<br>{style.typeset(sentences.mean_and_deviation(o, decimals))}"
        for _, o, _ in choices
    ]
    strong = weight_space.strength(summary, [o.mean for _, o, _ in choices]) if choices else []
    look = {"color": INK, "size": 10, "opacity": [0.15 + 0.7 * s for s in strong]}
    elements.add_points(figure, points, texts, "fixed weights", look)
    for row in summary.ranked:
        last = weight_space.last_coefficients(row.chosen)
        if row.kind in ("peer", "search", "fixed") and last:
            look = {"color": COLOURS[row.kind], "symbol": elements.MARKERS[row.kind], "size": 9}
            result = (
                f"{elements.escape(row.plan)}<br>{style.typeset(sentences.mean_and_deviation(row.chosen, decimals))}"
            )
            elements.add_points(figure, [place_in_triangle(last)], [result], elements.escape(row.plan), look)
    drawn = [(row, n, path) for row in plans.rules(summary) for n, path in enumerate(weight_space.paths(summary, row))]
    for row, number, path in drawn:
        colour, name = plans.colour(summary, row), elements.escape(plans.label(row))
        xs, ys = zip(*map(place_in_triangle, path), strict=True)
        sizes = [0] * (len(path) - 1) + [14]
        figure.add_scatter(
            x=xs,
            y=ys,
            mode="lines+markers",
            name=name,
            legendgroup=name,
            showlegend=number == 0,
            line={"color": colour},
            marker={"symbol": "star", "size": sizes, "color": colour},
            text=[", ".join(f"{t} {w:.3g}" for t, w in zip(escaped, point, strict=True)) for point in path],
            hovertemplate="%{text}",
        )
    return figure
