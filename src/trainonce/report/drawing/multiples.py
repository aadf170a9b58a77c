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

    from trainonce.report.drawing.log_axis import LogScale


COLUMNS = 3
MOST = 24  # panels of a figure
LEFT, RIGHT, TOP, BOTTOM = 0.52, 0.16, 0.98, 0.62  # inches around all panels
PANEL, APART, BELOW = 0.78, 0.14, 0.34  # the height of a panel, and the room beside and below it


def draw_multiples(
    lines: Mapping[str, Curve],
    title: str,
    above: str,
    below: str,
    set_width: Callable[[Axes], None],
    scale: LogScale | None = None,
) -> Figure:
    """Draw one panel for each line, with the others in grey; of very many lines those that end highest.

    :param set_width: Sets the horizontal limits and ticks of a panel.
    :param scale: The vertical axis, where the lines are in places on a logarithmic one.
    """
    known = {name: [v for v in line.mean if math.isfinite(v)] or [-math.inf] for name, line in lines.items()}
    largest = sorted(lines, key=lambda name: -known[name][-1])[:MOST]
    shown = [name for name in lines if name in largest]
    left_out = [name for name in lines if name not in largest]
    count = math.ceil(len(shown) / COLUMNS)
    height = TOP + BOTTOM + count * PANEL + (count - 1) * BELOW
    with style.panel(None, height=height) as first:
        panels = _place_panels(first, len(shown), height)
        span = edges.limits([v for line in lines.values() for side in line[1:4] for v in side if math.isfinite(v)])
        for number, (axes, name) in enumerate(zip(panels, shown, strict=True)):
            axes.set_ylim(*span)
            set_width(axes)
            if scale is not None:
                scale.apply(axes, "y", most=3)
            else:
                ticks.fit_height(axes)
            others = _join([lines[other] for other in shown if other != name])
            draw_within(axes, others, COLOURS["set"], "others", arrows=False, linewidth=0.6, alpha=0.5)
            draw_within(axes, lines[name], TERMS[0], f"line {name}", band=True, linewidth=2, zorder=3)
            value = scale.text(known[name][-1]) if scale is not None else f"{known[name][-1]:.2g}"
            value = value if math.isfinite(known[name][-1]) else ""
            _finish_panel(axes, name, value, number % COLUMNS == 0, number + COLUMNS >= len(shown))
        titles.head(first, title, above, lift=14)
        first.tick_params(length=2, labelsize=8)
        titles.name_below(panels[-1 - (len(shown) - 1) % COLUMNS], below, SMALL)
        if left_out:
            names = ", ".join(left_out)
            text = titles.fit(f"Not shown, since they end lower: {names}", 200, 72 * (style.WIDTH - 0.3), SMALL)
            style.root(first).text(0.02, 0.012, text, fontsize=SMALL, gid="left out")
    return style.root(first)


def _join(lines: list[Curve]) -> Curve:
    """Return several lines as one, with gaps between them."""
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


def _finish_panel(axes: Axes, name: str, value: str, leftmost: bool, lowest: bool) -> None:
    frame, value = ("axes fraction", "offset points"), value.replace("-", style.MINUS)
    room = labels.axes_size(axes)[0] - labels.text_width(value, 7.5) - 3
    axes.annotate(titles.fit(name, 24, room, 8.5), (0, 1), (0, 3), *frame, fontsize=8.5, gid="label")
    axes.annotate(value, (1, 1), (0, 3), *frame, fontsize=7.5, alpha=0.75, ha="right", gid="label")
    style.grid_lines(axes)
    axes.tick_params(length=2, width=0.8, labelsize=8, labelleft=leftmost, labelbottom=lowest)
