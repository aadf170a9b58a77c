"""The figure of how the last ratios depend on one setting of the paper's rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainonce.report.catalogue import each_sweep, entry
from trainonce.report.drawing import labels, style, sweeps, ticks, titles, weight_space
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
    title="Last ratios by {case}",
    caption="The last ratios to {base} for each value of the setting. Flat lines mean that the setting does not affect "
    "them.",
    cases=each_sweep,
)
def sensitivity_ratios(summary: Summary, plan: str | None = None, axes: Axes | None = None) -> Figure:
    """Draw the last ratios over the values of a sweep, mean over the seeds.

    :param plan: The sweep, by default the first.
    """
    row, terms = sweeps.find(summary, plan), summary.task.terms[1:]
    found = [(value, last) for value, o in sweeps.values(row) if (last := weight_space.last_ratios(o))]
    if not found:
        raise NothingToDrawError(f"The trials of {row.plan} recorded no coefficients.")
    across, up = LogScale([value for value, _ in found]), LogScale([ratio for _, last in found for ratio in last])
    xs = [across(value) for value, _ in found]
    lines = {term: [up(last[i]) for _, last in found] for i, term in enumerate(terms)}
    title, above = f"Last ratios, by {sweeps.setting(row)}", titles.ratio_to_base(summary)
    if axes is None and len(terms) > style.TOGETHER:
        drawn = {term: Curve(xs, ys, ys, ys, 1) for term, ys in lines.items()}
        return draw_multiples(drawn, title, above, sweeps.axis_label(row), lambda panel: _set_values(panel, across), up)
    with style.panel(axes) as axes:
        named = []
        for number, (term, ys) in enumerate(lines.items(), start=1):
            colour, dash = style.term_style(number)
            look = {"color": colour, "linestyle": dash, "linewidth": 1.8, "marker": "o", "markersize": 4}
            axes.plot(xs, ys, gid=f"line {term}", **look)
            named.append(Label(xs[-1], ys[-1], shorten(term, 24), colour))
        across.apply(axes, "x")
        up.apply(axes, "y")
        style.grid_lines(axes)
        labels.place_at_ends(axes, named)
        titles.head(axes, title, f"{above}; after the last step", sweeps.axis_label(row))
    return style.root(axes)


def _set_values(panel: Axes, scale: LogScale) -> None:
    scale.apply(panel, "x")
    ticks.thin(panel, labels.axes_size(panel)[0])
