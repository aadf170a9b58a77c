"""Weights that stay: points of the grid, equal weights, the base alone, random points for the searches."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, ClassVar

from benchmarks.arena.rules.base import Rule, Settings

if TYPE_CHECKING:
    from torch import Tensor


class Fixed(Rule):
    """Given ratios to the base's weight; the weights sum to 1. ``ratios`` may differ by seed: one list a seed."""

    defaults: ClassVar[Settings] = {"ratios": None}

    def start(self) -> None:
        rows = [[(1.0, *self.ratios(s, at)) for s in self.settings] for at in range(len(self.run.seeds))]
        weights = self.run.tensor(rows)
        self._weights = weights / weights.sum(-1, keepdim=True)

    def ratios(self, settings: Settings, at: int) -> list[float]:
        """Of the auxiliary terms, for the ``at``-th seed."""
        given = settings["ratios"]
        return given[at] if isinstance(given[0], list) else given

    def weights(self) -> Tensor:
        return self._weights


class Uniform(Fixed):
    """Equal weights."""

    defaults: ClassVar[Settings] = {}

    def ratios(self, settings: Settings, at: int) -> list[float]:
        return [1.0] * (self.run.terms - 1)


class Base(Fixed):
    """The base term alone."""

    defaults: ClassVar[Settings] = {}

    def ratios(self, settings: Settings, at: int) -> list[float]:
        return [0.0] * (self.run.terms - 1)


class Random(Fixed):
    """The ``n``-th random point of a seed: ratios log-uniform over the range of the grid."""

    defaults: ClassVar[Settings] = {"n": 0}

    def ratios(self, settings: Settings, at: int) -> list[float]:
        return log_uniform(f"{self.run.seeds[at]}/{settings['n']}", self.run.terms - 1)


def log_uniform(seed: str, auxiliary: int) -> list[float]:
    """Ratios over the range of the grid, from a seed of their own."""
    low, high = (math.log(value) for value in grid_range(auxiliary))
    draw = random.Random(seed)
    return [float(f"{math.exp(draw.uniform(low, high)):.4g}") for _ in range(auxiliary)]


def grid_range(auxiliary: int) -> tuple[float, float]:
    """The smallest and the largest ratio of the grid."""
    return (1e-3, 1e3) if auxiliary == 1 else (1e-2, 1e2)
