"""Indices: evenly spaced, shuffled by seed, dealt to steps and processes."""

import itertools

import pytest
import torch

from trainonce.recipes.vision.indices import evenly_spaced, permutation, sample_numbers, seeded_generator


@pytest.mark.parametrize(("count", "wanted"), [(10, 4), (7, 7), (3, 9), (100, 1), (0, 5)])
def test_a_few_indices_lie_evenly(count, wanted):
    found = evenly_spaced(count, wanted)
    assert len(found) == min(count, wanted)
    assert found == sorted(set(found))
    assert all(0 <= index < count for index in found)
    if found:
        gaps = {b - a for a, b in itertools.pairwise(found)}
        assert max(gaps, default=0) - min(gaps, default=0) <= 1
        assert abs(found[0] - (count - 1 - found[-1])) <= 1  # as much is left before as behind


def test_a_generator_depends_on_seed_purpose_and_number_alone():
    def draw(*given):
        return torch.rand(3, generator=seeded_generator(*given)).tolist()

    first = draw(0, "sample", 1)
    torch.rand(2)
    assert draw(0, "sample", 1) == first
    assert (
        len({tuple(draw(*given)) for given in [(0, "sample", 1), (1, "sample", 1), (0, "epoch", 1), (0, "sample", 2)]})
        == 4
    )


def test_a_stored_training_sees_the_samples_it_has_seen():
    """These numbers decide what a checkpoint goes on with: a change of theirs breaks the resumption of old ones."""
    assert permutation(6, 0, "epoch", 0).tolist() == [1, 4, 0, 2, 3, 5]
    generator = seeded_generator(3, "sample", 7)
    assert torch.rand(2, generator=generator, dtype=torch.float64).tolist() == [
        0.3664602328932631,
        0.8879239729762805,
    ]


def test_a_permutation_has_every_index_once():
    assert sorted(permutation(9, 1, "epoch", 4).tolist()) == list(range(9))
    assert permutation(9, 1, "epoch", 4).tolist() != permutation(9, 1, "epoch", 5).tolist()


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_processes_share_a_sequence_without_gaps(ranks):
    dealt = [list(sample_numbers(step, 4, (rank, ranks))) for step in range(3) for rank in range(ranks)]
    assert [number for part in dealt for number in part] == list(range(3 * 4 * ranks))
