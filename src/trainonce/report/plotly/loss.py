"""One term's loss over steps with Plotly: the pointer shows the weights of each fixed choice."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from trainonce.report.drawing import curves, plans
from trainonce.report.drawing.log_axis import LogScale
from trainonce.report.drawing.over_steps import fixed_choices
from trainonce.report.drawing.style import COLOURS, INK
from trainonce.report.plotly import elements

if TYPE_CHECKING:
    from trainonce.study.summary import Summary


def loss(summary: Summary, term: str) -> Any:
    """One term's unweighted loss over steps, every fixed choice in grey with its weights under the pointer."""
    figure = elements.new_figure(f"Loss: {term}", "unweighted; mean and range of the seeds", elements.step_axis(), {})
    seen = False
    others, every = fixed_choices(summary)
    name = "fixed weights" if len(others) == every else f"{len(others)} of {every} fixed weights"
    for outcome in others:
        line = curves.loss_curve(summary, outcome, term)
        if line is not None:
            look = {"color": COLOURS["set"], "width": 1}
            legend = {"name": name, "legendgroup": "fixed", "showlegend": not seen}
            hover = f"{elements.escape(outcome.label)}: %{{y:.4g}}<extra></extra>"
            figure.add_scatter(x=line.steps, y=line.mean, mode="lines", line=look, hovertemplate=hover, **legend)
            seen = True
    ours = (summary.one_shot, plans.name_of_ours(summary), COLOURS["learned"])
    for chosen, name, colour in ((summary.reference, "reference", INK), ours):
        line = curves.loss_curve(summary, chosen.chosen, term) if chosen else None
        if line is not None:
            elements.add_line(figure, line, name, colour, band=chosen is summary.one_shot)
    values = [v for trace in figure.data for v in trace.y if v is not None and math.isfinite(v)]
    if values and min(values) > 0 and max(values) > 20 * min(values):
        figure.update_yaxes(type="log", **elements.log_ticks(LogScale(values), power=True))
    return figure
