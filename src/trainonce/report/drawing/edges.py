"""What lies beyond an axis: limits that suit most values, and an arrow, with a number, for each of the others."""

from __future__ import annotations

import itertools
import math
import statistics
from typing import TYPE_CHECKING, Any

from trainonce.report.drawing import labels, style
from trainonce.report.drawing.labels import Box, Label

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from matplotlib.axes import Axes

    from trainonce.study.summary import Outcome

FAR = 20  # times the usual distance to the median
STRIP = 22.0  # points at the end of a vertical axis, for arrows and their numbers
ARROWS = {"up": "^", "down": "v", "left": "<", "right": ">"}

Point = tuple[float, float]


def usual_range(values: Iterable[float]) -> tuple[float, float]:
    """Return the lowest and the highest value, without those so far off that the others would be drawn as one point.

    A value is far off at 20 times the distance to the median that two thirds of the values keep, and never within
    40 % of the median.

    >>> usual_range([0.70, 0.72, 0.71, 40_000.0]), usual_range([80.0, 90.0, 91.0])
    ((0.7, 0.72), (80.0, 91.0))
    """
    found = sorted(v for v in values if math.isfinite(v))
    middle = statistics.median(found)
    off = sorted(abs(v - middle) for v in found)
    reach = FAR * max(off[int(0.65 * (len(off) - 1))], 0.02 * abs(middle))
    kept = [v for v in found if abs(v - middle) <= reach]
    return (kept[0], kept[-1]) if kept else (found[0], found[-1])


def number(value: float, decimals: int) -> str:
    """Return a value beyond an axis, in few digits.

    >>> number(40_000.123, 3), number(11.0, 1), number(1.234e9, 0), number(-3.1e-8, 9)
    ('40000', '11.0', '1.23e+09', '-3.1e-08')
    """
    size = math.floor(math.log10(abs(value))) if value else 0
    return f"{value:.3g}" if size >= 6 or decimals > 5 else f"{value:.{min(decimals, max(0, 3 - size))}f}"


def signed(value: float, decimals: int) -> str:
    """Return a difference beyond an axis, with its sign."""
    text = number(value, decimals)
    return f"{style.MINUS}{text[1:]}" if text.startswith("-") else f"+{text}"


def set_height(axes: Axes, low: float, high: float, above: bool, below: bool) -> None:
    """Set the vertical limits, with room for arrows above and below the range."""
    up = labels.axes_size(axes)[1]
    unit = (high - low) / (up - STRIP * (above + below))
    axes.set_ylim(low - STRIP * unit * below, high + STRIP * unit * above)


def set_height_for(axes: Axes, shown: Sequence[Outcome], also: Sequence[Outcome] = ()) -> None:
    """Set the vertical limits for outcomes with their seeds and standard deviations, and for others without seeds."""
    ends = [o.mean + side * o.standard_deviation for o in [*shown, *also] for side in (-1, 0, 1)]
    values = [value for o in shown for value in o.report.values()]
    low, high = limits([*ends, *values])
    points = [*values, *(o.mean for o in [*shown, *also])]
    set_height(axes, low, high, max(points) > high, min(points) < low)


def describe_beyond(axes: Axes, outcome: Outcome, decimals: int) -> list[tuple[float, str]]:
    """Return the mean of an outcome if it is above or below the axes, or else its seeds that are, with texts."""
    low, high = axes.get_ylim()
    if not low <= outcome.mean <= high:
        return [(outcome.mean, f"mean {number(outcome.mean, decimals)}")]
    values = outcome.report.values()
    far = [v for v in (min(values), max(values)) if not low <= v <= high]
    return [(value, number(value, decimals)) for value in far]


def draw_arrow(axes: Axes, x: float, y: float, way: str, colour: str, **look: Any) -> Box:
    """Draw an arrowhead at a place, and return the box that labels must avoid."""
    usual: dict[str, Any] = {"markersize": 6, "linestyle": "none", "clip_on": False, "zorder": 4, "gid": "beyond"}
    axes.plot([x], [y], ARROWS[way], color=colour, **usual | look)
    u, v = labels.to_points(axes, x, y)
    return Box(u - 4, v - 4, u + 4, v + 4)


def draw_beyond(axes: Axes, x: float, value: float, text: str, colour: str) -> tuple[Label, Box]:
    """Draw the arrow of a value above or below the axes; returns the label with its number, and the arrow's box."""
    low, high = axes.get_ylim()
    box = draw_arrow(axes, x, high if value > high else low, "up" if value > high else "down", colour)
    return Label(x, high if value > high else low, text, colour), box


def draw_bar(axes: Axes, x: float, mean: float, deviation: float, colour: str, cap: float = 0.0, **look: Any) -> None:
    """Draw a vertical error bar around a mean within the axes; an end beyond them becomes an arrowhead.

    :param cap: The width of the line across each other end, in points.
    """
    if not deviation:
        return
    low, high = axes.get_ylim()
    ends = max(low, mean - deviation), min(high, mean + deviation)
    usual: dict[str, Any] = {"linewidth": 1.2, "gid": "error bar"}
    axes.plot([x, x], ends, color=colour, **usual | look)
    for end, way, whole in ((ends[0], "down", mean - deviation), (ends[1], "up", mean + deviation)):
        if end != whole:
            draw_arrow(axes, x, end, way, colour, **{k: v for k, v in look.items() if k == "transform"})
        elif cap:
            axes.plot([x], [end], "_", color=colour, markersize=cap, **{"gid": "cap"} | look)


def cut_line(points: Sequence[Point], low: float, high: float) -> tuple[list[Point], list[tuple[Point, str]]]:
    """Return a line within a range of heights, with gaps of NaN, and where it leaves, with "up" or "down".

    >>> cut_line([(0, 0), (1, 4), (2, 4), (3, 0)], -1, 2)
    ([(0, 0), (0.5, 2.0), (nan, nan), (2.5, 2.0), (3, 0)], [((0.5, 2.0), 'up'), ((2.5, 2.0), 'up')])
    """
    gap = (math.nan, math.nan)
    kept: list[Point] = [points[0]] if points and low <= points[0][1] <= high else []
    exits: list[tuple[Point, str]] = []
    for (a, u), (b, v) in itertools.pairwise(points):
        crossed = sorted(
            ((edge - u) / (v - u), edge) for edge in (low, high) if min(u, v) < edge < max(u, v)
        )  # of the way, in the order of the line
        for part, edge in crossed:
            place = (a + part * (b - a), float(edge))
            outwards = (v > u) == (edge == high)
            kept += [place, gap] if outwards else [place]
            exits.append((place, "up" if edge == high else "down"))
        kept += [(b, v)] if low <= v <= high else [gap] if math.isnan(v) else []
    return kept, exits


def limits(values: Iterable[float], part: float = 0.08) -> tuple[float, float]:
    """Return the limits of an axis for most of the values, with a margin."""
    return style.widen(usual_range(values), part)
