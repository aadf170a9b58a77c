"""The figure of the learned weights over steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainonce.report.catalogue import entry
from trainonce.report.drawing.terms import draw_terms
from trainonce.report.plotly.weights import weights as interactive

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from trainonce.study.summary import Summary


@entry(
    part="weights",
    title="Learned weights over steps",
    caption="The weight of each term in the first plan that learns them. "
    "A band runs from the lowest to the highest seed. Many terms have a panel each, with the others in grey and the "
    "last weight above.",
    interactive=interactive,
)
def weights(summary: Summary, axes: Axes | None = None) -> Figure:
    """The learned weights over steps, one line per term: mean over the seeds, with the range of the seeds."""
    return draw_terms(summary, axes, "weight", summary.task.terms, "Learned weights", "weight λ; they sum to 1")
