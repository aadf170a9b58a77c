"""Which samples: evenly over a set, shuffled by seed and epoch, dealt to steps and processes."""

from __future__ import annotations

import functools
import hashlib

import torch
from torch import Tensor


def evenly_spaced(count: int, wanted: int) -> list[int]:
    """At most so many of the indices below ``count``, evenly spaced.

    >>> evenly_spaced(10, 4)
    [1, 3, 6, 8]
    """
    few = min(count, wanted)
    return [(2 * i + 1) * count // (2 * few) for i in range(few)]


def seeded_generator(seed: int, what: str, number: int) -> torch.Generator:
    """A random generator that depends on the seed, on what is drawn, and on its number alone."""
    digest = hashlib.sha256(f"{seed} {what} {number}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))


@functools.lru_cache(maxsize=32)
def permutation(count: int, seed: int, what: str, number: int) -> Tensor:
    """The indices below ``count``, shuffled; drawn as :func:`seeded_generator` says."""
    return torch.randperm(count, generator=seeded_generator(seed, what, number))


def sample_numbers(step: int, batch: int, process: tuple[int, int]) -> range:
    """The numbers of the samples of a step in one process; all processes together have the next ones of a sequence.

    :param step: From 0.
    :param batch: Samples in a step and process.
    :param process: Rank and number of processes.

    >>> sample_numbers(1, 2, (0, 2)), sample_numbers(1, 2, (1, 2))
    (range(4, 6), range(6, 8))
    """
    rank, ranks = process
    first = (step * ranks + rank) * batch
    return range(first, first + batch)
