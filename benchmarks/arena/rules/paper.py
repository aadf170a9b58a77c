"""The paper's rule: weights softmax(0, mu), mu trained by the model's optimizer, with decoupled decay."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from benchmarks.arena.rules.base import Rule, Seen, Settings
from trainonce import functional

if TYPE_CHECKING:
    from torch import Tensor


class Paper(Rule):
    """``init``: the ratios to the base's weight at the start; ``rho``: the strength of the decay."""

    defaults: ClassVar[Settings] = {"init": 1.0, "rho": 2.0}

    def start(self) -> None:
        self.mu = self.run.full(self.points, self.run.terms - 1, 0.0) + self.column("init").log()
        self._rho = self.column("rho")
        self._pull = self.mu.clone()

    def parameters(self) -> list[Tensor]:
        return [self.mu]

    def weights(self) -> Tensor:
        return functional.weights(self.mu)

    def gradients(self, seen: Seen) -> list[Tensor]:
        self._pull.copy_(functional.regularizer_grad(self.mu))  # where mu was before the step
        return [functional.composite_grad(self.mu, seen.losses)]

    def after_step(self) -> None:
        self.mu.sub_(self._pull * (self._rho * self.run.lr))
