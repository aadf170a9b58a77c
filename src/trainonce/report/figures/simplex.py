"""The figure of three coefficients: the simplex."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainonce.extras import require
from trainonce.report.catalogue import entry
from trainonce.report.drawing import plans, style, titles, weight_space
from trainonce.report.drawing.style import COLOURS, INK, MARKERS, NothingToDrawError
from trainonce.report.drawing.weight_space import TOP, place_in_triangle
from trainonce.text import shorten

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from trainonce.study.summary import Row, Summary


@entry(
    part="ratios",
    title="Simplex of the coefficients",
    caption="The same choices in a triangle: at a corner the other two coefficients are 0, in the middle all three are "
    "equal. Other methods and searches are where their coefficients ended, one mark a seed.",
    applies=lambda summary: len(summary.task.terms) == 3,
)
def simplex(summary: Summary, axes: Axes | None = None) -> Figure:
    """Draw every choice of three coefficients in a triangle, and the paths of the rules."""
    weight_space.require_auxiliary(summary, 2)
    choices = weight_space.fixed_choices(summary)
    paths = [(row, weight_space.paths(summary, row)) for row in plans.rules(summary)]
    if not choices and not any(of_row for _, of_row in paths):
        raise NothingToDrawError("The simplex needs a set of fixed weights, or a rule.")
    with style.panel(axes, height=5.5, margins=style.Margins(left=0.35, right=0.35, bottom=0.3, top=0.85)) as axes:
        axes.set_axis_off()
        axes.set_aspect("equal")
        axes.set(xlim=(-0.04, 1.04), ylim=(-0.08, TOP + 0.25))
        for part in (0.25, 0.5, 0.75):
            for one in range(3):
                ends = [[0.0] * 3, [0.0] * 3]
                for end, other in enumerate(i for i in range(3) if i != one):
                    ends[end][one], ends[end][other] = part, 1 - part
                axes.plot(*zip(*map(place_in_triangle, ends), strict=True), color=INK, linewidth=0.7, alpha=0.15)
        axes.plot([0, 1, 0.5, 0], [0, 0, TOP, 0], color=INK, linewidth=0.9)
        strong = weight_space.strength(summary, [o.mean for _, o, _ in choices]) if choices else []
        for (_, outcome, _), alpha in zip(choices, strong, strict=True):
            assert outcome.rule is not None
            chosen = summary.reference is not None and outcome is summary.reference.chosen
            marker, alpha = ("D", 1.0) if chosen else ("o", 0.12 + 0.6 * alpha)
            axes.plot(
                *place_in_triangle(outcome.rule.coefficients),
                marker,
                color=INK,
                alpha=alpha,
                markersize=8,
                gid=f"choice {outcome.label}: {plans.result(summary, outcome)}",
            )
        for row in summary.ranked:
            text = f"plan {row.plan}: {plans.result(summary, row.chosen)}"
            look: dict[str, Any] = {"markersize": 6, "clip_on": False, "zorder": 6, "gid": text}
            for place in weight_space.last_places(row) if row.kind in ("peer", "search", "fixed") else ():
                axes.plot(*place, MARKERS[row.kind], color=COLOURS[row.kind], **look)
        for row, of_row in paths:
            placed = [[place_in_triangle(point) for point in path] for path in of_row]
            weight_space.draw_paths(axes, placed, plans.colour(summary, row))
        base, left, right = (shorten(term, 26) for term in summary.task.terms)
        axes.text(0.5, TOP + 0.03, f"only {base}", ha="center", va="bottom", fontsize=9.5)
        axes.text(0, -0.03, f"only {left}", ha="left", va="top", fontsize=9.5)
        axes.text(1, -0.03, f"only {right}", ha="right", va="top", fontsize=9.5)
        _add_legend(axes, summary, bool(choices), paths)
        titles.head(axes, "Simplex of the coefficients", "at a corner the other two are 0")
    return style.root(axes)


def _add_legend(
    axes: Axes, summary: Summary, fixed: bool, paths: Sequence[tuple[Row, Sequence[Sequence[object]]]]
) -> None:
    lines = require("matplotlib.lines", "matplotlib", "study")
    legend = require("matplotlib.legend", "matplotlib", "study")
    kinds = [k for k in ("fixed", "peer", "search") if any(row.kind == k for row in summary.ranked)]
    left = []
    for row, of_row in paths:
        when = "start to end" if any(len(path) > 1 for path in of_row) else "at the end"
        name = f"{shorten(plans.label(row), 20)}, {when}"
        left += [(name, plans.colour(summary, row), MARKERS["rule"])] if of_row else []
    left += [("fixed, darker is better", INK, "o"), ("best fixed (reference)", INK, "D")] if fixed else []
    right = [(style.ROLES[kind], COLOURS[kind], MARKERS[kind]) for kind in kinds]
    for group, place in ((left, 2), (right, 1)):  # upper left, upper right
        marks = [lines.Line2D([], [], color=c, marker=m, linestyle="none") for _, c, m in group]
        look = {"loc": place, "fontsize": 8.5, "handletextpad": 0.1, "borderaxespad": 0.1}
        axes.add_artist(legend.Legend(axes, marks, [name for name, _, _ in group], **look))
