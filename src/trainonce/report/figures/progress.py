"""The figure of the metric during training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainonce.report.catalogue import entry
from trainonce.report.drawing import curves
from trainonce.report.drawing.over_steps import draw_against_grid
from trainonce.text import shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from trainonce.report.drawing.curves import Curve
    from trainonce.study.summary import Outcome, Summary


@entry(
    part="losses",
    title="The metric during training",
    caption="The {select} {metric} that the trials reported while they trained.",
)
def progress(summary: Summary, axes: Axes | None = None) -> Figure:
    """Draw the selecting metric as the trials reported it during training."""

    def line(outcome: Outcome) -> Curve | None:
        return curves.report_curve(summary, outcome)

    task = summary.task
    unit = f", {shorten(task.unit, 6)}" if task.unit else ""
    metric = f"{shorten(task.select, 10)} {shorten(task.metric, 18)}{unit}"
    lacking = "The trials reported no metric during training: call trial.report in the task to see it."
    return draw_against_grid(summary, axes, line, f"During training: {metric}", "as reported", lacking)
