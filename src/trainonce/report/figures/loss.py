"""The figure of one term's loss over steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainonce.report.catalogue import each_term, entry
from trainonce.report.drawing import curves
from trainonce.report.drawing.over_steps import NO_HISTORY, draw_against_grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from trainonce.report.drawing.curves import Curve
    from trainonce.study.summary import Outcome, Summary


@entry(
    part="losses",
    title="Loss {case} over steps",
    caption="The raw loss on the training batches: the rules with the range of their seeds, the reference, and the "
    "other fixed choices in grey, each the mean over its seeds. Of very many, some are drawn, from the best to the "
    "worst.",
    cases=each_term,
)
def loss(summary: Summary, term: str | None = None, axes: Axes | None = None) -> Figure:
    """Draw one term's raw loss over steps: the rules, the reference, and other fixed choices in grey.

    :param term: By default the base.
    """
    term = term or summary.task.terms[0]

    def line(outcome: Outcome) -> Curve | None:
        return curves.loss_curve(summary, outcome, term)

    return draw_against_grid(summary, axes, line, f"Loss: {term}", "raw loss", NO_HISTORY)
