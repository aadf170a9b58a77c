"""A rule's ratios over steps with Plotly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainonce.report.drawing import curves, plans
from trainonce.report.drawing.over_steps import NO_HISTORY, describe_band, find_rule
from trainonce.report.drawing.style import TERMS, TOGETHER, NothingToDrawError
from trainonce.report.drawing.titles import ratio_to_base
from trainonce.report.plotly import elements

if TYPE_CHECKING:
    from trainonce.study.summary import Summary


def ratios(summary: Summary, plan: str | None = None) -> Any:
    """Draw the ratios over steps, with the range of the seeds; many terms have the still figure alone."""
    row, terms = find_rule(summary, plan), summary.task.terms
    if len(terms) - 1 > TOGETHER:
        raise NothingToDrawError("The lines of so many terms are drawn in panels.")
    runs = curves.ratios(curves.read_histories(summary, row.chosen), terms)
    lines, scale = curves.log_curves(runs, {term: f"ratio/{term}" for term in terms[1:]})
    if not lines:
        raise NothingToDrawError(NO_HISTORY)
    above = f"{ratio_to_base(summary)}; {describe_band(len(runs))}"
    axis = {"range": list(scale.limits), **elements.log_ticks(scale)}
    figure = elements.new_figure(f"Ratios: {plans.label(row)}", above, elements.step_axis(), axis)
    for term, line in lines.items():
        colour = TERMS[terms.index(term) % len(TERMS)]
        elements.add_line(figure, line, elements.label(term), colour, texts=[scale.text(y) for y in line.mean])
    return figure
