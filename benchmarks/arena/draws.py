"""The random part of every step, drawn on the CPU a chunk of steps at a time, so that every device sees the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from benchmarks.arena.task import Tensors

STEPS = 100  # of a chunk, at most
BYTES = 2**28  # of a chunk, about
OFFSET = 1_000_003  # the draws of a seed are not the numbers that made its first parameters


class Draws:
    """What ``task.draw`` gives to each seed, one chunk of steps in memory. ``at`` reads it without the host.

    The tensors of a chunk stay where they are when the next one is drawn, as a CUDA graph needs it.
    """

    def __init__(
        self, draw: Callable[[torch.Generator], Tensors], seeds: Sequence[int], to: Callable[[Tensor], Tensor]
    ) -> None:
        self._draw, self._to = draw, to
        self.generators = [torch.Generator().manual_seed(OFFSET + seed) for seed in seeds]
        self._chunk: Tensors = {}
        self.length = 0

    def fill(self, steps: int) -> None:
        """Draw the next chunk, of at most ``steps`` steps; ``length`` says how many."""
        if not self._chunk:
            size = _bytes_of_a_step(self._draw) * len(self.generators)
            self.length = max(1, min(STEPS, steps, BYTES // max(size, 1)))
        self.length = min(self.length, steps)
        drawn = [[self._draw(generator) for _ in range(self.length)] for generator in self.generators]
        for name in drawn[0][0]:
            stacked = torch.stack([torch.stack([step[name] for step in seed]) for seed in drawn])
            if name in self._chunk:
                self._chunk[name][:, : self.length].copy_(self._to(stacked))
            else:
                self._chunk[name] = self._to(stacked)

    def at(self, position: Tensor) -> Tensors:
        """The draws of the step at ``position``, shape ``(1,)``, within the chunk: tensors ``(S, ...)``."""
        return {name: chunk.index_select(1, position).squeeze(1) for name, chunk in self._chunk.items()}


def _bytes_of_a_step(draw: Callable[[torch.Generator], Tensors]) -> int:
    """From a generator of its own, so that no seed's draws move on."""
    return sum(value.numel() * value.element_size() for value in draw(torch.Generator().manual_seed(0)).values())
