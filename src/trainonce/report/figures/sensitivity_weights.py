"""The figure of how the last weights depend on one setting of the learned weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainonce.report.catalogue import each_sweep, entry
from trainonce.report.drawing import labels, style, sweeps, ticks, titles
from trainonce.report.drawing.curves import Curve
from trainonce.report.drawing.labels import Label
from trainonce.report.drawing.log_axis import LogScale
from trainonce.report.drawing.multiples import draw_multiples
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
    xs, terms = [scale(value) for value, _ in found], summary.task.terms
    title, above = f"Last weights, by {sweeps.setting(row)}", "weight λ after the last step; mean over the seeds"
    if axes is None and len(terms) > style.TOGETHER:
        columns = [list(column) for column in zip(*(weights for _, weights in found), strict=True)]
        lines = {term: Curve(xs, ys, ys, ys, 1) for term, ys in zip(terms, columns, strict=True)}
        return draw_multiples(lines, title, above, sweeps.axis_label(row), lambda panel: _set_values(panel, scale))
    with style.panel(axes) as axes:
        named = []
        for number, term in enumerate(terms):
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
        titles.head(axes, title, above, sweeps.axis_label(row))
    return style.root(axes)


def _set_values(panel: Axes, scale: LogScale) -> None:
    scale.apply(panel, "x")
    ticks.thin(panel, labels.axes_size(panel)[0])
