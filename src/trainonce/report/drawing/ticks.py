"""Tick labels: plain numbers with as many digits as tell them apart, no more of them than fit."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

from trainonce.extras import require
from trainonce.report.drawing import labels
from trainonce.report.drawing.style import MINUS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

SIZE = 9.5  # points


def texts(values: Sequence[float]) -> list[str]:
    """Return the values as numbers, each with its own power of 10 where they are very large or small.

    >>> texts([0, 0.5, 1]), texts([0, 2e-8]), texts([1e9, 1.00001e9]), texts([-20_000, 0])
    (['0.0', '0.5', '1.0'], ['0', '2e-08'], ['1e+09', '1.00001e+09'], ['−20000', '0'])
    """
    largest = max(map(abs, values), default=0.0)
    step = min((b - a for a, b in itertools.pairwise(sorted(values)) if b > a), default=largest) or 1.0
    if 1e-3 <= largest < 1e6:
        decimals = max(0, -math.floor(math.log10(step) + 1e-9))
        decimals += abs(step * 10**decimals - round(step * 10**decimals)) > 1e-6  # such as a step of 0.25
        written = [f"{value:.{decimals}f}" for value in values]
    else:
        digits = 3 + max(0, math.floor(math.log10(largest / step) + 1e-9)) if largest else 1
        written = [f"{0.0 if abs(value) < 1e-9 * step else value:.{digits}g}" for value in values]
    return [text.replace("-", MINUS, 1) if text.startswith("-") else text for text in written]


def fit(axes: Axes, low: float, high: float, stay_inside: bool = False) -> None:
    """Give the horizontal axis as many round ticks between two values as there is room for.

    :param stay_inside: Leave out a last label that would reach beyond the axes, and not only beyond the figure.
    """
    ticker = require("matplotlib.ticker", "matplotlib", "study")
    level = axes.get_ylim()[0]
    start, end = (labels.to_points(axes, x, level)[0] for x in (low, high))
    edge = end if stay_inside else labels.right_edge(axes)
    for count in range(8, 0, -1):
        places = [t for t in ticker.MaxNLocator(count).tick_values(low, high) if low <= t <= high]
        names = texts(places)
        if names and labels.to_points(axes, places[-1], level)[0] + labels.text_width(names[-1], SIZE) / 2 > edge:
            places, names = places[:-1], names[:-1]
        if sum(labels.text_width(name, SIZE) + 10 for name in names) <= end - start:
            break
    axes.set_xticks(places, names)


def fit_height(axes: Axes, count: int = 3) -> None:
    """Give the vertical axis of a small panel a few round ticks."""
    ticker = require("matplotlib.ticker", "matplotlib", "study")
    low, high = axes.get_ylim()
    places = [t for t in ticker.MaxNLocator(count).tick_values(low, high) if low <= t <= high]
    axes.set_yticks(places, texts(places))


def thin(axes: Any, room: float) -> None:
    """Leave out labels of the horizontal axis, evenly, until they fit into so many points."""
    places, names = list(axes.get_xticks()), [label.get_text() for label in axes.get_xticklabels()]
    every = 1
    while every < len(names) and sum(labels.text_width(name, SIZE) + 8 for name in names[::every]) > room:
        every += 1
    axes.set_xticks(places[::every], names[::every])
