"""The learned weights over steps with Plotly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainonce.report.drawing import curves
from trainonce.report.drawing.style import TERMS, NothingToDrawError
from trainonce.report.plotly import elements

if TYPE_CHECKING:
    from trainonce.study.summary import Summary

DASHES = ("solid", "dash", "dot", "dashdot")  # of the first terms, of as many next ones, and so on


def weights(summary: Summary) -> Any:
    """The learned weights over steps, with the range of the seeds."""
    row = summary.one_shot
    runs = curves.read_histories(summary, row.chosen) if row else []
    figure = elements.new_figure(
        "Learned weights",
        f"they sum to 1; mean and range of {len(runs)} seeds",
        elements.step_axis(),
        {"rangemode": "tozero"},
    )
    for number, term in enumerate(summary.task.terms):
        line = curves.curve(runs, f"weight/{term}")
        if line is None:
            raise NothingToDrawError("The histories of the runs with learned weights are not in the folder.")
        dash = DASHES[number // len(TERMS) % len(DASHES)]
        elements.add_line(figure, line, elements.label(term), TERMS[number % len(TERMS)], dash=dash)
    return figure
