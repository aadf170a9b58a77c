"""One term's loss over steps with Plotly: the pointer names each fixed choice."""

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
    """Draw one term's raw loss over steps, every fixed choice in grey with its ratios under the pointer."""
    above = "raw loss; mean and range of the seeds"
    figure = elements.new_figure(f"Loss: {term}", above, elements.step_axis(), {})
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
    shown = [(row, elements.label(plans.label(row)), plans.colour(summary, row)) for row in plans.rules(summary)]
    for row, name, colour in (*([(summary.reference, "reference", INK)] if summary.reference else []), *shown):
        line = curves.loss_curve(summary, row.chosen, term)
        if line is not None:
            elements.add_line(figure, line, name, colour, band=row.kind == "rule")
    values = [v for trace in figure.data for v in trace.y if v is not None and math.isfinite(v)]
    if values and min(values) > 0 and max(values) > 20 * min(values):
        figure.update_yaxes(type="log", **elements.log_ticks(LogScale(values), power=True))
    return figure
