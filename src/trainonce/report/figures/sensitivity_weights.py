"""The figure of how the last weights depend on one setting of the learned weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainonce.report.catalogue import each_sweep, entry
from trainonce.report.drawing import labels, style, sweeps
from trainonce.report.drawing.labels import Label
from trainonce.report.drawing.log_axis import LogScale
from trainonce.report.drawing.style import NothingToDrawError
from trainonce.text import shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from trainonce.study.summary import Summary


@entry(
    part="sensitivity",
    title="Last weights by {case}",
    caption="The last weights for each value of the setting. Flat lines mean that the setting does not affect them.",
    cases=each_sweep,
)
def sensitivity_weights(summary: Summary, plan: str | None = None, axes: Axes | None = None) -> Figure:
    """The last weights over the values of a sweep, mean over the seeds."""
    row = sweeps.find(summary, plan)
    found = [(value, o.weights) for value, o in sweeps.values(row) if o.weights]
    if not found:
        raise NothingToDrawError(f"The trials of {row.plan} recorded no weights.")
    scale = LogScale([value for value, _ in found])
    with style.panel(axes) as axes:
        named, xs = [], [scale(value) for value, _ in found]
        for number, term in enumerate(summary.task.terms):
            colour, dash = style.term_style(number)
            ys = [weights[number] for _, weights in found]
            axes.plot(
                xs, ys, marker="o", markersize=4, color=colour, linestyle=dash, linewidth=1.8, gid=f"weight {term}"
            )
            named.append(Label(xs[-1], ys[-1], shorten(term, 24), colour))
        scale.apply(axes, "x")
        axes.set_ylim(0, None)
        style.grid_lines(axes)
        labels.place_at_ends(axes, named)
        style.head(
            axes,
            f"Last weights, by {sweeps.setting(row)}",
            "weight λ after the last step; mean over the seeds",
            sweeps.axis_label(row),
        )
    return style.root(axes)
