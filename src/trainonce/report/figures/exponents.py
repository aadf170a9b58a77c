"""The figure of the trained exponents over steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainonce.report.catalogue import each_trained_rule, entry
from trainonce.report.drawing import curves, plans
from trainonce.report.drawing.over_steps import find_trained
from trainonce.report.drawing.terms import draw_terms

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from trainonce.study.summary import Summary


@entry(
    part="ratios",
    title="Exponents over steps: {case}",
    caption="The parameters that {case} trains, the logarithms of the ratios; that of {base} is 0. Flat at the end "
    "means that they have converged, or that the learning rate has decayed to 0.",
    cases=each_trained_rule,
)
def exponents(summary: Summary, plan: str | None = None, axes: Axes | None = None) -> Figure:
    """Draw the trained exponents over steps, one line per auxiliary term; the base's is 0.

    :param plan: A plan of a rule that trains exponents, by default the first.
    """
    row, terms = find_trained(summary, plan), summary.task.terms[1:]
    runs = curves.read_histories(summary, row.chosen)
    found = {term: curves.curve(runs, f"exponent/{term}") for term in terms}
    lines = {term: line for term, line in found.items() if line is not None}
    return draw_terms(summary, axes, lines, f"Exponents: {plans.label(row)}", "exponent μ, 0 for the base")
