"""Seeds whose result is far from that of the others."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

FAR = 20  # times the usual width: in less than 1 % of plans with normally distributed results
FAR_ALONE = 200  # the same where there are not two other results to tell the usual width


def far_seeds(values: Mapping[int, float], other_widths: Sequence[float], margin: float) -> list[int] | None:
    """The seeds far from the median, which is near most of them; all where they are two halves far apart; else None.

    :param other_widths: The :func:`half_width` of other results of the study.
    :param margin: Differences up to this are small in any case.

    >>> far_seeds({0: 0.7, 1: 0.72, 2: 0.68, 3: 35000.0, 4: 40000.0}, [0.05, 0.04], 0.01)
    [3, 4]
    >>> far_seeds({0: 0.7, 1: 0.72, 2: 0.75}, [0.05, 0.04], 0.01)
    """
    if len(values) < 2:
        return None
    usual = max(statistics.median(other_widths) if other_widths else 0.0, margin)
    limit, own = FAR if len(other_widths) > 1 else FAR_ALONE, half_width(values.values())
    if len(values) % 2 == 0 and _are_apart(sorted(values.values()), limit, usual):
        return sorted(values)
    middle = statistics.median(values.values())
    far = [seed for seed, value in values.items() if abs(value - middle) > limit * max(own, usual)]
    return far or None


def _are_apart(ordered: Sequence[float], limit: float, usual: float) -> bool:
    """Whether the gap between the lower and the upper half is far wider than both, and than what is usual."""
    lower, upper = ordered[: len(ordered) // 2], ordered[len(ordered) // 2 :]
    widest = max(lower[-1] - lower[0], upper[-1] - upper[0], usual)
    return widest > 0 and upper[0] - lower[-1] > limit * widest


def half_width(values: Iterable[float]) -> float:
    """The width of the narrowest range that holds more than half of the values; outliers do not widen it.

    >>> half_width([1.0, 1.5, 2.25, 90.0, 80.0])
    1.25
    """
    ordered = sorted(values)
    half = len(ordered) // 2 + 1
    return min(high - low for low, high in zip(ordered, ordered[half - 1 :], strict=False))
