"""The figure of what alignment has added to a balance over steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainonce.report.catalogue import each_aligned_rule, entry
from trainonce.report.drawing import curves, plans
from trainonce.report.drawing.over_steps import find_rule
from trainonce.report.drawing.style import NothingToDrawError
from trainonce.report.drawing.terms import draw_terms

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from trainonce.study.summary import Summary


@entry(
    part="ratios",
    title="Alignment over steps: {case}",
    caption="The factor by which the validation loss has moved each auxiliary coefficient of {case} so far: above 1 "
    "the term has helped on the validation data, below 1 it has hindered.",
    cases=each_aligned_rule,
)
def alignment(summary: Summary, plan: str | None = None, axes: Axes | None = None) -> Figure:
    """Draw the factors that alignment has added to a balance over steps, one line per auxiliary term.

    :param plan: A plan whose rule is aligned by a validation loss, by default the first.
    """
    named = [case.argument for case in each_aligned_rule(summary)]
    if plan not in (None, *named) or not named:
        raise NothingToDrawError("This study has no history of a rule that a validation loss has aligned.")
    row = find_rule(summary, plan or named[0])
    runs = [
        run | {name: values.exp() for name, values in run.items() if name.startswith("alignment/")}
        for run in curves.read_histories(summary, row.chosen)
    ]
    lines, scale = curves.log_curves(runs, {term: f"alignment/{term}" for term in summary.task.terms[1:]})
    return draw_terms(summary, axes, lines, f"Alignment: {plans.label(row)}", "factor of alignment (log scale)", scale)
