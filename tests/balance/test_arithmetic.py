"""The arithmetic of gradient balance: norms, ratios, when to measure, alignment; and which gradients are compared."""

import itertools
import math

import pytest
import torch

from trainonce.balance import arithmetic
from trainonce.balance.measure import pairs


def pair(base, own):
    return torch.tensor([[base, own]], dtype=torch.float64)


def test_the_running_norm_is_a_root_mean_square():
    found = arithmetic.running(pair(3.0, 1.0), pair(5.0, 7.0), keep=0.25)
    torch.testing.assert_close(found, pair(math.sqrt(0.25 * 9 + 0.75 * 25), math.sqrt(0.25 * 1 + 0.75 * 49)))
    first = arithmetic.running(pair(math.nan, math.nan), pair(2.0, 4.0), keep=0.9)
    assert torch.equal(first, pair(2.0, 4.0))  # the first measurement counts in full


@pytest.mark.parametrize("bad", [0.0, math.nan, math.inf])
@pytest.mark.parametrize("which", ["base", "own"])
def test_a_norm_that_says_nothing_changes_neither_of_the_pair(bad, which):
    measured = pair(bad, 4.0) if which == "base" else pair(4.0, bad)
    assert torch.equal(arithmetic.running(pair(3.0, 1.0), measured, keep=0.5), pair(3.0, 1.0))


@pytest.mark.parametrize(
    ("norms", "peaks", "follow", "limit", "expected"),
    [
        ((6.0, 0.5), (10.0, 4.0), 0.0, 1e6, 10 / 4),
        ((6.0, 0.5), (10.0, 4.0), 1.0, 1e6, 6 / 0.5),
        ((6.0, 0.5), (10.0, 4.0), 0.5, 1e6, math.sqrt(10 / 4 * 6 / 0.5)),
        ((1.0, 1e-9), (1.0, 1.0), 1.0, 10.0, 10.0),  # a term without gradient would run away
        ((1e-9, 1.0), (1.0, 1.0), 1.0, 10.0, 0.1),  # a base without any would silence the others
        ((math.nan, math.nan), (math.nan, math.nan), 0.5, 10.0, 1.0),
    ],
)
def test_the_ratio_lies_between_that_of_the_peaks_and_that_of_the_norms(norms, peaks, follow, limit, expected):
    found = arithmetic.strength_ratios(pair(*norms), pair(*peaks), follow, limit)
    torch.testing.assert_close(found, torch.tensor([expected], dtype=torch.float64))


def test_the_ratio_undoes_the_scale_of_a_loss_and_leading_dimensions_are_a_batch():
    norms, peaks = torch.rand(3, 5, 2, 2, dtype=torch.float64), torch.rand(3, 5, 2, 2, dtype=torch.float64) + 1
    scale = torch.tensor([1.0, 128.0], dtype=torch.float64)
    whole = arithmetic.strength_ratios(norms, peaks)
    torch.testing.assert_close(128 * arithmetic.strength_ratios(norms * scale, peaks * scale), whole)
    torch.testing.assert_close(arithmetic.strength_ratios(norms[1, 4], peaks[1, 4]), whole[1, 4])


@pytest.mark.parametrize(("steps", "said"), [(1000, 93), (10_000, 140), (100_000, 187)])
def test_as_many_steps_measure_as_the_docs_say(steps, said):
    step, found = 0, 0
    while step < steps:
        step, found = arithmetic.next_measurement(step), found + 1
    assert found == said


def test_alignment_keeps_the_mean_cosine_and_moves_by_the_rate():
    a, cosines = torch.tensor([[0.0, 1.0], [0.5, 0.0]]), torch.tensor([[0.9, 0.1, -0.2], [0.3, 0.3, 0.3]])
    moved = arithmetic.align(a, cosines, 0.1) - a
    assert moved[0, 1] < moved[0, 0]  # what points away more loses more
    torch.testing.assert_close(moved[1], torch.zeros(2))
    torch.testing.assert_close(arithmetic.align(a, cosines, 0.2) - a, 2 * moved)


@pytest.mark.parametrize(
    ("steps", "travel", "whole"), [(100, None, 4.0), (100, 2.0, 2.0), (None, None, 0.3 * math.log(101))]
)
def test_the_travel_of_all_measurements_adds_up(steps, travel, whole):
    places = [0, 1, 7, 50, 100]
    parts = [arithmetic.travelled(*two, steps, travel) for two in itertools.pairwise(places)]
    assert sum(parts) == pytest.approx(whole)
    assert steps is None or arithmetic.travelled(100, 150, steps, travel) == 0


# At which places two losses are compared


@pytest.mark.parametrize(
    ("norms", "squares"),
    [
        ([[1, 2, 3], [4, 5, 0], [6, 0, 7]], [[1, 16], [1, 36]]),  # where all meet
        ([[1, 2, 0], [4, 0, 5], [0, 6, 7]], [[1, 16], [4, 36]]),  # nowhere: each where it meets the base
        ([[1, 2, 0], [4, 5, 0], [0, 0, 6]], [[5, 41], [0, 0]]),  # one that shares nothing
        ([[1, 2, 3], [4, 5, 0], [6, 0, 7], [0, 0, 0]], [[1, 16], [1, 36], [1, 0]]),  # one without any has no say
    ],
)
def test_places_where_losses_are_compared(norms, squares):
    found = pairs(torch.tensor(norms, dtype=torch.float64).square())
    torch.testing.assert_close(found, torch.tensor(squares, dtype=torch.float64).sqrt())


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize(("rest", "is_reached"), [(0.9e-6, False), (1.1e-6, True)])
def test_what_rounding_leaves_of_a_gradient_that_is_0_does_not_count(rest, is_reached, scale):
    found = pairs(torch.tensor([[1, 2], [3 * scale, rest * 3 * scale]], dtype=torch.float64).square())
    assert found[0, 0].item() == pytest.approx((5 if is_reached else 1) ** 0.5)
