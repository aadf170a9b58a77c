import math

import pytest
import torch

from trainonce.units import rule


def pair(base, own):
    return torch.tensor([[base, own]], dtype=torch.float64)


def test_the_running_norm_is_a_root_mean_square():
    found = rule.running(pair(3.0, 1.0), pair(5.0, 7.0), keep=0.25)
    expected = [math.sqrt(0.25 * 9 + 0.75 * 25), math.sqrt(0.25 * 1 + 0.75 * 49)]
    torch.testing.assert_close(found, pair(*expected))


def test_the_first_measurement_counts_in_full():
    assert torch.equal(rule.running(pair(math.nan, math.nan), pair(2.0, 4.0), keep=0.9), pair(2.0, 4.0))


@pytest.mark.parametrize("bad", [0.0, math.nan, math.inf])
@pytest.mark.parametrize("which", ["base", "own"])
def test_a_norm_that_says_nothing_changes_neither_of_the_pair(bad, which):
    measured = pair(bad, 4.0) if which == "base" else pair(4.0, bad)
    assert torch.equal(rule.running(pair(3.0, 1.0), measured, keep=0.5), pair(3.0, 1.0))


@pytest.mark.parametrize(("blend", "expected"), [(0.0, 10 / 4), (1.0, 6 / 0.5), (0.5, math.sqrt(10 / 4 * 6 / 0.5))])
def test_the_blend_lies_between_peak_and_running_norm(blend, expected):
    found = rule.ratios(pair(6.0, 0.5), pair(10.0, 4.0), blend, limit=1e6)
    torch.testing.assert_close(found, torch.tensor([expected], dtype=torch.float64))


@pytest.mark.parametrize(("left", "expected"), [(1e-9, 10.0), (1.0, 0.1)])
def test_the_limit_holds_the_weight_near_the_ratio_of_the_peaks(left, expected):
    """A term without gradient would run away; a base without any would silence the others."""
    norms = pair(1.0, left) if left < 1 else pair(1e-9, left)
    found = rule.ratios(norms, pair(1.0, 1.0), blend=1.0, limit=10.0)
    torch.testing.assert_close(found, torch.tensor([expected], dtype=torch.float64))


def test_without_a_measurement_the_ratio_is_1():
    nothing = pair(math.nan, math.nan)
    assert rule.ratios(nothing, nothing, blend=0.5, limit=10.0).tolist() == [1.0]


def test_the_ratio_undoes_the_scale_of_a_loss():
    norms, peaks, scale = pair(6.0, 0.5), pair(10.0, 4.0), torch.tensor([[1.0, 128.0]], dtype=torch.float64)
    plain, scaled = (rule.ratios(norms * s, peaks * s, 0.3, 10.0) for s in (1, scale))
    torch.testing.assert_close(128 * scaled, plain)


def test_batches_of_pairs_are_independent():
    many = torch.rand(3, 5, 2, 2, dtype=torch.float64)
    peaks = many * 2
    whole = rule.ratios(rule.running(many, many.flip(0), 0.5), peaks, 0.5, 10.0)
    one = rule.ratios(rule.running(many[1, 4], many.flip(0)[1, 4], 0.5), peaks[1, 4], 0.5, 10.0)
    torch.testing.assert_close(whole[1, 4], one)
