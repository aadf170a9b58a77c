"""The figure for two auxiliary terms: the map of their ratios."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

from trainonce.extras import require
from trainonce.report import numbers
from trainonce.report.catalogue import entry
from trainonce.report.drawing import labels, plans, style, titles, weight_space
from trainonce.report.drawing.log_axis import LogScale
from trainonce.report.drawing.style import INK, NothingToDrawError
from trainonce.text import shorten

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from trainonce.study.summary import Outcome, Summary


@entry(
    part="ratios",
    title="Map of the ratios",
    caption="Each cell or dot is one fixed choice, stronger where {report} {metric} is better; the frame "
    "or diamond marks the one that {select} chooses. Each path is a seed of a rule, from ring to star, if its history "
    "was kept.",
    applies=lambda summary: len(summary.task.terms) == 3,
)
def heat_map(summary: Summary, axes: Axes | None = None) -> Figure:
    """Draw every fixed choice of two auxiliary terms by its ratios, darker where better, and the rules' paths."""
    weight_space.require_auxiliary(summary, 2)
    choices = weight_space.fixed_choices(summary)
    if not choices:
        raise NothingToDrawError("A map needs a set of fixed weights, such as a grid.")
    rules = plans.rules(summary)
    paths = {
        row.plan: [[weight_space.ratios(point) for point in path] for path in weight_space.paths(summary, row)]
        for row in rules
    }
    places = [place for _, _, place in choices] + [p for of in paths.values() for path in of for p in path]
    scales = [LogScale([place[i] for place in places]) for i in (0, 1)]
    strong = weight_space.strength(summary, [o.mean for _, o, _ in choices])
    with style.panel(axes, height=4.6) as axes:
        patches = require("matplotlib.patches", "matplotlib", "study")
        edges = [_edges([place[i] for _, _, place in choices], scales[i]) for i in (0, 1)]
        full = len(choices) == math.prod(len(e) for e in edges)
        wide = labels.axes_size(axes)[0] / max(1, len(edges[0]))
        texts: list[tuple[Outcome, tuple[float, float], bool]] = []
        for (_, outcome, place), alpha in zip(choices, strong, strict=True):
            chosen = summary.reference is not None and outcome is summary.reference.chosen
            if full:
                (left, right), (bottom, top) = edges[0][place[0]], edges[1][place[1]]
                axes.add_patch(
                    patches.Rectangle(
                        (left, bottom), right - left, top - bottom, facecolor=INK, alpha=0.03 + 0.32 * alpha, gid="cell"
                    )
                )
                if chosen:
                    axes.add_patch(
                        patches.Rectangle(
                            (left, bottom),
                            right - left,
                            top - bottom,
                            fill=False,
                            edgecolor=INK,
                            linewidth=2,
                            gid="chosen",
                        )
                    )
                texts.append((outcome, ((left + right) / 2, top), chosen))
            else:
                x, y = scales[0](place[0]), scales[1](place[1])
                look = {"color": INK, "alpha": 0.15 + 0.7 * alpha, "markersize": 9}
                name = f"choice {outcome.label}: {plans.result(summary, outcome)}"
                axes.plot(x, y, "D" if chosen else "o", gid=name, **look)  # type: ignore[arg-type]
        spans = [[e for pair in edge.values() for e in pair] for edge in edges]
        for which, scale, span in zip("xy", scales, spans, strict=True):
            scale.apply(axes, which, (min(span), max(span)) if full else None)
        drawn = [(row, [[(scales[0](a), scales[1](b)) for a, b in p] for p in paths[row.plan]]) for row in rules]
        taken = [box for one in texts for box in _write_cell(axes, summary, *one, wide)]
        weight_space.draw_rules(axes, summary, drawn, taken)
        axes.set_ylabel(weight_space.ratio_label(summary, 2))
        what = shorten(f"{summary.task.report} {summary.task.metric}", 23)
        titles.head(
            axes,
            "Where the ratios went",
            f"{'cells' if full else 'dots'}: {what}, stronger is better",
            weight_space.ratio_label(summary, 1),
        )
    return style.root(axes)


def _edges(values: Sequence[float], scale: LogScale) -> dict[float, tuple[float, float]]:
    """Return for each distinct value the edges of its cells, halfway to its neighbours."""
    different = sorted(set(values))
    at = [scale(v) for v in different]
    if len(at) == 1:
        return {different[0]: (at[0] - 0.5, at[0] + 0.5)}
    between = [(a + b) / 2 for a, b in itertools.pairwise(at)]
    inner = [2 * at[0] - between[0], *between, 2 * at[-1] - between[-1]]
    return {value: (inner[i], inner[i + 1]) for i, value in enumerate(different)}


def _write_cell(
    axes: Axes, summary: Summary, outcome: Outcome, at: tuple[float, float], chosen: bool, wide: float
) -> list[labels.Box]:
    """Write a cell's result where it fits, and return the box that labels must avoid."""
    decimals = numbers.decimal_places(summary)
    full = style.typeset(numbers.mean_and_deviation(outcome, decimals))
    text = full if labels.text_width(full, 8.5) < wide - 6 else numbers.number(outcome.mean, decimals)
    half, (x, y) = labels.text_width(text, 8.5) / 2, labels.to_points(axes, *at)
    if 2 * half >= wide - 2:
        return []
    look = {"fontsize": 8.5, "ha": "center", "va": "top", "fontweight": "bold" if chosen else "normal"}
    axes.annotate(text, at, (0, -4), "data", "offset points", **look)  # type: ignore[arg-type]
    return [labels.Box(x - half, y - 16, x + half, y - 3)]
