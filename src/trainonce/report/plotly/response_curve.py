"""The response curve with Plotly."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, Any

from trainonce.report.drawing import edges, plans, style, weight_space
from trainonce.report.drawing.log_axis import LogScale
from trainonce.report.drawing.style import COLOURS
from trainonce.report.plotly import elements
from trainonce.study import sentences
from trainonce.study.intervals import standard_deviation

if TYPE_CHECKING:
    from trainonce.study.summary import Outcome, Summary


def response_curve(summary: Summary) -> Any:
    """Draw the result over the ratio of the one auxiliary term."""
    choices, rules = weight_space.fixed_choices(summary), plans.rules(summary)
    ends = {row.plan: [place[0] for place, _ in weight_space.ends(row)] for row in rules}
    rules = [row for row in rules if ends[row.plan]]
    scale = LogScale([place[0] for _, _, place in choices] + [r for of_row in ends.values() for r in of_row])
    axis, decimals = elements.log_ticks(scale), sentences.decimal_places(summary)
    figure = elements.new_figure(
        "Response curve",
        plans.metric_label(summary),
        axis | {"title": {"text": elements.escape(weight_space.ratio_label(summary, 1))}},
        {},
    )
    shown = [o for _, o, _ in choices] + [row.chosen for row in rules]
    values = [v for o in shown for v in (o.mean - o.standard_deviation, o.mean, o.mean + o.standard_deviation)]
    low, high = edges.limits(values)
    figure.update_yaxes(range=[low, high])
    odd = (scale(0), scale(math.inf))  # they have no place on the line
    for name in dict.fromkeys(row.plan for row, _, _ in choices):
        mine = sorted(((scale(p[0]), o) for row, o, p in choices if row.plan == name), key=lambda pair: pair[0])
        group = {"legendgroup": name, "name": elements.escape(name)}
        figure.add_scatter(
            x=[x for x, _ in mine],
            y=[o.mean if low <= o.mean <= high and x not in odd else None for x, o in mine],
            mode="lines",
            line={"color": COLOURS["set"]},
            hoverinfo="skip",
            **group,
        )
        for x, o in mine:
            look, hover = {"color": COLOURS["set"], "size": 8}, _hover(o, o.label, decimals)
            elements.add_outcome(figure, x, o, (low, high), look, hovertemplate=hover, showlegend=False, **group)
    for row in rules:
        name, logs = plans.label(row), [scale(end) for end in ends[row.plan]]
        look = {"color": plans.colour(summary, row), "symbol": "star", "size": 15}
        at, bar = statistics.fmean(logs), {"array": [standard_deviation(logs)]}
        words = {"name": elements.escape(name), "hovertemplate": _hover(row.chosen, name, decimals), "error_x": bar}
        elements.add_outcome(figure, at, row.chosen, (low, high), look, **words)
    return figure


def _hover(outcome: Outcome, name: str, decimals: int) -> str:
    result = style.typeset(sentences.mean_and_deviation(outcome, decimals))
    return f"{elements.escape(name)}<br>{result}<extra></extra>"
