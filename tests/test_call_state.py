"""What a criterion keeps between calls: made once, and again where device or precision change."""

import torch

from trainonce.call_state import PATTERNS, CallState

CPU, META = torch.device("cpu"), torch.device("meta")


def test_the_bases_exponent_is_made_once_for_each_precision_and_device():
    state, like = CallState(), torch.ones(3)
    zero = state.base_exponent(like)
    assert zero.tolist() == [0.0]
    assert state.base_exponent(like) is zero
    assert state.base_exponent(like.double()).dtype == torch.float64
    assert state.base_exponent(like.double().to(META)).is_meta


def test_a_pattern_of_absent_terms_is_made_once_for_each_device():
    state = CallState()
    found = state.mark_present((0, 2), 3, CPU)
    assert (found.mask.tolist(), found.indices.tolist()) == ([True, False, True], [0, 2])
    assert state.mark_present((0, 2), 3, CPU) is found
    assert state.mark_present((0, 2), 3, META).indices.is_meta


def test_many_patterns_do_not_pile_up():
    state = CallState()
    patterns = [(i, j) for i in range(20) for j in range(20, 40)]
    for pattern in patterns[:PATTERNS]:
        state.mark_present(pattern, 40, CPU)
    assert len(state._patterns) == PATTERNS
    state.mark_present(patterns[PATTERNS], 40, CPU)
    assert len(state._patterns) == 1
