"""Standard deviations, the interval of a paired difference for small numbers of seeds, and what it says."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

LEVEL = 0.95
ROUNDING = 2.0**-23  # of float32, in which tasks compute most metrics


class Interval(NamedTuple):
    """A mean with its 95 % interval; without one (a single seed) both ends are infinite."""

    mean: float
    low: float
    high: float
    seeds: int

    @property
    def has_spread(self) -> bool:
        """Whether the seeds differ; without spread it is a coincidence, or a task that ignores its seed."""
        return self.low < self.high


def standard_deviation(values: Sequence[float]) -> float:
    """The standard deviation of a sample; 0 for a single value."""
    return statistics.stdev(values) if len(values) > 1 else 0.0


def paired_interval(differences: Sequence[float], rounding: float = 0.0) -> Interval:
    r"""The mean of paired differences with Student's interval :math:`\bar d \pm t_{n-1} s / \sqrt n`.

    :param rounding: A standard deviation or a mean up to this counts as 0.

    >>> low, high = paired_interval([1.0, 2.0, 3.0])[1:3]
    >>> round(low, 3), round(high, 3)
    (-0.484, 4.484)
    """
    n, mean, deviation = len(differences), statistics.fmean(differences), standard_deviation(differences)
    if n < 2:
        return Interval(mean, -math.inf, math.inf, n)
    if deviation <= rounding:
        same = mean if abs(mean) > rounding else 0.0
        return Interval(same, same, same, n)
    half = student_quantile(0.5 + LEVEL / 2, n - 1) * deviation / math.sqrt(n)
    return Interval(mean, mean - half, mean + half, n)


def verdict(found: Interval | None, margin: float) -> str:
    """What the interval of a difference, positive where the first is better, says against the margin.

    ``"better"`` and ``"worse"``: by more than the margin. ``"slightly better"`` and ``"slightly worse"``: perhaps by
    less than the margin. ``"not worse"``: by more than the margin, and perhaps equal or better. ``"undecided"``: none
    of these, or every seed gave the same difference, which says nothing of the spread. Nothing where there is no
    interval.

    >>> ends = [(2, 4), (0.2, 4), (0.2, 0.8), (-4, 4)]
    >>> [verdict(Interval((low + high) / 2, low, high, 5), 1.0) for low, high in ends]
    ['better', 'slightly better', 'not worse', 'undecided']
    """
    if found is None or found.seeds < 2:
        return ""
    if not found.has_spread and found.mean:
        return "undecided"
    if found.low > margin:
        return "better"
    if found.low > 0 and found.high > margin:
        return "slightly better"
    if found.low >= -margin:
        return "not worse"
    if found.high < -margin:
        return "worse"
    return "slightly worse" if found.high < 0 else "undecided"


def smallest_p(seeds: int) -> float:
    """The smallest two-sided p-value an exact paired (sign-flip) test of so many seeds can give."""
    return min(1.0, 2 * 0.5**seeds)


def student_quantile(probability: float, freedom: int) -> float:
    """The quantile of Student's distribution, above the median, by bisection.

    >>> round(student_quantile(0.975, 4), 4)
    2.7764
    """
    low, high = 0.0, 1.0
    while _student_cdf(high, freedom) < probability:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _student_cdf(middle, freedom) < probability else (low, middle)
    return (low + high) / 2


def _student_cdf(t: float, freedom: int) -> float:
    """The closed form for whole degrees of freedom (Abramowitz and Stegun 26.7.3 and 26.7.4), for t of at least 0."""
    angle = math.atan2(t, math.sqrt(freedom))
    cosine, sine = math.cos(angle), math.sin(angle)
    term, total = (cosine, 0.0) if freedom % 2 else (1.0, 0.0)
    for k in range(1 if freedom % 2 else 0, freedom - 1, 2):
        total += term
        term *= cosine * cosine * (k + 1) / (k + 2)
    inside = 2 / math.pi * (angle + sine * total) if freedom % 2 else sine * total
    return 0.5 + inside / 2
