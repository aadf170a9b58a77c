"""The weights of all models of a stack: fixed, learned from raw losses, and in gradient units.

Each class holds some of the weightings for all seeds, and does what a criterion of its own, attached to the optimizer,
would do for each model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.func import vmap

from trainonce import functional
from trainonce.attachment import PRESETS
from trainonce.units import measurement, rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.optim import Optimizer

    from trainonce.study.weightings import Fixed, Learned


class Points:
    """Some weightings: ``exponents`` and what the losses are multiplied by, ``(S, P, K)`` and ``(S, P, K + 1)``."""

    exponents: Tensor
    units = False

    def factors(self) -> Tensor:
        """What the losses are multiplied by."""
        raise NotImplementedError

    def weights(self) -> Tensor:
        """The same, divided by their sum."""
        factors = self.factors()
        return factors / factors.sum(-1, keepdim=True)

    def join(self, optimizer: Optimizer) -> None:
        """Become part of the optimizer, before its schedule is made."""

    def set_gradients(self, losses: Tensor) -> None:
        """Give what the optimizer trains its gradient, from the losses of the step ``(S, P, K + 1)``."""

    def after_step(self) -> tuple[Tensor, Tensor]:
        """What the optimizer and the decay have added to the exponents."""
        return torch.zeros_like(self.exponents), torch.zeros_like(self.exponents)

    def extra_columns(self) -> Tensor:
        """What the history has beside losses, weights and exponents, ``(S, P, ...)``."""
        return self.exponents[..., :0]

    def rate(self, optimizer: Optimizer) -> float:
        """The learning rate that the history notes."""
        rate: float = optimizer.param_groups[0]["lr"]
        return float(rate)

    def advance(self) -> None:
        """Count a step."""


class FixedPoints(Points):
    """Weights that stay."""

    def __init__(self, weightings: Sequence[Fixed], seeds: int, like: Tensor) -> None:
        rows = like.new_tensor([weighting.weights for weighting in weightings])
        rows = rows / rows.sum(-1, keepdim=True)
        self._weights = rows.expand(seeds, *rows.shape)
        ratios = torch.where(rows[:, 1:] > 0, rows[:, 1:] / rows[:, :1], 0)
        self.exponents = ratios.log().expand(seeds, *ratios.shape)

    def factors(self) -> Tensor:
        return self._weights

    def weights(self) -> Tensor:
        return self._weights


class LearnedPoints(Points):
    """The paper's rule, for weightings with one learning rate of the exponents and one preset."""

    def __init__(self, weightings: Sequence[Learned], terms: Sequence[str], seeds: int, like: Tensor) -> None:
        start = starts(weightings, terms, like)
        self.exponents = nn.Parameter(start.repeat(seeds, 1, 1))
        self._decay = like.new_tensor([[weighting.decay] for weighting in weightings])
        self._lr, self._parts = weightings[0].lr, PRESETS[weightings[0].preset]  # type: ignore[index]
        self._group: dict[str, Any] = {}
        self._before = self._pull = torch.empty(0)

    def factors(self) -> Tensor:
        return functional.weights(self.exponents.detach())

    def weights(self) -> Tensor:
        return self.factors()

    def join(self, optimizer: Optimizer) -> None:
        first = {name: value for name, value in optimizer.param_groups[0].items() if name != "params"}
        rate = {} if self._lr is None else {"lr": self._lr}
        decay = {"weight_decay": 0.0} if "weight_decay" in first else {}
        optimizer.add_param_group({**first, **rate, **decay, "params": [self.exponents]})
        self._group = optimizer.param_groups[-1]

    def set_gradients(self, losses: Tensor) -> None:
        self._before = self.exponents.detach().clone()
        self._pull = functional.regularizer_grad(self._before, self._parts)
        self.exponents.grad = functional.composite_grad(self._before, losses).to(self._before)

    def after_step(self) -> tuple[Tensor, Tensor]:
        mu = self.exponents.detach()
        moved = mu.clone()
        mu.sub_(self._pull * self._decay * float(self._group["lr"]))
        return moved - self._before, mu - moved

    def rate(self, optimizer: Optimizer) -> float:
        return float(self._group["lr"])


class UnitPoints(Points):
    """Gradient units, whose exponents rest; measured by all weightings at the same steps."""

    units = True

    def __init__(
        self, weightings: Sequence[Learned], terms: Sequence[str], seeds: int, like: Tensor, reaches: Sequence[bool]
    ) -> None:
        settings = [weighting.gradient_units() for weighting in weightings]
        start = starts(weightings, terms, like)
        self.exponents = start.expand(seeds, *start.shape)
        self._held = functional.weights(self.exponents)[..., :1]  # the base's weight
        self._settings = settings[0]
        self._blend = like.new_tensor([[one.blend] for one in settings])
        self._limit = like.new_tensor([[one.limit] for one in settings])
        shape = (*self.exponents.shape, 2)
        self._norms, self._peaks = (like.new_full(shape, math.nan) for _ in range(2))
        alone = [not (reaches[0] and one) for one in reaches[1:]]
        self._raw = like.new_tensor([float(one) for one in alone])
        self._step = self._next = 0

    @property
    def is_due(self) -> bool:
        return self._step >= self._next

    def measure(self, squares: Tensor) -> None:
        """Take the squared norms of the terms' gradients at each place, ``(S, P, K + 1, places)``."""
        pairs = vmap(vmap(measurement.pairs))(squares) if squares.shape[-1] else torch.zeros_like(self._norms)
        self._norms = rule.running(self._norms, pairs.to(self._norms), self._settings.keep)
        self._peaks = torch.fmax(self._peaks, self._norms)
        self._next = self._step + max(1, math.ceil(self._settings.every * self._step))

    def _ratios(self) -> Tensor:
        return rule.ratios(self._norms, self._peaks, self._blend, self._limit)

    def factors(self) -> Tensor:
        risen = min(1.0, self._step / self._settings.rise) if self._settings.rise > 0 else 1.0
        known = torch.where(self._norms[..., 0].isnan(), self._raw, 1)
        in_units = nn.functional.pad(self._ratios() * known * risen, (1, 0), value=1.0)
        return self._held * nn.functional.pad(self.exponents, (1, 0)).exp() * in_units

    def extra_columns(self) -> Tensor:
        return torch.cat([1 / self._ratios(), self.factors().sum(-1, keepdim=True)], dim=-1)

    def advance(self) -> None:
        self._step += 1


def starts(weightings: Sequence[Learned], terms: Sequence[str], like: Tensor) -> Tensor:
    """The exponents that each weighting starts from, ``(P, K)``."""
    rows = []
    for weighting in weightings:
        init = weighting.init
        rows.append([init[term] if isinstance(init, Mapping) else init for term in terms[1:]])
    return like.new_tensor(rows).log()


def squared_norms(losses: Tensor, places: Sequence[Tensor]) -> Tensor:
    """Of the gradient of each term at each place, ``(S, P, K + 1, places)``; a backward pass for each term."""
    found = []
    for i in range(losses.shape[-1]):
        gradients = torch.autograd.grad(losses[..., i].sum(), list(places), retain_graph=True, allow_unused=True)
        norms = [losses.new_zeros(losses.shape[:2]) if g is None else g.flatten(2).norm(dim=-1) for g in gradients]
        found.append(torch.stack(norms, dim=-1) if norms else losses.new_zeros(*losses.shape[:2], 0))
    return torch.stack(found, dim=2).square()
