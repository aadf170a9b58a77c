"""The response curve with Plotly."""

from __future__ import annotations

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
    """One auxiliary term: the result over its ratio."""
    choices = [c for c in weight_space.fixed_choices(summary) if c[0].kind == "set"]
    ends = [weight_space.ratios(path[-1])[0] for path in weight_space.paths(summary)]
    scale = LogScale([place[0] for _, _, place in choices] + ends)
    axis, decimals = elements.log_ticks(scale), sentences.decimal_places(summary)
    figure = elements.new_figure(
        "Response curve",
        plans.metric_label(summary),
        axis | {"title": {"text": elements.escape(weight_space.ratio_label(summary, 1))}},
        {},
    )
    ours = summary.one_shot if summary.one_shot is not None and summary.one_shot.chosen.report and ends else None
    shown = [o for _, o, _ in choices] + ([ours.chosen] if ours else [])
    values = [v for o in shown for v in (o.mean - o.standard_deviation, o.mean, o.mean + o.standard_deviation)]
    low, high = edges.limits(values)
    figure.update_yaxes(range=[low, high])
    for name in dict.fromkeys(row.plan for row, _, _ in choices):
        mine = sorted(((scale(p[0]), o) for row, o, p in choices if row.plan == name), key=lambda pair: pair[0])
        group = {"legendgroup": name, "name": elements.escape(name)}
        figure.add_scatter(
            x=[x for x, _ in mine],
            y=[o.mean if low <= o.mean <= high else None for _, o in mine],
            mode="lines",
            line={"color": COLOURS["set"]},
            hoverinfo="skip",
            **group,
        )
        for x, o in mine:
            look, hover = {"color": COLOURS["set"], "size": 8}, _hover(o, o.label, decimals)
            elements.add_outcome(figure, x, o, (low, high), look, hovertemplate=hover, showlegend=False, **group)
    if ours is not None:
        name, logs = plans.name_of_ours(summary), [scale(end) for end in ends]
        look, hover = (
            {"color": COLOURS["learned"], "symbol": "star", "size": 15},
            _hover(ours.chosen, name, decimals),
        )
        at, bar = statistics.fmean(logs), {"array": [standard_deviation(logs)]}
        elements.add_outcome(figure, at, ours.chosen, (low, high), look, name=name, hovertemplate=hover, error_x=bar)
    return figure


def _hover(outcome: Outcome, name: str, decimals: int) -> str:
    result = style.typeset(sentences.mean_and_deviation(outcome, decimals))
    return f"{elements.escape(name)}<br>{result}<extra></extra>"
