"""What is random in each step of each seed, drawn on the CPU from the states that a single training would have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from trainonce import random_states
from trainonce.study.stacked import reasons

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trainonce.study.stacked.models import Random
    from trainonce.study.stacked.stackable import Stackable

CPU = torch.device("cpu")


class RandomNumbers:
    """The parts of each seed, with its global random state put in place for whatever draws from it."""

    def __init__(self, make: Callable[[int], Stackable], seeds: Sequence[int]) -> None:
        self._make, self._seeds = make, seeds
        self.parts: list[Stackable] = []
        self._states = []
        for seed in seeds:
            random_states.seed_everything(seed)
            self.parts.append(make(seed))
            self._states.append(random_states.collect(CPU))

    def peek(self) -> dict[str, Tensor]:
        """Like what the first seed will draw next; its random numbers are drawn again afterwards."""
        return draw(self._make(self._seeds[0]))

    def draw(
        self, masks: Sequence[Random], dtype: torch.dtype
    ) -> tuple[list[dict[str, Tensor]], list[dict[str, Tensor]]]:
        """Of the next step: what each seed's ``draw`` gives, and then its dropouts' masks."""
        drawn, dropped = [], []
        for i, part in enumerate(self.parts):
            random_states.put_back(self._states[i], CPU)
            drawn.append(draw(part))
            dropped.append({m.name: F.dropout(m.ones.to(dtype), m.p) for m in masks})
            self._states[i] = random_states.collect(CPU)
        return drawn, dropped


def draw(parts: Stackable) -> dict[str, Tensor]:
    """What the next step of a seed gets."""
    try:
        drawn = dict(parts.draw())
    except StopIteration:
        raise reasons.NotStackableError("draw ran out of batches; it must give one for each step") from None
    for name, value in drawn.items():
        if why := reasons.of_tensors("draw", name, [value]):
            raise reasons.NotStackableError(why)
    return drawn
