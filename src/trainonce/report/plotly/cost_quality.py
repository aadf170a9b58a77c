"""Interactive versions of the main figures, with Plotly: the same data, colours and words, to hover and zoom."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from trainonce.report.drawing import curves, style
from trainonce.report.drawing.log_axis import Scale
from trainonce.report.drawing.style import COLOURS, INK, TERMS, NothingToDrawError
from trainonce.report.figures.cost_quality import EMPTY, expected_best, focus, name_of
from trainonce.report.plotly import elements
from trainonce.report.plotly.simplex import parallel_coordinates, response_curve, simplex
from trainonce.study import sentences

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trainonce.study.summary import Summary


def all_as_json(summary: Summary, names: Sequence[str]) -> dict[str, str]:
    """The figures, among the named ones, that have an interactive version."""
    makers: dict[str, Callable[[], Any]] = {
        "cost-quality": lambda: cost_quality(summary),
        "weights": lambda: weights(summary),
        "response-curve": lambda: response_curve(summary),
        "simplex": lambda: simplex(summary),
        "parallel-coordinates": lambda: parallel_coordinates(summary),
    }
    for name in names:
        if name.startswith("loss-"):
            term = summary.task.terms[int(name.split("-")[1])]
            makers[name] = lambda term=term: loss(summary, term)  # type: ignore[misc]
    return {name: elements.as_json(makers[name]()) for name in names if name in makers}


def cost_quality(summary: Summary) -> Any:
    """Cost against quality, with the numbers of each plan where the pointer is."""
    rows, decimals = summary.ranked, sentences.places(summary)
    if not rows:
        raise NothingToDrawError(EMPTY)
    low, high = focus(summary, rows)
    ticks = elements.ticks(Scale([row.cost for row in rows]), power=True)
    figure = elements.figure(
        "Cost against quality",
        elements.plain(style.measured(summary)),
        {"title": {"text": "full trainings a seed, logarithmic"}, "type": "log", **ticks},
        {"range": [low, high]},
    )
    line = expected_best(summary)
    if len(line) > 1 and summary.reference is not None:
        xs, ys = zip(*line, strict=True)
        name = elements.plain(f"part of {style.bare(summary.reference.plan)}")
        figure.add_scatter(x=xs, y=ys, mode="lines", name=name, line={"color": COLOURS["set"]}, hoverinfo="name")
    for row in rows:
        role = style.role(summary, row)
        told = [style.pretty(sentences.spread(row.chosen, decimals)), f"{sentences.times(row.cost)} trainings"]
        told += [style.pretty(f"difference {sentences.interval(row.difference, decimals)}")] if row.difference else []
        figure.add_scatter(
            x=[row.cost],
            y=[row.chosen.mean],
            error_y={"array": [row.chosen.deviation], "thickness": 1.2, "width": 0},
            mode="markers",
            name=elements.plain(name_of(row)),
            marker={"color": COLOURS[role], "symbol": elements.MARKERS[role], "size": 15 if role == "learned" else 10},
            hovertemplate=f"{elements.plain(row.plan)}<br>{'<br>'.join(told)}<extra></extra>",
        )
    return figure


def weights(summary: Summary) -> Any:
    """The learned weights over steps, with the range of the seeds."""
    row = summary.one_shot
    runs = curves.histories(summary, row.chosen) if row else []
    figure = elements.figure(
        "Learned weights",
        f"they sum to 1; mean and range of {len(runs)} seeds",
        elements.steps(),
        {"rangemode": "tozero"},
    )
    for number, term in enumerate(summary.task.terms):
        line = curves.curve(runs, f"weight/{term}")
        if line is None:
            raise NothingToDrawError("The histories of the runs with learned weights are not in the folder.")
        elements.line(figure, line, elements.plain(term), TERMS[number % len(TERMS)])
    return figure


def loss(summary: Summary, term: str) -> Any:
    """One term's unweighted loss over steps, every fixed choice in grey with its weights where the pointer is."""
    figure = elements.figure(
        f"Loss: {elements.plain(term)}", "unweighted; mean and range of the seeds", elements.steps(), {}
    )
    reference, seen = summary.reference, False
    for row in (row for row in summary.rows if row.kind == "set"):
        for outcome in row.outcomes:
            line = curves.curve(curves.histories(summary, outcome), f"loss/{term}")
            if line is not None and not (reference and outcome is reference.chosen):
                look = {"color": COLOURS["set"], "width": 1}
                legend = {"name": "fixed weights", "legendgroup": "fixed", "showlegend": not seen}
                hover = f"{elements.plain(outcome.label)}: %{{y:.4g}}<extra></extra>"
                figure.add_scatter(x=line.steps, y=line.mean, mode="lines", line=look, hovertemplate=hover, **legend)
                seen = True
    for chosen, name, colour in ((reference, "reference", INK), (summary.one_shot, "learned", COLOURS["learned"])):
        line = curves.curve(curves.histories(summary, chosen.chosen), f"loss/{term}") if chosen else None
        if line is not None:
            elements.line(figure, line, name, colour, band=name == "learned")
    values = [v for trace in figure.data for v in trace.y if v is not None and math.isfinite(v)]
    if values and min(values) > 0 and max(values) > 20 * min(values):
        figure.update_yaxes(type="log", **elements.ticks(Scale(values), power=True))
    return figure
