"""Numbers as text, with as many digits as they deserve."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainonce.study.intervals import Interval
    from trainonce.study.summary import Outcome, Summary

MOST = 5  # decimals; smaller numbers are written with a power of ten
DIGITS = 10  # of a number with more decimals
RELIABLE = 12  # digits of a mean; a spread beyond them is rounding


def decimal_places(summary: Summary) -> int:
    """How many decimals the metric deserves: two digits of the usual spread over seeds."""
    return decimals_for([row.chosen for row in summary.ranked])


def decimals_for(outcomes: Sequence[Outcome]) -> int:
    """How many decimals some results deserve: two digits of their usual spread over seeds."""
    spreads = [spread for o in outcomes if (spread := _deviation(o)) > 0]
    return _decimals(statistics.median(spreads) if spreads else max((abs(o.mean) for o in outcomes), default=1) / 10)


def number(value: float, decimals: int) -> str:
    """A number with so many decimals; with many of them, no row of zeros before the first digit.

    >>> number(12.345, 1), number(0.0000312, 7), number(0.81239991, 7)
    ('12.3', '3.12e-05', '0.8123999')
    """
    if decimals <= MOST:
        return f"{value:.{decimals}f}"
    digits = math.floor(math.log10(abs(value))) + 1 + decimals if value and math.isfinite(value) else 1
    return f"{value:.{min(max(digits, 1), DIGITS)}g}"


def amount(value: float) -> str:
    """A number that stands for itself, such as a margin: three digits of it, and all that it has before the point.

    >>> amount(0.01), amount(1.0), amount(1.25), amount(99.6), amount(40000.0)
    ('0.01', '1', '1.25', '99.6', '40000')
    """
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def spread_of(low: float, high: float) -> str:
    """The range of some values with the digits in which its ends differ.

    >>> spread_of(0.68, 0.72), spread_of(82.31, 82.34), spread_of(0.7, 0.7)
    ('0.68 to 0.72', '82.31 to 82.34', '0.7')
    """
    if low == high:
        return amount(low)
    decimals = max(0, -math.floor(math.log10(high - low)))
    return f"{number(low, decimals)} to {number(high, decimals)}"


def mean_and_deviation(outcome: Outcome, decimals: int) -> str:
    """The mean and, with several seeds, the standard deviation.

    :param decimals: Those of the other results; a far wider spread has fewer.
    """
    if not outcome.report:
        return "no result"
    deviation = _deviation(outcome)
    decimals = _fewer(deviation, decimals)
    text = number(outcome.mean, decimals)
    return text if len(outcome.report) == 1 else f"{text} +- {number(deviation, decimals)}"


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
    decimals = max(_fewer(size, decimals), _decimals(size)) if size > 0 else decimals
    mean = _with_sign(found.mean, decimals)
    if found.seeds < 2:
        return mean
    return f"{mean} [{_with_sign(found.low, decimals)}, {_with_sign(found.high, decimals)}]"


def _with_sign(value: float, decimals: int) -> str:
    text = number(abs(value), decimals)
    return f"{'-' if value < 0 and float(text) else '+'}{text}"


def times(cost: float) -> str:
    return f"{cost:.0f}" if abs(cost - round(cost)) < 0.05 else f"{cost:.1f}"


def _deviation(outcome: Outcome) -> float:
    """The standard deviation, unless it is one of rounding only."""
    found = outcome.standard_deviation
    return found if found > 10.0**-RELIABLE * abs(outcome.mean) else 0.0


def _fewer(size: float, decimals: int) -> int:
    """The given decimals, or those of a size that would have more than three digits with them."""
    if not 0 < size < math.inf:
        return decimals
    own = 1 - math.floor(math.log10(size))
    return max(0, own) if own < decimals - 1 else decimals


def _decimals(size: float) -> int:
    """How many decimals show two digits of a number."""
    return max(0, 1 - math.floor(math.log10(size))) if 0 < size < math.inf else 1


def unit_of(summary: Summary) -> str:
    return f" {summary.task.unit}" if summary.task.unit else ""


def count_seeds(seeds: int) -> str:
    return "one seed" if seeds == 1 else f"{seeds} seeds"


def missing_seeds(outcome: Outcome) -> str:
    """Which seeds have no result, in brackets; nothing where all have."""
    parts = [f"diverged in {outcome.diverged} of {outcome.wanted} seeds"] if outcome.diverged else []
    parts += [f"{len(outcome.left_out)} of {outcome.wanted} seeds left out"] if outcome.left_out else []
    missing = outcome.wanted - len(outcome.report) - outcome.diverged - len(outcome.left_out)
    parts += [f"{missing} of {outcome.wanted} seeds missing"] if missing else []
    return f" ({', '.join(parts)})" if parts else ""
