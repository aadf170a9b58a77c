"""The learned weights over steps with Plotly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainonce.report.drawing import curves
from trainonce.report.drawing.style import TERMS, TOGETHER, NothingToDrawError
from trainonce.report.plotly import elements
from trainonce.study import sentences

if TYPE_CHECKING:
    from trainonce.study.summary import Summary


def weights(summary: Summary) -> Any:
    """The weights over steps, with the range of the seeds; many terms have the still figure alone."""
    if len(summary.task.terms) > TOGETHER:
        raise NothingToDrawError("The lines of so many terms are drawn in panels.")
    row = summary.one_shot
    runs = curves.read_histories(summary, row.chosen) if row else []
    figure = elements.new_figure(
        sentences.weights_of(row).capitalize(),
        f"they sum to 1; mean and range of {len(runs)} seeds",
        elements.step_axis(),
        {"rangemode": "tozero"},
    )
    for number, term in enumerate(summary.task.terms):
        line = curves.curve(runs, f"weight/{term}")
        if line is None:
            raise NothingToDrawError("The histories of the one-shot runs are not in the folder.")
        elements.add_line(figure, line, elements.label(term), TERMS[number])
    return figure
