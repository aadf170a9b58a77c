"""Which gradients a pair of losses is compared at."""

import pytest
import torch

from trainonce.units.measurement import pairs


def found(*norms):
    """The pairs of losses whose gradients have these norms at each place; base first."""
    return pairs(torch.tensor(norms, dtype=torch.float64).square())


def expected(*rows):
    return torch.tensor(rows, dtype=torch.float64).sqrt()


def test_losses_are_compared_at_the_places_that_all_of_them_reach():
    torch.testing.assert_close(found([1, 2, 3], [4, 5, 0], [6, 0, 7]), expected([1, 16], [1, 36]))


def test_where_there_is_none_each_is_compared_at_what_it_shares_with_the_base():
    torch.testing.assert_close(found([1, 2, 0], [4, 0, 5], [0, 6, 7]), expected([1, 16], [4, 36]))


def test_where_a_loss_shares_nothing_with_the_base_both_norms_are_0():
    torch.testing.assert_close(found([1, 2, 0], [4, 5, 0], [0, 0, 6]), expected([5, 41], [0, 0]))


def test_a_loss_without_any_gradient_has_no_say_in_what_is_shared():
    """Else the others would be compared pair by pair, at more than what all of them share."""
    torch.testing.assert_close(found([1, 2, 3], [4, 5, 0], [6, 0, 7], [0, 0, 0]), expected([1, 16], [1, 36], [1, 0]))


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize(("rest", "is_reached"), [(0.9e-6, False), (1.1e-6, True)])
def test_what_rounding_leaves_of_a_gradient_that_is_0_does_not_count(rest, is_reached, scale):
    """A millionth of the whole norm of that loss: float32 leaves less, and no layer that is trained has as little."""
    both = found([1, 2], [3 * scale, rest * 3 * scale])
    base = 5 if is_reached else 1
    torch.testing.assert_close(both, torch.tensor([[base**0.5, 3 * scale]], dtype=torch.float64))
