"""Figures of all weights at once: the simplex of three terms, parallel coordinates of more."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from trainonce.extras import require
from trainonce.report.drawing import style, weight_space
from trainonce.report.drawing.log_axis import Scale
from trainonce.report.drawing.style import COLOURS, INK, MARKERS, NothingToDrawError
from trainonce.study.weightings import Fixed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from trainonce.study.summary import Summary

TOP = math.sqrt(3) / 2


def corner(weights: Sequence[float]) -> tuple[float, float]:
    """Where three weights that sum to 1 are in the triangle: the base on top, the auxiliary terms left and right."""
    base, _, right = weights
    return right + base / 2, base * TOP


def simplex(summary: Summary, axes: Axes | None = None) -> Figure:
    """Three terms: every choice of weights in a triangle, and the paths of the learned ones."""
    weight_space.auxiliary(summary, 2)
    choices = [c for c in weight_space.fixed_choices(summary) if c[0].kind == "set"]
    walked = weight_space.paths(summary)
    if not choices and not walked:
        raise NothingToDrawError("The simplex needs fixed or learned weights.")
    with style.panel(axes, height=4.9, margins=style.Margins(left=0.35, right=0.35, bottom=0.3, top=0.85)) as axes:
        axes.set_axis_off()
        axes.set_aspect("equal")
        axes.set(xlim=(-0.04, 1.04), ylim=(-0.08, TOP + 0.06))
        for part in (0.25, 0.5, 0.75):
            for one in range(3):
                ends = [[0.0] * 3, [0.0] * 3]
                for end, other in enumerate(i for i in range(3) if i != one):
                    ends[end][one], ends[end][other] = part, 1 - part
                axes.plot(*zip(*map(corner, ends), strict=True), color=INK, linewidth=0.7, alpha=0.15)
        axes.plot([0, 1, 0.5, 0], [0, 0, TOP, 0], color=INK, linewidth=0.9)
        strong = weight_space.strength(summary, [o.mean for _, o, _ in choices]) if choices else []
        for (_, outcome, _), alpha in zip(choices, strong, strict=True):
            assert isinstance(outcome.weighting, Fixed)
            chosen = summary.reference is not None and outcome is summary.reference.chosen
            marker, alpha = ("D", 1.0) if chosen else ("o", 0.12 + 0.6 * alpha)
            axes.plot(*corner(outcome.weighting.weights), marker, color=INK, alpha=alpha, markersize=8, gid="choice")
        for row in summary.ranked:
            if row.kind in ("peer", "search", "fixed") and len(row.chosen.weights) == 3:
                look = {"color": COLOURS[row.kind], "markersize": 6, "clip_on": False, "gid": f"plan {row.plan}"}
                axes.plot(*corner(row.chosen.weights), MARKERS[row.kind], **look)  # type: ignore[arg-type]
        weight_space.draw_paths(axes, [[corner(point) for point in path] for path in walked])
        base, left, right = (style.short(term, 26) for term in summary.task.terms)
        axes.text(0.5, TOP + 0.03, f"all {base}", ha="center", va="bottom", fontsize=9.5)
        axes.text(0, -0.03, f"all {left}", ha="left", va="top", fontsize=9.5)
        axes.text(1, -0.03, f"all {right}", ha="right", va="top", fontsize=9.5)
        _legend(axes, summary, bool(choices), bool(walked))
        style.head(axes, "The simplex of the weights", "near a corner one term has all the weight")
    return style.root(axes)


def _legend(axes: Axes, summary: Summary, fixed: bool, learned: bool) -> None:
    lines = require("matplotlib.lines", "matplotlib", "study")
    legend = require("matplotlib.legend", "matplotlib", "study")
    kinds = [k for k in ("fixed", "peer", "search") if any(row.kind == k for row in summary.ranked)]
    left = [("learned, start to end", COLOURS["learned"], MARKERS["learned"])] if learned else []
    left += [("set, stronger is better", INK, "o"), ("its best: the reference", INK, "D")] if fixed else []
    right = [(style.ROLES[kind], COLOURS[kind], MARKERS[kind]) for kind in kinds]
    for entries, place in ((left, 2), (right, 1)):  # upper left, upper right
        marks = [lines.Line2D([], [], color=c, marker=m, linestyle="none") for _, c, m in entries]
        look = {"loc": place, "fontsize": 8.5, "handletextpad": 0.1, "borderaxespad": 0.1}
        axes.add_artist(legend.Legend(axes, marks, [name for name, _, _ in entries], **look))


def parallel_coordinates(summary: Summary, axes: Axes | None = None) -> Figure:
    """Three or more auxiliary terms: one line a choice of weights, through its ratios to the base and its result."""
    weight_space.auxiliary(summary, 3, least=True)
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
    scale = Scale([r for _, _, place in choices for r in place] + [r for end in ends for r in end])
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
        scale.dress(axes, "y")
        axes.set_xlim(-0.15, len(terms) + 0.02)
        axes.set_xticks(places, [style.short(t, 10 if len(terms) > 3 else 16) for t in terms] + ["result"])
        for at in places:
            axes.axvline(at, color=INK, linewidth=0.8, alpha=0.5, zorder=1)
        axes.spines[["left", "bottom"]].set_visible(False)
        other = axes.secondary_yaxis("right")
        values = _round(low, high)
        other.set_yticks([height(v) for v in values], [f"{v:g}" for v in values])
        other.tick_params(length=3, labelsize=9.5)
        other.spines["right"].set_visible(False)
        style.head(axes, "All choices of weights", "weights / base weight, logarithmic; result: better is higher")
        axes.set_xlabel("orange: learned, one line a seed;  dark: reference;  grey: other fixed weights", fontsize=9)
    return style.root(axes)


def _round(low: float, high: float) -> list[float]:
    """Some round values of a range."""
    step = 10 ** math.floor(math.log10((high - low) / 2))
    step *= next(m for m in (5, 2, 1, 0.5) if (high - low) / (m * step) >= 3)
    return [i * step for i in range(math.ceil(low / step), math.floor(high / step) + 1)]
