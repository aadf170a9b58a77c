"""The figure of all weights of four or more terms: parallel coordinates."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from trainonce.report.catalogue import entry
from trainonce.report.drawing import style, weight_space
from trainonce.report.drawing.log_axis import LogScale
from trainonce.report.drawing.style import COLOURS, INK, NothingToDrawError
from trainonce.report.plotly.parallel_coordinates import parallel_coordinates as interactive
from trainonce.text import shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from trainonce.study.summary import Summary


@entry(
    part="weights",
    title="All choices of weights",
    caption="One line for each choice, through its ratios to the base weight and its result; the stronger the line, "
    "the better. Lines through the same values are drawn slightly apart.",
    applies=lambda summary: len(summary.task.terms) > 3,
    interactive=interactive,
)
def parallel_coordinates(summary: Summary, axes: Axes | None = None) -> Figure:
    """Three or more auxiliary terms: one line per choice of weights, through its ratios to the base and its result."""
    weight_space.require_auxiliary(summary, 3, least=True)
    choices = [c for c in weight_space.fixed_choices(summary) if c[0].kind == "set"]
    ours = summary.one_shot
    ends = (
        [weight_space.ratios(record.weights) for record in ours.chosen.records.values() if record.weights]
        if ours
        else []
    )
    if not choices:
        raise NothingToDrawError("Parallel coordinates need a set of fixed weights, such as a grid.")
    terms, means = summary.task.terms[1:], [o.mean for _, o, _ in choices]
    learned = [ours.chosen.report[s] for s, r in ours.chosen.records.items() if r.weights] if ours else []
    scale = LogScale([r for _, _, place in choices for r in place] + [r for end in ends for r in end])
    low, high = style.widen([*means, *learned], 0.05)
    bottom, top = scale.limits

    def height(value: float) -> float:
        """The result on the last axis, the better the higher."""
        part = (value - low) / (high - low)
        return bottom + (part if summary.task.sign > 0 else 1 - part) * (top - bottom)

    width = max(style.WIDTH, 1.6 + 0.9 * len(terms))
    with style.panel(axes, width=width, margins=style.Margins(right=0.75, bottom=0.75)) as axes:
        places = list(range(len(terms) + 1))
        for (_, outcome, place), alpha in zip(choices, weight_space.strength(summary, means), strict=True):
            chosen = summary.reference is not None and outcome is summary.reference.chosen
            apart = 0 if chosen else (alpha - 0.5) * 0.06 * (top - bottom)  # lines through the same values would hide
            line = [*(scale(r) + apart for r in place), height(outcome.mean)]
            look = {"color": INK, "linewidth": 2.4, "zorder": 3} if chosen else {"color": COLOURS["set"], "zorder": 2}
            axes.plot(places, line, alpha=1 if chosen else 0.15 + 0.6 * alpha, gid="choice", **look)  # type: ignore[arg-type]
        for end, value in zip(ends, learned, strict=True):
            line = [*(scale(r) for r in end), height(value)]
            axes.plot(places, line, color=COLOURS["learned"], linewidth=2, zorder=4, marker="o", ms=4, gid="end")
        scale.apply(axes, "y")
        axes.set_xlim(-0.15, len(terms) + 0.02)
        axes.set_xticks(places, [shorten(t, 10 if len(terms) > 3 else 16) for t in terms] + ["result"])
        for at in places:
            axes.axvline(at, color=INK, linewidth=0.8, alpha=0.5, zorder=1)
        axes.spines[["left", "bottom"]].set_visible(False)
        other = axes.secondary_yaxis("right")
        values = _round_values(low, high)
        other.set_yticks([height(v) for v in values], [f"{v:g}" for v in values])
        other.tick_params(length=3, labelsize=9.5)
        other.spines["right"].set_visible(False)
        style.head(axes, "All choices of weights", "weights / base weight (log scale); better results are higher")
        axes.set_xlabel("orange: learned, one line per seed;  dark: reference;  grey: other fixed weights", fontsize=9)
    return style.root(axes)


def _round_values(low: float, high: float) -> list[float]:
    """At least three round numbers of a range."""
    step = 10 ** math.floor(math.log10((high - low) / 2))
    step *= next(m for m in (5, 2, 1, 0.5) if (high - low) / (m * step) >= 3)
    return [i * step for i in range(math.ceil(low / step), math.floor(high / step) + 1)]
