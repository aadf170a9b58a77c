"""Other weighting rules that need the losses alone, as TorchJD's scalarizers define them and the library's plans run.

Their sums differ (UW's start at 1/2 a term, DWA's sum to K + 1), which SGD feels; they are left as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch

from benchmarks.arena.rules.base import Rule, Seen, Settings

if TYPE_CHECKING:
    from torch import Tensor

EPOCHS = 20  # of DWA in a run
TINY = 1e-8  # added to FAMO's losses


class UW(Rule):
    """Uncertainty weighting: sum_i exp(-s_i) l_i / 2 + s_i / 2, the log-variances s trained with the model."""

    def start(self) -> None:
        self.log_variance = self.run.full(self.points, self.run.terms, 0.0)

    def parameters(self) -> list[Tensor]:
        return [self.log_variance]

    def weights(self) -> Tensor:
        return 0.5 * (-self.log_variance).exp()

    def gradients(self, seen: Seen) -> list[Tensor]:
        return [0.5 - self.weights() * seen.losses]


class IMTLL(Rule):
    """IMTL-L: sum_i exp(s_i) l_i - s_i, the log-scales s trained with the model."""

    def start(self) -> None:
        self.log_scale = self.run.full(self.points, self.run.terms, 0.0)

    def parameters(self) -> list[Tensor]:
        return [self.log_scale]

    def weights(self) -> Tensor:
        return self.log_scale.exp()

    def gradients(self, seen: Seen) -> list[Tensor]:
        return [self.weights() * seen.losses - 1]


class DWA(Rule):
    """Dynamic weight average: (K + 1) softmax(rate / T), rate the ratio of the mean losses of the last two epochs."""

    defaults: ClassVar[Settings] = {"temperature": 2.0}

    def start(self) -> None:
        run = self.run
        self._temperature = self.column("temperature")
        self._epoch = max(1, run.steps // EPOCHS)
        self.sums, self.newer, self.older = (run.full(self.points, run.terms, 0.0) for _ in range(3))
        self.epochs = torch.zeros((), dtype=torch.long, device=run.device)

    def observe(self, seen: Seen) -> None:
        # The epoch that ended before this step is averaged now, so that the weights below are already the new ones.
        ended = (seen.step > 0) & (seen.step % self._epoch == 0)
        self.older.copy_(torch.where(ended, self.newer, self.older))
        self.newer.copy_(torch.where(ended, self.sums / self._epoch, self.newer))
        self.sums.copy_(torch.where(ended, 0, self.sums) + seen.losses)
        self.epochs.add_(ended)

    def weights(self) -> Tensor:
        known = self.epochs >= 2
        rates = torch.where(known, self.newer / torch.where(known, self.older, 1), 1)
        return self.run.terms * torch.softmax(rates / self._temperature, dim=-1)


class FAMO(Rule):
    """FAMO: logits moved by an Adam of their own so that all log-losses fall alike; a batch late, as in the library.

    The weights are z_i / (l_i + eps), divided by their sum, with z = softmax(w): the gradient of c sum_i z_i log(l_i).
    """

    defaults: ClassVar[Settings] = {"lr": 0.025, "decay": 1e-3}

    def start(self) -> None:
        run = self.run
        self._lr, self._decay = self.column("lr"), self.column("decay")
        self.logits, self.first, self.second, self.before = (run.full(self.points, run.terms, 0.0) for _ in range(4))
        self.now = run.full(self.points, run.terms, 1.0)

    def observe(self, seen: Seen) -> None:
        self.before.copy_(self.now)
        self.now.copy_(seen.losses)
        moved = seen.step > 0
        change = (self.before + TINY).log() - (self.now + TINY).log()
        z = torch.softmax(self.logits, dim=-1)
        gradient = z * (change - (z * change).sum(-1, keepdim=True)) + self._decay * self.logits
        gradient = torch.where(moved, gradient, 0)
        # Adam with its usual constants; the steps so far are those of the model.
        self.first.lerp_(gradient, 1 - 0.9)
        self.second.mul_(0.999).addcmul_(gradient, gradient, value=1 - 0.999)
        count = seen.step.clamp_min(1)
        size = (self.second / (1 - 0.999**count)).sqrt() + 1e-8
        self.logits.sub_(torch.where(moved, self._lr * self.first / (1 - 0.9**count) / size, 0))

    def weights(self) -> Tensor:
        shares = torch.softmax(self.logits, dim=-1) / (self.now + TINY)
        return shares / shares.sum(-1, keepdim=True)
