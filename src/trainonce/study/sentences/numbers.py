"""Numbers as text, with as many digits as they deserve."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainonce.study.intervals import Interval
    from trainonce.study.summary import Outcome, Summary

MOST = 5  # decimals; smaller numbers are written with a power of ten


def decimal_places(summary: Summary) -> int:
    """How many decimals the metric deserves: two digits of the usual spread over seeds."""
    spreads = [row.chosen.standard_deviation for row in summary.ranked if row.chosen.standard_deviation > 0]
    size = statistics.median(spreads) if spreads else max((abs(r.chosen.mean) for r in summary.ranked), default=1) / 10
    return _decimals(size)


def number(value: float, decimals: int) -> str:
    """A number with so many decimals, or three digits of it where those would be a row of zeros.

    >>> number(12.345, 1), number(0.0000312, 7)
    ('12.3', '3.12e-05')
    """
    return f"{value:.{decimals}f}" if decimals <= MOST else f"{value:.3g}"


def amount(value: float) -> str:
    """A number that stands for itself, such as a margin: two digits of it, and no fewer than it has before the point.

    >>> amount(0.01), amount(1.0), amount(0.0123), amount(1234.5)
    ('0.01', '1', '0.012', '1234')
    """
    return f"{value:.2g}" if abs(value) < 100 else f"{value:.0f}"


def mean_and_deviation(outcome: Outcome, decimals: int) -> str:
    """The mean and, with several seeds, the standard deviation."""
    if not outcome.report:
        return "no result"
    text = number(outcome.mean, decimals)
    return text if len(outcome.report) == 1 else f"{text} +- {number(outcome.standard_deviation, decimals)}"


def interval(found: Interval | None, decimals: int) -> str:
    """A paired difference with its interval, with at least two digits of what separates its ends.

    >>> from trainonce.study.intervals import Interval
    >>> interval(Interval(-0.04, -0.05, -0.03, 3), 1), interval(Interval(1.0, -2.0, 4.0, 3), 1)
    ('-0.040 [-0.050, -0.030]', '+1.0 [-2.0, +4.0]')
    """
    if found is None:
        return ""
    wide = (found.high - found.low) / 2
    size = wide if 0 < wide < math.inf else abs(found.mean)
    decimals = max(decimals, _decimals(size)) if size > 0 else decimals
    mean = _with_sign(found.mean, decimals)
    if found.seeds < 2:
        return mean
    return f"{mean} [{_with_sign(found.low, decimals)}, {_with_sign(found.high, decimals)}]"


def _with_sign(value: float, decimals: int) -> str:
    text = number(abs(value), decimals)
    return f"{'-' if value < 0 and float(text) else '+'}{text}"


def times(cost: float) -> str:
    return f"{cost:.0f}" if abs(cost - round(cost)) < 0.05 else f"{cost:.1f}"


def _decimals(size: float) -> int:
    """How many decimals show two digits of a number."""
    return max(0, 1 - math.floor(math.log10(size))) if 0 < size < math.inf else 1
