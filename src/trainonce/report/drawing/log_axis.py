"""A logarithmic axis with a place for 0, which grids of weights contain."""

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

    FLOOR = 1e-6  # what is smaller is drawn here

    def __init__(self, values: Iterable[float]) -> None:
        given = list(values)
        logs = [math.log10(max(v, self.FLOOR)) for v in given if 0 < v < math.inf] or [0.0]
        self.low, self.high = min(logs), max(logs)
        if self.high - self.low < 0.5:
            self.low, self.high = self.low - 0.5, self.high + 0.5
        self._gap = max(0.5, 0.14 * (self.high - self.low))
        self.has_zero, self.has_infinity = 0 in given, math.inf in given

    def __call__(self, value: float) -> float:
        if value == 0:
            return self.low - self._gap
        return self.high + self._gap if value == math.inf else math.log10(max(value, self.FLOOR))

    @property
    def limits(self) -> tuple[float, float]:
        air = 0.06 * (self.high - self.low)
        return (
            self.low - (self._gap if self.has_zero else 0) - air,
            self.high + (self._gap if self.has_infinity else 0) + air,
        )

    @property
    def ticks(self) -> list[tuple[float, str]]:
        first, last = math.ceil(self.low - 1e-9), math.floor(self.high + 1e-9)
        every = max(1, math.ceil((last - first + 1) / 7))
        steps = (
            (1.0,) if last - first >= 2 else (1.0, 2.0, 5.0) if last - first >= 1 else (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
        )
        values = [m * 10.0**e for e in range(first - 1, last + 2) if (e - first) % every == 0 for m in steps]
        shown = [(math.log10(v), f"{v:g}") for v in values if self.low - 1e-9 <= math.log10(v) <= self.high + 1e-9]
        zero = [(self(0), "0")] if self.has_zero else []
        return [*zero, *shown, *([(self(math.inf), "∞")] if self.has_infinity else [])]

    @property
    def breaks(self) -> list[float]:
        """Where the axis is interrupted."""
        return [self.low - self._gap / 2] * self.has_zero + [self.high + self._gap / 2] * self.has_infinity

    def apply(self, axes: Axes, which: str, reach: tuple[float, float] | None = None) -> None:
        """Give the axes ("x" or "y") limits, ticks and a dotted line at each break.

        :param reach: Show at least this range.
        """
        low, high = self.limits
        if reach is not None:
            low, high = min(low, reach[0]), max(high, reach[1])
        ticks, names = [at for at, _ in self.ticks], [name for _, name in self.ticks]
        if which == "x":
            axes.set_xlim(low, high)
            axes.set_xticks(ticks, names)
        else:
            axes.set_ylim(low, high)
            axes.set_yticks(ticks, names)
        for at in self.breaks:
            draw = axes.axvline if which == "x" else axes.axhline
            draw(at, color=INK, linewidth=0.8, linestyle=(0, (1, 3)), alpha=0.7)
