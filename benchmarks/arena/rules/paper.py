"""The paper's rule: weights softmax(0, mu), mu trained beside the model, with decoupled decay."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch

from benchmarks.arena.rules.base import Rule, Seen, Settings
from trainonce import functional, pace

if TYPE_CHECKING:
    from torch import Tensor


class Paper(Rule):
    """``init``: the ratios to the base's weight at the start; ``rho``: the strength of the decay.

    The model's optimizer moves the exponents at the model's rate, unless one of these is given: ``fold``, the pace of
    ``CompositeLoss(travel=)``, how far they may move for every factor e in the steps; or ``travel``, their rate times
    the steps, which falls as the model's. Then ``by`` moves them: ``adam``, or ``sgd`` with momentum.
    """

    defaults: ClassVar[Settings] = {"init": 1.0, "rho": 2.0, "travel": None, "fold": None, "by": "adam"}
    off: ClassVar[Settings] = {"travel": None, "fold": None, "by": "adam"}

    def start(self) -> None:
        self.mu = self.run.full(self.points, self.run.terms - 1, 0.0) + self.column("init").log()
        self._rho, self._travel, self._fold = self.column("rho"), self.column("travel"), self.column("fold")
        self._by_length, self._apart = self._travel.isfinite(), self._travel.isfinite() | self._fold.isfinite()
        self._by_adam = self.run.tensor([[float(s["by"] == "adam")] for s in self.settings]) > 0
        self._pull, self._before, self._gradient = self.mu.clone(), self.mu.clone(), torch.zeros_like(self.mu)
        self._mean, self._square, self._momentum = (torch.zeros_like(self.mu) for _ in range(3))
        self._step, self._first_lr = self.run.tensor(0.0), self.run.tensor(0.0)

    def parameters(self) -> list[Tensor]:
        return [self.mu]

    def weights(self) -> Tensor:
        return functional.weights(self.mu)

    def gradients(self, seen: Seen) -> list[Tensor]:
        self._step.copy_(seen.step)
        self._first_lr.copy_(torch.where(seen.step == 0, self.run.lr, self._first_lr))
        self._before.copy_(self.mu)
        self._pull.copy_(functional.regularizer_grad(self.mu))  # where mu was before the step
        self._gradient.copy_(functional.composite_grad(self.mu, seen.losses))
        return [self._gradient.clone()]

    def after_step(self) -> None:
        direction = pace.direction(self._gradient, self._mean, self._square, self._step)
        self._momentum.mul_(0.9).add_(self._gradient)
        of_length = self._travel / self.run.steps * (self.run.lr / self._first_lr)
        own = torch.where(self._by_length, of_length, pace.rate(self._fold, self._step))
        rate = torch.where(self._apart, own, self.run.lr)
        moved = self._before - torch.where(self._apart, own, 0.0) * torch.where(
            self._by_adam, direction, self._momentum
        )
        self.mu.copy_(torch.where(self._apart, moved, self.mu))
        self.mu.sub_(self._pull * (self._rho * rate))
