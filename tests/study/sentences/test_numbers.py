"""Numbers keep the digits that matter: those of the interval and of the margin."""

import math

import pytest

from trainonce.study.intervals import Interval
from trainonce.study.sentences.numbers import amount, interval


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
    ("value", "text"), [(0.01, "0.01"), (0.0123, "0.012"), (1.0, "1"), (12.3, "12"), (2500.0, "2500")]
)
def test_a_margin_is_never_rounded_to_nothing(value, text):
    assert amount(value) == text
