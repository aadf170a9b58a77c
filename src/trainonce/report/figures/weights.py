"""The figure of the learned weights over steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainonce.report.catalogue import entry
from trainonce.report.drawing.terms import draw_terms
from trainonce.report.plotly.weights import weights as interactive
from trainonce.study import sentences

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from trainonce.study.summary import Summary


@entry(
    part="weights",
    title="{Ours} over steps",
    caption="The weight of each raw loss in the first one-shot plan. "
    "A band runs from the lowest to the highest seed. Many terms have a panel each, with the others in grey and the "
    "last weight above.",
    interactive=interactive,
)
def weights(summary: Summary, axes: Axes | None = None) -> Figure:
    """The learned weights over steps, one line per term: mean over the seeds, with the range of the seeds."""
    ours = sentences.weights_of(summary.one_shot).capitalize()
    return draw_terms(summary, axes, "weight", summary.task.terms, ours, "weight λ; they sum to 1")
