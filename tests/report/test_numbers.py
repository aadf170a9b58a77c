"""Numbers keep the digits that matter: those of the interval and of the margin."""

import math

import pytest

from trainonce.report.numbers import amount, interval, mean_and_deviation, spread_of
from trainonce.study.intervals import Interval
from trainonce.study.outcomes import Outcome


@pytest.mark.parametrize(
    ("mean", "half", "text"),
    [
        (-0.04, 0.01, "-0.040 [-0.050, -0.030]"),  # once "+0.0 [+0.0, +0.0]"
        (0.0, 0.003, "+0.0000 [-0.0030, +0.0030]"),
        (1.23, 0.5, "+1.23 [+0.73, +1.73]"),
        (10.0, 20.0, "+10.0 [-10.0, +30.0]"),
        (-2e-8, 1e-8, "-2e-08 [-3e-08, -1e-08]"),
        (0.0, 0.0, "+0.0 [+0.0, +0.0]"),  # every seed is the same
        (-0.04, 0.0, "-0.040 [-0.040, -0.040]"),
    ],
)
def test_an_interval_shows_two_digits_of_its_width(mean, half, text):
    assert interval(Interval(mean, mean - half, mean + half, 5), 1) == text


def test_a_difference_of_one_seed_keeps_its_sign():
    assert interval(Interval(-0.04, -math.inf, math.inf, 1), 1) == "-0.040"
    assert interval(None, 1) == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.01, "0.01"),
        (0.0123, "0.0123"),
        (1.0, "1"),
        (1.25, "1.25"),  # once "1.2"
        (12.3, "12.3"),
        (99.6, "99.6"),  # once "1e+02"
        (99.96, "100"),
        (2500.0, "2500"),
        (40000.0, "40000"),  # once "4e+04"
        (1e-7, "1e-07"),
    ],
)
def test_a_margin_is_never_rounded_to_nothing(value, text):
    assert amount(value) == text


@pytest.mark.parametrize(
    ("values", "decimals", "text"),
    [
        ((82.1, 82.5, 82.3), 1, "82.3 +- 0.2"),
        ((70.0, 94.0), 1, "82.0 +- 17.0"),
        ((0.7, 0.72, 0.68, 0.71, 40000.0), 2, "8001 +- 17888"),  # once "8000.56 +- 17888.32"
        ((99.9994, 99.9985), 1, "100.0 +- 0.0"),
        ((0.8123456, 0.8123457, 0.8123458), 8, "0.8123457 +- 1e-07"),  # once "0.812 +- 1e-07"
        ((80.1 + 0.2, 80.3, 80.2 + 0.1), 1, "80.3 +- 0.0"),  # equal but for rounding
        ((5.0,), 1, "5.0"),
    ],
)
def test_a_mean_has_the_digits_of_its_spread(values, decimals, text):
    outcome = Outcome("", None, {}, {}, dict(enumerate(values)), len(values))
    assert mean_and_deviation(outcome, decimals) == text


def test_an_interval_far_wider_than_the_usual_spread_has_no_decimals():
    assert interval(Interval(-7999.857, -30210.968, 14211.254, 5), 2) == "-8000 [-30211, +14211]"


@pytest.mark.parametrize(
    ("low", "high", "text"), [(0.68, 0.72, "0.68 to 0.72"), (0.7, 0.7, "0.7"), (9, 1234, "9 to 1234")]
)
def test_a_range_has_the_digits_in_which_its_ends_differ(low, high, text):
    assert spread_of(low, high) == text
