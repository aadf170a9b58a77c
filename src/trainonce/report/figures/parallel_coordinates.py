"""The figure of the ratios of four or more terms: parallel coordinates."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from trainonce.report import numbers
from trainonce.report.catalogue import entry
from trainonce.report.drawing import edges, labels, plans, style, ticks, titles, weight_space
from trainonce.report.drawing.log_axis import LogScale
from trainonce.report.drawing.rows import name_width
from trainonce.report.drawing.style import COLOURS, INK, SMALL, NothingToDrawError
from trainonce.text import shorten

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from trainonce.study.summary import Summary

ROW = 0.32  # inches


@entry(
    part="ratios",
    title="All choices of ratios",
    caption="One line for each fixed choice and for each seed of a rule, from top to bottom through its ratios to "
    "{base} to its result; the stronger the line, the better. Lines through the same values are drawn slightly apart.",
    applies=lambda summary: len(summary.task.terms) > 3,
)
def parallel_coordinates(summary: Summary, axes: Axes | None = None) -> Figure:
    """Draw one line per choice of three or more ratios to the base, through them and its result."""
    weight_space.require_auxiliary(summary, 3, least=True)
    choices = weight_space.fixed_choices(summary)
    ends = [(row, *end) for row in plans.rules(summary) for end in weight_space.ends(row)]
    if not choices:
        raise NothingToDrawError("Parallel coordinates need a set of fixed weights, such as a grid.")
    terms, means = summary.task.terms[1:], [o.mean for _, o, _ in choices]
    results = [*means, *(value for _, _, value in ends)]
    scale = LogScale([r for _, _, place in choices for r in place] + [r for _, end, _ in ends for r in end])
    low, high = edges.limits(results, 0.05)
    left, right = scale.limits

    def place_result(value: float) -> float:
        """Return where a result is on its own axis, the better the further right; beyond the axis, at its end."""
        part = min(max((value - low) / (high - low), 0.0), 1.0)
        return left + (part if summary.task.sign > 0 else 1 - part) * (right - left)

    names = [*(shorten(term, 18) for term in terms), "result"]
    height = max(style.HEIGHT, ROW * len(names) + 1.8)
    with style.panel(axes, height=height, margins=style.Margins(name_width(names), top=0.95, bottom=0.72)) as axes:
        places = list(range(len(terms), -1, -1))
        axes.set_ylim(-0.3, len(terms) + 0.3)
        scale.apply(axes, "x")
        for (_, outcome, place), alpha in zip(choices, weight_space.strength(summary, means), strict=True):
            chosen = summary.reference is not None and outcome is summary.reference.chosen
            apart = 0 if chosen else (alpha - 0.5) * 0.06 * (right - left)  # lines through the same values would hide
            line = [*(scale(r) + apart for r in place), place_result(outcome.mean)]
            look = {"color": INK, "linewidth": 2.4, "zorder": 3} if chosen else {"color": COLOURS["set"], "zorder": 2}
            look |= {"alpha": 1 if chosen else 0.15 + 0.6 * alpha}
            axes.plot(line, places, gid=f"choice {outcome.label}: {plans.result(summary, outcome)}", **look)  # type: ignore[arg-type]
        for row, end, value in ends:
            line = [*(scale(r) for r in end), place_result(value)]
            colour = plans.colour(summary, row)
            axes.plot(line, places, color=colour, linewidth=2, zorder=4, marker="o", ms=4, gid=f"end {row.plan}")
        _mark_beyond(axes, summary, results, (low, high), place_result)
        axes.set_yticks(places, names)
        for at in places:
            axes.axhline(at, color=INK, linewidth=0.8, alpha=0.5, zorder=1)
        axes.spines[["left", "bottom"]].set_visible(False)
        outset = 72 * name_width(names) - 8
        above = ", ".join(filter(None, ["ratios (log scale); dark: reference", plans.legend(summary)]))
        titles.head(axes, "All choices of ratios", above, outset=outset, lift=16)
        axes.xaxis.tick_top()
        axes.tick_params(axis="y", length=0, pad=9)
        _add_result_axis(axes, summary, _round_values(low, high), place_result)
    return style.root(axes)


def _add_result_axis(
    axes: Axes, summary: Summary, values: Sequence[float], place_result: Callable[[float], float]
) -> None:
    """Add the axis of the results, below the others."""
    other = axes.secondary_xaxis("bottom")
    ordered = sorted(values, key=place_result)
    other.set_xticks([place_result(v) for v in ordered], ticks.texts(ordered))
    ticks.thin(other, labels.axes_size(axes)[0])
    other.tick_params(length=3, labelsize=9.5)
    other.spines["bottom"].set_visible(False)
    titles.name_below(axes, f"result: {plans.metric_label(summary).partition(' (')[0]}; better →")
    axes.xaxis.labelpad = 18
    axes.xaxis.set_label_position("bottom")


def _mark_beyond(
    axes: Axes,
    summary: Summary,
    values: Sequence[float],
    ends: tuple[float, float],
    place_result: Callable[[float], float],
) -> None:
    """Mark the results beyond their axis with an arrow, their number and the furthest."""
    decimals = numbers.decimal_places(summary)
    for end, far in ((ends[0], [v for v in values if v < ends[0]]), (ends[1], [v for v in values if v > ends[1]])):
        if far:
            x, furthest = place_result(end), max(far, key=lambda v: abs(v - end))
            way = "left" if x == axes.get_xlim()[0] else "right"
            edges.draw_arrow(axes, x, 0, way, INK)
            text = f"{len(far)} beyond, to {edges.number(furthest, decimals)}"
            side = 1 if way == "left" else -1
            look = {"fontsize": SMALL, "ha": "left" if side > 0 else "right", "va": "bottom", "gid": "beyond"}
            axes.annotate(text, (x, 0), (6 * side, 3), "data", "offset points", **look)  # type: ignore[arg-type]


def _round_values(low: float, high: float) -> list[float]:
    """Return at least three round numbers of a range."""
    step = 10 ** math.floor(math.log10((high - low) / 2))
    step *= next(m for m in (5, 2, 1, 0.5) if (high - low) / (m * step) >= 3)
    return [i * step for i in range(math.ceil(low / step), math.floor(high / step) + 1)]
