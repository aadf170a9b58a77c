"""The figure of the learned exponents over steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainonce.report.catalogue import entry
from trainonce.report.drawing.terms import draw_terms

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from trainonce.study.summary import Summary


@entry(
    part="weights",
    title="Learned exponents over steps",
    caption="The parameters that are learned: the weights{in_units} are their softmax, with 0 for {base}. "
    "Flat at the end means that they have converged, or that the learning rate has decayed to 0.",
)
def exponents(summary: Summary, axes: Axes | None = None) -> Figure:
    """The learned exponents over steps, one line per auxiliary term; the base term's is 0."""
    above = "exponent μ, 0 for the base"
    return draw_terms(summary, axes, "exponent", summary.task.terms[1:], "Learned exponents", above)
