"""The figure of the gradient units over steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainonce.report.catalogue import entry
from trainonce.report.drawing.style import NothingToDrawError
from trainonce.report.drawing.terms import draw_terms
from trainonce.study import sentences

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from trainonce.study.summary import Summary


@entry(
    part="weights",
    title="Gradient units over steps",
    caption="What each loss is divided by before the losses are weighed: how large its gradient is, relative to that "
    "of {base}, at the parameters that they share. With a unit of 100 the gradient is 100 times as "
    "large.",
    applies=lambda summary: sentences.is_in_units(summary.one_shot),
)
def units(summary: Summary, axes: Axes | None = None) -> Figure:
    """The units of the losses over steps, one line per auxiliary term; the base term's is 1."""
    if not sentences.is_in_units(summary.one_shot):
        raise NothingToDrawError("The first one-shot plan does not weigh the losses in gradient units.")
    return draw_terms(summary, axes, "unit", summary.task.terms[1:], "Gradient units", "unit, 1 for the base")
