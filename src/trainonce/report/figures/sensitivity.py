"""Figures of the sweeps: how the result and the last weights depend on a setting of the learned weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainonce.report.drawing import labels, style
from trainonce.report.drawing.labels import Label
from trainonce.report.drawing.log_axis import Scale
from trainonce.report.drawing.style import COLOURS, DASHES, INK, TERMS, NothingToDrawError
from trainonce.study.weightings import Learned
from trainonce.text import is_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from trainonce.study.summary import Outcome, Row, Summary

NAMES = {
    "init": "init: the starting ratio to the base",
    "decay": "decay rho",
    "lr": "learning rate of the exponents",
}


def swept(row: Row) -> str:
    """The name of the setting that a sweep varies."""
    return row.plan.partition("(")[0].removeprefix("sweep-")


def steps(row: Row) -> list[tuple[float, Outcome]]:
    """The values of a sweep in order, each with what came out."""
    found = [(getattr(o.weighting, swept(row), None), o) for o in row.outcomes if isinstance(o.weighting, Learned)]
    return sorted(((float(v), o) for v, o in found if is_number(v)), key=lambda pair: pair[0])  # type: ignore[arg-type]


def _sweep(summary: Summary, plan: str | None) -> Row:
    row = next((r for r in summary.sweeps if plan in (None, r.plan) and any(o.report for _, o in steps(r))), None)
    if row is None:
        raise NothingToDrawError("This study has no sweep with complete trials: add one, such as sweep-init.")
    return row


def sensitivity(summary: Summary, plan: str | None = None, axes: Axes | None = None) -> Figure:
    """The result over the values of a sweep: dots are seeds, the line joins the means.

    :param plan: The sweep, by default the first.
    """
    row = _sweep(summary, plan)
    found = [(value, o) for value, o in steps(row) if o.report]
    scale = Scale([value for value, _ in found])
    with style.panel(axes) as axes:
        colour = COLOURS["learned"]
        for value, o in found:
            axes.plot([scale(value)] * len(o.report), list(o.report.values()), "o", color=colour, alpha=0.4, gid="seed")
        xs, ys, bars = [scale(v) for v, _ in found], [o.mean for _, o in found], [o.deviation for _, o in found]
        axes.errorbar(xs, ys, bars, fmt="-", color=colour, linewidth=1.8, elinewidth=1.2, capsize=3, gid="mean")
        scale.dress(axes, "x")
        named = [Label(xs[-1], ys[-1], "learned", colour, True)]
        if summary.reference is not None:
            best, right = summary.reference.chosen, axes.get_xlim()[1]
            ends = axes.get_xlim()
            axes.plot(ends, [best.mean] * 2, color=INK, linewidth=1.2, linestyle=(0, (5, 3)), gid="reference")
            band = (best.mean - best.deviation, best.mean + best.deviation)
            axes.fill_between(ends, *band, color=INK, alpha=0.07, linewidth=0)
            named.append(Label(right, best.mean, f"best of {style.bare(summary.reference.plan)}", INK))
        style.grid_lines(axes, "y")
        axes.autoscale(axis="y")
        labels.at_ends(axes, named)
        style.head(axes, f"Sensitivity to {swept(row)}", style.measured(summary), _axis(row))
    return style.root(axes)


def sensitivity_weights(summary: Summary, plan: str | None = None, axes: Axes | None = None) -> Figure:
    """The last weights over the values of a sweep, mean over the seeds."""
    row = _sweep(summary, plan)
    found = [(value, o.weights) for value, o in steps(row) if o.weights]
    if not found:
        raise NothingToDrawError(f"The trials of {row.plan} recorded no weights.")
    scale = Scale([value for value, _ in found])
    with style.panel(axes) as axes:
        named, xs = [], [scale(value) for value, _ in found]
        for number, term in enumerate(summary.task.terms):
            colour, dash = TERMS[number % len(TERMS)], DASHES[number // len(TERMS) % len(DASHES)]
            ys = [weights[number] for _, weights in found]
            axes.plot(
                xs, ys, marker="o", markersize=4, color=colour, linestyle=dash, linewidth=1.8, gid=f"weight {term}"
            )
            named.append(Label(xs[-1], ys[-1], style.short(term, 24), colour))
        scale.dress(axes, "x")
        axes.set_ylim(0, None)
        style.grid_lines(axes)
        labels.at_ends(axes, named)
        style.head(
            axes, f"Last weights, by {swept(row)}", "weight λ after the last step; mean over the seeds", _axis(row)
        )
    return style.root(axes)


def _axis(row: Row) -> str:
    return f"{NAMES.get(swept(row), swept(row))}, logarithmic"
