"""The figure of cost against quality."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

from trainonce.extras import require
from trainonce.report import numbers
from trainonce.report.catalogue import entry
from trainonce.report.drawing import edges, labels, plans, style, titles
from trainonce.report.drawing.labels import Box, Label
from trainonce.report.drawing.style import COLOURS, MARKERS, NothingToDrawError
from trainonce.text import shorten

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from trainonce.study.summary import Row, Summary


LONGEST = 23  # characters of a name, so that it does not cross the axis


@entry(
    part="comparison",
    title="Cost against quality",
    caption="Each plan by its cost per seed and its result; bars are one standard deviation over the seeds. "
    "Where plans have different seeds, their names say so. Plans of equal cost are drawn side by side; an arrow is a "
    "bar or a plan beyond the axis. The grey line is the average result of trying only some of the reference's points, "
    "in random order, and choosing among them on {select}.",
)
def cost_quality(summary: Summary, axes: Axes | None = None) -> Figure:
    """Draw the cost of each plan, in full trainings per seed, against its result.

    Error bars are one standard deviation over the seeds. The grey line is the average result of trying only some
    points of the reference's plan, in random order; it ends at the reference.
    """
    rows = summary.ranked
    if not rows:
        raise NothingToDrawError(plans.NO_RESULT)
    first = [row for row in rows if row.cost < 1.1 * min(r.cost for r in rows)]
    height = max(style.HEIGHT, (len(first) + 1) * labels.LINE / 72 + 1.28)
    with style.panel(axes, height=height) as axes:
        low, high = plans.metric_range(summary, rows)
        axes.set_ylim(low, high)
        notes = plans.seed_notes([row.chosen.wanted for row in rows], [summary.has_other_seeds(row) for row in rows])
        named = [_label(summary, row, rows, low, high, note) for row, note in zip(rows, notes, strict=True)]
        far = [not low <= row.chosen.mean <= high for row in rows]
        left = [n for n, row in zip(named, rows, strict=True) if row in first]
        _set_cost_axis(axes, rows, left, named)
        shifts = _shifts(axes, summary, rows)
        expected = plans.expected_best(summary)
        obstacles = _draw_expected_line(axes, expected)
        for row, shift in zip(rows, shifts, strict=True):
            obstacles += _draw_point(axes, summary, row, shift)
        style.grid_lines(axes)
        edge = labels.to_points(axes, min(n.x for n in named), low)[0] - 13
        obstacles += labels.place_column(
            axes, left, edge, "left", [not f for f, r in zip(far, rows, strict=True) if r in first]
        )
        across = labels.axes_size(axes)[0]
        unit = (axes.get_xlim()[1] - axes.get_xlim()[0]) / across
        moved = [n._replace(x=n.x + shift * unit) for n, shift in zip(named, shifts, strict=True)]
        others = [n for n, row in zip(moved, rows, strict=True) if row not in first]
        labels.place_beside(axes, [*others, *_line_label(axes, summary, expected)], obstacles)
        below = "cost: full trainings per seed (log scale)"
        titles.head(axes, "Cost against quality", plans.metric_label(summary), below)
    return style.root(axes)


def _label(summary: Summary, row: Row, rows: Sequence[Row], low: float, high: float, note: str) -> Label:
    """Return the plan's name and a note at its point; beyond the axis at its edge, with the value and an arrow."""
    mean = row.chosen.mean
    beyond = (
        f"  {edges.number(mean, numbers.decimal_places(summary))} {'↑' if mean > high else '↓'}"
        if not low <= mean <= high
        else ""
    )
    name = shorten(plans.label(row, rows), LONGEST)
    colour = plans.colour(summary, row)
    return Label(math.log10(row.cost), min(max(mean, low), high), name + note + beyond, colour, row.kind == "rule")


def _set_cost_axis(axes: Axes, rows: Sequence[Row], cheapest: Sequence[Label], named: Sequence[Label]) -> None:
    """Set the cost axis, with room left for the names of the cheapest plans and right for the most expensive."""
    logs = [math.log10(row.cost) for row in rows]
    low, high = min(logs), max(max(logs), min(logs) + 0.3)
    across = labels.axes_size(axes)[0]
    left = min(max(labels.text_width(n.text, bold=n.bold) for n in cheapest) + 20, 0.5 * across)
    last = [labels.text_width(n.text, bold=n.bold) + 16 for n in named if n.x > high - 0.05 and n not in cheapest]
    right = min(max([24, *last]), 0.7 * across - left)
    scale = (high - low) / (across - left - right)
    axes.set_xlim(low - left * scale, high + right * scale)
    ticks = [m * 10**e for e in range(math.floor(low), math.ceil(high) + 1) for m in (1, 2, 5)]
    ticks = [t for t in ticks if low - 0.01 <= math.log10(t) <= min(high + right * scale, high + 0.35)]
    if len(ticks) > 7:
        ticks = [t for t in ticks if f"{t:e}".startswith("1")]
    axes.set_xticks([math.log10(t) for t in ticks], [f"{t:g}" for t in ticks])


def _shifts(axes: Axes, summary: Summary, rows: Sequence[Row]) -> list[float]:
    """Return how far, in points, plans of equal cost move aside so that none hides another; rules come first."""
    low, high = axes.get_ylim()
    order = sorted(range(len(rows)), key=lambda i: plans.role(summary, rows[i]) not in ("rule", "reference"))
    placed: list[tuple[float, float, float, float]] = []
    shifts = [0.0] * len(rows)
    for i in order:
        mean, deviation = rows[i].chosen.mean, rows[i].chosen.standard_deviation
        x = labels.to_points(axes, math.log10(rows[i].cost), mean)[0]
        bottom, top = (labels.to_points(axes, 0, mean + side * deviation)[1] + 7 * side for side in (-1, 1))
        if low <= mean <= high:
            taken = [s for u, v, w, s in placed if abs(u - x) < 4 and v < top and bottom < w]
            # No further than a third of the way to twice the cost, or the axis would mislead.
            room = (labels.to_points(axes, math.log10(2 * rows[i].cost), mean)[0] - x) / 3
            shifts[i] = min((room * n / 6 for n in range(7)), key=lambda s: (taken.count(s), s))
            placed.append((x, bottom, top, shifts[i]))
    return shifts


def _draw_point(axes: Axes, summary: Summary, row: Row, shift: float) -> list[Box]:
    """Draw a plan, and return the boxes that labels must avoid."""
    transforms = require("matplotlib.transforms", "matplotlib", "study")
    low, high = axes.get_ylim()
    mean, deviation, role = row.chosen.mean, row.chosen.standard_deviation, plans.role(summary, row)
    colour = plans.colour(summary, row)
    inside = low <= mean <= high
    x, y = math.log10(row.cost), min(max(mean, low), high)
    moved = axes.transData + transforms.ScaledTranslation(shift / 72, 0, style.root(axes).dpi_scale_trans)
    ends = [max(low, mean - deviation), min(high, mean + deviation)] if inside else [y, y]
    if inside:
        edges.draw_bar(axes, x, mean, deviation, colour, linewidth=1.3, alpha=0.8, transform=moved)
    axes.plot(
        [x],
        [y],
        marker=MARKERS[role] if inside else ("v" if mean < low else "^"),
        color=colour,
        markersize={"rule": 14, "reference": 8}.get(role, 7) if inside else 6,
        linestyle="none",
        transform=moved,
        clip_on=False,
        zorder=5 if role in ("rule", "reference") else 4,
        gid=f"plan {row.plan}: {plans.result(summary, row.chosen)}",
    )
    u, v = labels.to_points(axes, x, y)
    bottom, top = (labels.to_points(axes, x, end)[1] for end in ends)
    return [Box(u + shift - 6, v - 6, u + shift + 6, v + 6), Box(u + shift - 2, bottom, u + shift + 2, top)]


def _draw_expected_line(axes: Axes, points: Sequence[tuple[float, float]]) -> list[Box]:
    """Draw the expected result of trying some points, and return the boxes that labels must avoid."""
    if len(points) < 2:
        return []
    line, exits = edges.cut_line([(math.log10(cost), value) for cost, value in points], *axes.get_ylim())
    if not line:
        return []
    axes.plot(*zip(*line, strict=True), color=COLOURS["set"], linewidth=1.6, zorder=2, gid="expected")
    boxes = [edges.draw_arrow(axes, x, y, way, COLOURS["set"]) for (x, y), way in exits]
    for a, b in itertools.pairwise(line):
        if math.isnan(a[0]) or math.isnan(b[0]):
            continue
        (u, v), (s, t) = labels.to_points(axes, *a), labels.to_points(axes, *b)
        pieces = max(1, math.ceil(math.hypot(s - u, t - v) / 6))
        steps = [(u + (s - u) * p / pieces, v + (t - v) * p / pieces) for p in range(pieces + 1)]
        boxes += [Box(x - 2, y - 2, x + 2, y + 2) for x, y in steps]
    return boxes


def _line_label(axes: Axes, summary: Summary, points: Sequence[tuple[float, float]]) -> list[Label]:
    """Return the name of the grey line, at its first point within the axes."""
    low, high = axes.get_ylim()
    seen = [(math.log10(cost), value) for cost, value in points if low <= value <= high]
    if len(seen) < 2 or summary.reference is None:
        return []
    return [Label(*seen[0], f"part of {plans.base_name(summary.reference.plan)}", COLOURS["set"])]
