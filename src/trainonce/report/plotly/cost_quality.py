"""Cost against quality with Plotly: the pointer shows the numbers of each plan."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from trainonce.report.drawing import edges, plans, style
from trainonce.report.drawing.log_axis import LogScale
from trainonce.report.drawing.style import COLOURS, NothingToDrawError
from trainonce.report.plotly import elements
from trainonce.study import sentences

if TYPE_CHECKING:
    from trainonce.study.summary import Summary


def cost_quality(summary: Summary) -> Any:
    """Cost against quality, with the numbers of each plan under the pointer."""
    rows, decimals = summary.ranked, sentences.decimal_places(summary)
    if not rows:
        raise NothingToDrawError(plans.NO_RESULT)
    low, high = plans.metric_range(summary, rows)
    ticks = elements.log_ticks(LogScale([row.cost for row in rows]), power=True)
    figure = elements.new_figure(
        "Cost against quality",
        plans.metric_label(summary),
        {"title": {"text": "full trainings per seed (log scale)"}, "type": "log", **ticks},
        {"range": [low, high]},
    )
    line = plans.expected_best(summary)
    if len(line) > 1 and summary.reference is not None:
        kept, exits = edges.cut_line([(math.log10(cost), value) for cost, value in line], low, high)
        xs, ys = [10**x if x == x else None for x, _ in kept], [y if y == y else None for _, y in kept]
        name = elements.escape(f"part of {plans.base_name(summary.reference.plan)}")
        figure.add_scatter(x=xs, y=ys, mode="lines", name=name, line={"color": COLOURS["set"]}, hoverinfo="name")
        for (x, y), way in exits:
            elements.add_arrow(figure, 10**x, y, way, COLOURS["set"])
    notes = plans.seed_notes([row.chosen.wanted for row in rows], [summary.has_other_seeds(row) for row in rows])
    for row, note in zip(rows, notes, strict=True):
        role = plans.role(summary, row)
        lines = [
            style.typeset(sentences.mean_and_deviation(row.chosen, decimals)),
            f"{sentences.times(row.cost)} trainings",
        ]
        lines += [style.typeset(f"difference {sentences.interval(row.difference, decimals)}")] if row.difference else []
        size = 15 if role == "rule" else 10
        look = {"color": plans.colour(summary, row), "symbol": elements.MARKERS[role], "size": size}
        beyond = "" if low <= row.chosen.mean <= high else f" {edges.number(row.chosen.mean, decimals)}"
        elements.add_outcome(
            figure,
            row.cost,
            row.chosen,
            (low, high),
            look,
            name=elements.escape(plans.label(row, rows)) + note + beyond,
            hovertemplate=f"{elements.escape(row.plan)}<br>{'<br>'.join(lines)}<extra></extra>",
        )
    return figure
