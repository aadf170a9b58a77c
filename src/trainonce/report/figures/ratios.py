"""The figure of a rule's ratios over steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainonce.report.catalogue import each_rule, entry
from trainonce.report.drawing import curves, plans
from trainonce.report.drawing.over_steps import find_rule
from trainonce.report.drawing.terms import draw_terms
from trainonce.report.drawing.titles import ratio_to_base

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from trainonce.study.summary import Summary


@entry(
    part="ratios",
    title="Ratios over steps: {case}",
    caption="What each auxiliary loss was multiplied by, relative to {base}, under {case}. A line begins where the "
    "ratio is above 0; a band runs from the lowest to the highest seed. Many terms have a panel each, with the others "
    "in grey and the last ratio above.",
    cases=each_rule,
)
def ratios(summary: Summary, plan: str | None = None, axes: Axes | None = None) -> Figure:
    """Draw a rule's ratios over steps, one line per auxiliary term: mean over the seeds, with their range.

    :param plan: A plan that trains once under a rule, by default the first.
    """
    row, terms = find_rule(summary, plan), summary.task.terms
    runs = curves.ratios(curves.read_histories(summary, row.chosen), terms)
    lines, scale = curves.log_curves(runs, {term: f"ratio/{term}" for term in terms[1:]})
    return draw_terms(summary, axes, lines, f"Ratios: {plans.label(row)}", ratio_to_base(summary), scale)
