"""A logarithmic axis with a place for 0, which grids contain."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from trainonce.report.drawing.style import INK

if TYPE_CHECKING:
    from collections.abc import Iterable

    from matplotlib.axes import Axes


class LogScale:
    """Positions on a logarithmic axis, in powers of 10, with a place of its own for 0 and one for infinity.

    >>> scale = LogScale([0, 0.01, 1])
    >>> scale(1), scale(0.01), scale(0) < scale(0.01)
    (0.0, -2.0, True)
    """

    REACH = 20  # powers of 10 to both sides of the median; what is further off is drawn there

    def __init__(self, values: Iterable[float]) -> None:
        given = list(values)
        logs = sorted(math.log10(v) for v in given if 0 < v < math.inf) or [0.0]
        middle = logs[len(logs) // 2]
        self._ends = middle - self.REACH, middle + self.REACH
        self.low, self.high = max(logs[0], self._ends[0]), min(logs[-1], self._ends[1])
        if self.high - self.low < 0.5:
            self.low, self.high = self.low - 0.5, self.high + 0.5
        self._gap = max(0.5, 0.14 * (self.high - self.low))
        self.has_zero, self.has_infinity = 0 in given, math.inf in given

    def __call__(self, value: float) -> float:
        if value == 0:
            return self.low - self._gap
        if value == math.inf:
            return self.high + self._gap
        return min(max(math.log10(value), self._ends[0]), self._ends[1]) if value > 0 else math.nan

    def text(self, place: float) -> str:
        """Return the value at a position as text."""
        inside = self.low - self._gap / 2 <= place <= self.high + self._gap / 2
        return f"{10**place:.2g}" if inside else "0" if place < self.low else "∞" if place > self.high else ""

    @property
    def limits(self) -> tuple[float, float]:
        air = 0.06 * (self.high - self.low)
        return (
            self.low - (self._gap if self.has_zero else 0) - air,
            self.high + (self._gap if self.has_infinity else 0) + air,
        )

    def ticks(self, most: int = 7) -> list[tuple[float, str]]:
        """Return at most so many round values of the axis with their texts, besides 0 and infinity."""
        first, last = math.ceil(self.low - 1e-9), math.floor(self.high + 1e-9)
        every = max(1, math.ceil((last - first + 1) / most))
        steps: tuple[float, ...] = (1, 1.5, 2, 3, 5, 7) if last <= first else (1, 2, 5) if last == first + 1 else (1,)
        if most < len(steps) * (last - first + 1):
            steps = (1, 3) if last <= first else (1,)
        values = [m * 10.0**e for e in range(first - 1, last + 2) if (e - first) % every == 0 for m in steps]
        shown = [(math.log10(v), f"{v:g}") for v in values if self.low - 1e-9 <= math.log10(v) <= self.high + 1e-9]
        zero = [(self(0), "0")] if self.has_zero else []
        return [*zero, *shown, *([(self(math.inf), "∞")] if self.has_infinity else [])]

    @property
    def breaks(self) -> list[float]:
        """Return where the axis is interrupted."""
        return [self.low - self._gap / 2] * self.has_zero + [self.high + self._gap / 2] * self.has_infinity

    def apply(self, axes: Axes, which: str, reach: tuple[float, float] | None = None, most: int = 7) -> None:
        """Give the axes ("x" or "y") limits, ticks and a dotted line at each break.

        :param reach: Show at least this range.
        """
        low, high = self.limits
        if reach is not None:
            low, high = min(low, reach[0]), max(high, reach[1])
        ticks, names = map(list, zip(*self.ticks(most), strict=True))
        if which == "x":
            axes.set_xlim(low, high)
            axes.set_xticks(ticks, names)
        else:
            axes.set_ylim(low, high)
            axes.set_yticks(ticks, names)
        for at in self.breaks:
            draw = axes.axvline if which == "x" else axes.axhline
            draw(at, color=INK, linewidth=0.8, linestyle=(0, (1, 3)), alpha=0.7)
