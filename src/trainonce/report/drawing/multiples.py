"""Small multiples: one small panel for each of many lines, all on the same scale."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from trainonce.report.drawing import edges, labels, style, ticks, titles
from trainonce.report.drawing.curves import Curve
from trainonce.report.drawing.over_steps import draw_within
from trainonce.report.drawing.style import COLOURS, SMALL, TERMS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


COLUMNS = 3
MOST = 24  # panels of a figure
LEFT, RIGHT, TOP, BOTTOM = 0.52, 0.16, 0.98, 0.62  # inches around all panels
PANEL, APART, BELOW = 0.78, 0.14, 0.34  # the height of a panel, and the room beside and below it


def draw_multiples(
    lines: Mapping[str, Curve], title: str, above: str, below: str, set_width: Callable[[Axes], None]
) -> Figure:
    """One panel for each line, with the others in grey; of very many lines those that end highest.

    :param set_width: Sets the horizontal limits and ticks of a panel.
    """
    known = {name: [v for v in line.mean if math.isfinite(v)] or [-math.inf] for name, line in lines.items()}
    largest = sorted(lines, key=lambda name: -known[name][-1])[:MOST]
    shown = [name for name in lines if name in largest]
    left_out = [name for name in lines if name not in largest]
    count = math.ceil(len(shown) / COLUMNS)
    height = TOP + BOTTOM + count * PANEL + (count - 1) * BELOW
    with style.panel(None, height=height) as first:
        panels = _place_panels(first, len(shown), height)
        span = _choose_scale(list(lines.values()))
        for number, (axes, name) in enumerate(zip(panels, shown, strict=True)):
            if span[0] > 0:
                axes.set_yscale("log")
            axes.set_ylim(*span)
            set_width(axes)
            others = _join([lines[other] for other in shown if other != name])
            draw_within(axes, others, COLOURS["set"], "others", arrows=False, linewidth=0.6, alpha=0.5)
            draw_within(axes, lines[name], TERMS[0], f"line {name}", band=True, linewidth=2, zorder=3)
            _finish_panel(axes, name, known[name][-1], number % COLUMNS == 0, number + COLUMNS >= len(shown))
        scale = " (log scale)" if span[0] > 0 else ""
        titles.head(first, title, f"{above}{scale}", lift=14)
        titles.name_below(panels[-1 - (len(shown) - 1) % COLUMNS], below, SMALL)
        if left_out:
            names = ", ".join(left_out)
            text = titles.fit(f"Not shown, since they end lower: {names}", 200, 72 * (style.WIDTH - 0.3), SMALL)
            style.root(first).text(0.02, 0.012, text, fontsize=SMALL, gid="left out")
    return style.root(first)


def _join(lines: list[Curve]) -> Curve:
    """Several lines as one, with gaps between them."""
    steps = [x for line in lines for x in (*line.steps, line.steps[-1])]
    mean = [y for line in lines for y in (*line.mean, math.nan)]
    return Curve(steps, mean, mean, mean, 1)


def _place_panels(first: Axes, count: int, height: float) -> list[Axes]:
    wide = (style.WIDTH - LEFT - RIGHT - (COLUMNS - 1) * APART) / COLUMNS
    figure, panels = style.root(first), [first]
    for number in range(count):
        left = LEFT + number % COLUMNS * (wide + APART)
        bottom = height - TOP - PANEL - number // COLUMNS * (PANEL + BELOW)
        place = (left / style.WIDTH, bottom / height, wide / style.WIDTH, PANEL / height)
        if number:
            panels.append(figure.add_axes(place))
        else:
            first.set_position(place)
    return panels


def _choose_scale(lines: list[Curve]) -> tuple[float, float]:
    """The common vertical limits; the lower one is positive where the axis is to be logarithmic."""
    values = [v for line in lines for side in (line.mean, line.low, line.high) for v in side if math.isfinite(v)]
    low, high = min(values), max(values)
    if low > 0 and high > 10 * low:
        return max(low, high / 1e4) / 1.2, high * 1.2
    if low >= 0:
        return 0.0, 1.08 * high or 1.0
    return edges.limits(values)


def _finish_panel(axes: Axes, name: str, last: float, leftmost: bool, lowest: bool) -> None:
    frame = ("axes fraction", "offset points")
    value = f"{last:.2g}".replace("-", style.MINUS) if math.isfinite(last) else ""
    room = labels.axes_size(axes)[0] - labels.text_width(value, 7.5) - 3
    axes.annotate(titles.fit(name, 24, room, 8.5), (0, 1), (0, 3), *frame, fontsize=8.5, gid="label")
    axes.annotate(value, (1, 1), (0, 3), *frame, fontsize=7.5, alpha=0.75, ha="right", gid="label")
    style.grid_lines(axes)
    ticks.fit_height(axes)
    axes.tick_params(length=2, width=0.8, labelsize=8, labelleft=leftmost, labelbottom=lowest)
