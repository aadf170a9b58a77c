"""Rules that ask for the gradients of all terms at every step: GradNorm, ConFIG, UPGrad.

They see the Gram matrix of the gradients at the shared parameters; the weights they find there weigh the losses, and so
also the gradients of parameters that are not shared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch

from benchmarks.arena.rules.base import Rule, Seen, Settings
from benchmarks.arena.rules.small_systems import nearest_above, solve

if TYPE_CHECKING:
    from torch import Tensor

NORM_EPS = REG_EPS = 1e-4  # TorchJD's, of UPGrad
RIDGE = 1e-12  # parallel gradients have no unique solution; this finds the smallest, as a pseudoinverse does


class GradNorm(Rule):
    """GradNorm: weights (K + 1) softmax(s), s trained with the model so that all weighted norms go to their targets.

    The target of a term is the mean weighted norm times (its relative loss / the mean relative loss)^alpha; the
    objective is the sum of the distances, in which targets are constants. With softmax, as in LibMTL, weights stay
    positive and keep their sum.
    """

    defaults: ClassVar[Settings] = {"alpha": 1.5}
    places = ("all",)

    def start(self) -> None:
        self._alpha = self.column("alpha")
        self.logits = self.run.full(self.points, self.run.terms, 0.0)
        self.first = self.run.full(self.points, self.run.terms, 1.0)

    def parameters(self) -> list[Tensor]:
        return [self.logits]

    def observe(self, seen: Seen) -> None:
        self.first.copy_(torch.where(seen.step == 0, seen.losses, self.first))

    def weights(self) -> Tensor:
        return self.run.terms * torch.softmax(self.logits, dim=-1)

    def gradients(self, seen: Seen) -> list[Tensor]:
        norms = _gram(seen).diagonal(dim1=-2, dim2=-1).sqrt()
        weighted = self.weights() * norms
        relative = seen.losses / self.first
        relative = relative / relative.mean(-1, keepdim=True)
        target = weighted.mean(-1, keepdim=True) * relative**self._alpha
        slope = (weighted - target).sign() * norms  # of the objective, by weight
        z = torch.softmax(self.logits, dim=-1)
        return [self.run.terms * z * (slope - (z * slope).sum(-1, keepdim=True))]


class ConFIG(Rule):
    """ConFIG: the direction with equal cosines to all gradients, as long as the gradients' projections on it."""

    places = ("all",)

    def start(self) -> None:
        self._weights = self.run.full(self.points, self.run.terms, 0.0)

    def observe(self, seen: Seen) -> None:
        self._weights.copy_(config_weights(_gram(seen)))

    def weights(self) -> Tensor:
        return self._weights


class UPGrad(Rule):
    """UPGrad: the mean of the gradients, each projected on the cone of directions that no term conflicts with."""

    places = ("all",)

    def start(self) -> None:
        self._weights = self.run.full(self.points, self.run.terms, 0.0)

    def observe(self, seen: Seen) -> None:
        self._weights.copy_(upgrad_weights(_gram(seen)))

    def weights(self) -> Tensor:
        return self._weights


def config_weights(gram: Tensor) -> Tensor:
    """The weights of ConFIG from Gram matrices ``(..., m, m)``."""
    norms = gram.diagonal(dim1=-2, dim2=-1).double().sqrt()
    inverse = torch.where(norms > 0, 1 / norms, 0)
    cosines = gram.double() * inverse.unsqueeze(-1) * inverse.unsqueeze(-2)
    eye = torch.eye(gram.shape[-1], dtype=torch.float64, device=gram.device)
    v = solve(cosines + RIDGE * eye, torch.ones_like(norms)) * (norms > 0)
    products = (cosines @ v.unsqueeze(-1)).squeeze(-1)  # of the direction with the unit gradients
    length = (norms * products).sum(-1, keepdim=True) / (v * products).sum(-1, keepdim=True)
    return (length * v * inverse).to(gram.dtype)


def upgrad_weights(gram: Tensor) -> Tensor:
    """The weights of UPGrad from Gram matrices ``(..., m, m)``, regularized as TorchJD does."""
    count = gram.shape[-1]
    trace = gram.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
    eye = torch.eye(count, dtype=torch.float64, device=gram.device)
    scaled = torch.where(trace < NORM_EPS, 0, gram.double() / trace) + REG_EPS * eye
    floor = (eye / count).expand(*gram.shape[:-2], count, count)
    return nearest_above(scaled.unsqueeze(-3), floor).sum(-2).to(gram.dtype)


def _gram(seen: Seen) -> Tensor:
    if seen.measurement is None:
        raise RuntimeError("This rule measures at every step.")
    return seen.measurement.gram["all"]
