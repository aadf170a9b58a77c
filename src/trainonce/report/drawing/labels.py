"""Labels next to what they name, none on top of another."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

from trainonce.extras import require
from trainonce.report.drawing.style import INK, SMALL, ignore_missing_glyphs, root

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

LINE = 12.5  # points from one label to the next


class Box(NamedTuple):
    """A rectangle, in points from the lower left corner of the axes."""

    left: float
    bottom: float
    right: float
    top: float

    def overlap(self, other: Box) -> float:
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.top, other.top) - max(self.bottom, other.bottom)
        return width * height if width > 0 and height > 0 else 0.0


class Label(NamedTuple):
    """A text for the point (x, y), in data coordinates."""

    x: float
    y: float
    text: str
    colour: str = INK
    bold: bool = False


@functools.lru_cache(maxsize=4096)
def text_width(text: str, size: float = SMALL, bold: bool = False) -> float:
    """Return the width of a text in points."""
    fonts = require("matplotlib.font_manager", "matplotlib", "study")
    paths = require("matplotlib.textpath", "matplotlib", "study")
    properties = fonts.FontProperties(family="sans-serif", size=size, weight="bold" if bold else "normal")
    with ignore_missing_glyphs():
        return float(paths.text_to_path.get_text_width_height_descent(text, properties, ismath=False)[0])


def axes_size(axes: Axes) -> tuple[float, float]:
    """Return the width and the height of the axes in points."""
    inches = root(axes).get_size_inches()
    place = axes.get_position()
    return float(place.width * inches[0] * 72), float(place.height * inches[1] * 72)


def left_edge(axes: Axes) -> float:
    """Return how far the axes are from the left edge of the figure, in points."""
    return float(axes.get_position().x0 * root(axes).get_size_inches()[0] * 72)


def right_edge(axes: Axes) -> float:
    """Return how far the right edge of the figure is from the left of the axes, in points."""
    return float(72 * root(axes).get_size_inches()[0]) - left_edge(axes)


def to_points(axes: Axes, x: float, y: float) -> tuple[float, float]:
    """Data coordinates in points from the lower left corner of the axes."""
    across, up = axes_size(axes)
    u, v = axes.transLimits.transform(axes.transScale.transform((x, y)))
    return float(u * across), float(v * up)


def keep_apart(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return positions at least ``gap`` apart, in the order of the wanted ones and as near to them as possible.

    >>> keep_apart([1, 1, 9], 2, 0, 10)
    [0.0, 2.0, 9.0]
    """
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    gap = min(gap, (high - low) / max(1, len(order) - 1))
    blocks: list[list[float]] = []  # each [sum of wanted starts, count]: neighbours that touch move as one
    for rank, i in enumerate(order):
        blocks.append([min(max(wanted[i], low), high) - rank * gap, 1])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] > blocks[-1][0] / blocks[-1][1]:
            total, count = blocks.pop()
            blocks[-1][0] += total
            blocks[-1][1] += count
    starts = [total / count for total, count in blocks for _ in range(int(count))]
    top = high - gap * (len(order) - 1)
    found = [0.0] * len(order)
    for rank, (i, start) in enumerate(zip(order, starts, strict=True)):
        found[i] = min(max(start, low), top) + rank * gap
    return found


def place_column(axes: Axes, labels: Sequence[Label], at: float, side: str, lines: Sequence[bool] = ()) -> list[Box]:
    """Write labels one below the other, at ``at`` points from the left of the axes, to that ``side`` of their points.

    :param lines: For each label whether a thin line leads to its point.
    """
    up = axes_size(axes)[1]
    places = [to_points(axes, label.x, label.y) for label in labels]
    heights = keep_apart([y for _, y in places], LINE, 0.4 * LINE, up - 0.4 * LINE)
    boxes = []
    for i, (label, (x, y), height) in enumerate(zip(labels, places, heights, strict=True)):
        long = text_width(label.text, bold=label.bold)
        left = at - long if side == "left" else at
        box = Box(left, height - LINE / 2, left + long, height + LINE / 2)
        boxes.append(_write(axes, label, box, "right" if side == "left" else "left"))
        if any(lines[i : i + 1]):
            _draw_leader(axes, (at + 2 if side == "left" else at - 2, height), (x, y), label.colour)
    return boxes


def place_beside(axes: Axes, labels: Sequence[Label], obstacles: Sequence[Box]) -> list[Box]:
    """Write each label at the best free place near its point, clear of obstacles and other labels."""
    across, up = axes_size(axes)
    taken, boxes = list(obstacles), []
    for label in labels:
        x, y = to_points(axes, label.x, label.y)
        long = text_width(label.text, bold=label.bold)
        best, penalty = None, float("inf")
        for lift in (0, 1, -1, 2, -2, 3, -3, 4, -4, 6, -6, 8, -8, 11, -11, 14, -14, 18, -18, 22, -22):
            middle = y + lift * LINE / 2
            for left in (x + 9, x - 9 - long, x - long / 2, x + 3, x - 3 - long, x + 24, x - 24 - long):
                box = Box(left, middle - LINE / 2, left + long, middle + LINE / 2)
                out = max(0, -box.left) + max(0, box.right - across) + max(0, -box.bottom) + max(0, box.top - up)
                cost = abs(lift) * 6 + abs(left + long / 2 - x) * 0.15 + 300 * out
                wide = box._replace(left=left - 2, right=left + long + 2)
                cost += sum(5 * wide.overlap(other) for other in taken)
                if cost < penalty:
                    best, penalty = box, cost
        assert best is not None
        middle = (best.left + best.right) / 2
        boxes.append(_write(axes, label, best, "left" if middle > x + 1 else "right" if middle < x - 1 else "center"))
        taken.append(best)
        middle = (best.bottom + best.top) / 2
        if abs(middle - y) > LINE:
            edge = min((best.left - 2, best.right + 2, (best.left + best.right) / 2), key=lambda e: abs(e - x))
            inside = best.left <= edge <= best.right
            end = middle if not inside else best.bottom if middle > y else best.top
            _draw_leader(axes, (edge, end), (x, y), label.colour)
    return boxes


def place_at_ends(axes: Axes, labels: Sequence[Label]) -> None:
    """Write the names of lines right of their ends, and extend the axes to hold them."""
    if not labels:
        return
    room = max(text_width(label.text, bold=label.bold) for label in labels) + 12
    low, high = axes.get_xlim()
    across = axes_size(axes)[0]
    axes.set_xlim(low, low + (high - low) * across / max(across - room, 0.3 * across))
    axes.spines["bottom"].set_bounds(low, high)
    inside = min(across - room, to_points(axes, high, 0)[0])
    place_column(axes, labels, inside + 9, "right")


def _write(axes: Axes, label: Label, box: Box, side: str) -> Box:
    """Put the label into its box, at the side that must stay where it is if another font is narrower."""
    at = {"left": box.left, "right": box.right, "center": (box.left + box.right) / 2}[side]
    axes.annotate(
        label.text,
        (0, 0),
        (at, (box.bottom + box.top) / 2),
        "axes fraction",
        "offset points",
        color=label.colour,
        fontsize=SMALL,
        fontweight="bold" if label.bold else "normal",
        ha=side,
        va="center",
        gid="label",
    )
    return box


def _draw_leader(axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str) -> None:
    across, up = axes_size(axes)
    xs, ys = ([p[i] / (across, up)[i] for p in (start, end)] for i in (0, 1))
    axes.plot(xs, ys, transform=axes.transAxes, color=colour, linewidth=0.6, alpha=0.55, zorder=1.5, gid="leader")
