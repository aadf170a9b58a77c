"""The coefficients of all models of a stack: fixed ones, the paper's rule, and gradient balance.

Each class holds some of the rules for all seeds, and does what a criterion of its own, attached to the optimizer, would
do for each model, by the same pure functions.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import vmap

from trainonce import functional, pace, param_groups
from trainonce.balance import arithmetic, measure
from trainonce.history import column_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.optim import Optimizer

    from trainonce import BalancedLoss, CompositeLoss, FixedLoss
    from trainonce.weighting import LossWeighting


class Points:
    """Some rules of one kind, P of them, for S seeds."""

    #: The settings that rules must have in common to be computed together.
    alike: ClassVar[tuple[str, ...]] = ()
    #: The learning rate of what the optimizer trains; None for the model's.
    lr: float | Tensor | None = None

    def __init__(self, criteria: Sequence[LossWeighting]) -> None:
        self.count = len(criteria)
        self.columns = column_names(criteria[0])  # of their histories

    def coefficients(self) -> Tensor:
        """Return what the losses are multiplied by, ``(S, P, K + 1)``."""
        raise NotImplementedError

    def join(self, optimizer: Optimizer) -> None:
        """Become part of the optimizer, before its schedule is made."""

    def set_gradients(self, losses: Tensor) -> None:
        """Give what the optimizer trains its gradient, from the losses of the step ``(S, P, K + 1)``."""

    def after_step(self) -> None:
        """Follow the optimizer's step."""

    def own_columns(self) -> list[Tensor]:
        """Return what the history has beside losses and coefficients, each ``(S, P, ...)``, after a step."""
        return []


class FixedPoints(Points):
    """Coefficients that stay."""

    def __init__(self, criteria: Sequence[FixedLoss], seeds: int, like: Tensor) -> None:
        super().__init__(criteria)
        self._coefficients = _starts(criteria, "weights", like).mul(_scales(criteria, like)).repeat(seeds, 1, 1)

    def coefficients(self) -> Tensor:
        return self._coefficients


class PaperPoints(Points):
    """The paper's rule: exponents that the model's optimizer moves at one rate, with one regularizer."""

    alike: ClassVar[tuple[str, ...]] = ("regularizer", "lr")

    def __init__(self, criteria: Sequence[CompositeLoss], seeds: int, like: Tensor) -> None:
        super().__init__(criteria)
        self.exponents = nn.Parameter(_starts(criteria, "exponents", like).repeat(seeds, 1, 1))
        self._decay = like.new_tensor([[criterion.decay] for criterion in criteria])
        self._scale = _scales(criteria, like)
        self.lr, self._parts = criteria[0].lr, criteria[0].regularizer
        self._group: dict[str, Any] = {}
        self._before = self._pull = torch.empty(0)
        self._row: list[Tensor] = []

    def coefficients(self) -> Tensor:
        return functional.weights(self.exponents.detach()) * self._scale

    def join(self, optimizer: Optimizer) -> None:
        index = param_groups.own_group(optimizer, self.exponents, "exponents", self.lr)
        self._group = optimizer.param_groups[index]

    def set_gradients(self, losses: Tensor) -> None:
        self._before = self.exponents.detach().clone()
        self._pull = functional.regularizer_grad(self._before, self._parts)
        self.exponents.grad = functional.composite_grad(self._before, losses).to(self._before)

    def after_step(self) -> None:
        mu = self.exponents.detach()
        rate = self.move(mu)
        moved = mu.clone()
        mu.sub_(self._pull * self._decay * rate)
        self._row = [self._before, moved - self._before, mu - moved, rate.expand_as(mu[..., :1])]

    def move(self, mu: Tensor) -> Tensor:
        """Move the exponents by their gradient where no optimizer does, and return their rate."""
        return mu.new_tensor(float(self._group["lr"]))

    def own_columns(self) -> list[Tensor]:
        return self._row


class PacedPoints(PaperPoints):
    """The paper's rule, with exponents at a pace of their own."""

    alike = ("regularizer",)

    def __init__(self, criteria: Sequence[CompositeLoss], seeds: int, like: Tensor) -> None:
        super().__init__(criteria, seeds, like)
        self._travel = like.new_tensor([[criterion.pace] for criterion in criteria])
        self._mean, self._square = (torch.zeros_like(self.exponents.detach()) for _ in range(2))
        self._step = 0

    def join(self, optimizer: Optimizer) -> None:
        """It moves them itself."""

    def move(self, mu: Tensor) -> Tensor:
        assert self.exponents.grad is not None
        rate = pace.rate(self._travel, self._travel.new_tensor(self._step))
        mu.sub_(rate * pace.direction(self.exponents.grad, self._mean, self._square, self._step))
        self._step += 1
        return rate


class BalancedPoints(Points):
    """Gradient balance from nothing; all measure at the same places and steps."""

    alike = ("at", "every")

    def __init__(self, criteria: Sequence[BalancedLoss], seeds: int, like: Tensor) -> None:
        super().__init__(criteria)
        self._criteria = criteria
        self._weights = _starts(criteria, "weights", like)
        self._scale = _scales(criteria, like)
        self._follow = like.new_tensor([[criterion.follow] for criterion in criteria])
        shape = seeds, self.count, len(criteria[0].terms) - 1
        self._norms, self._peaks = (like.new_full((*shape, 2), math.nan) for _ in range(2))
        self._compared = like.new_full((*shape[:2], 2 * shape[2] + 3), math.nan)
        self._alignment = self._row = like.new_zeros(shape)
        self._step = self._next = self._aligned = 0

    @property
    def is_due(self) -> bool:
        """Whether the step measures."""
        return self._step >= self._next

    @property
    def aligns(self) -> bool:
        """Whether a measurement takes the validation loss, too."""
        return any(criterion.travel != 0 for criterion in self._criteria)

    def take(self, found: Measured) -> None:
        """Take a measurement."""
        empty = not found.squares.shape[-1]  # the terms share nothing
        pairs = torch.zeros_like(self._norms) if empty else vmap(vmap(measure.pairs))(found.squares)
        self._norms = arithmetic.running(self._norms, pairs.to(self._norms))
        self._peaks = torch.fmax(self._peaks, self._norms)
        if found.products is not None and found.square is not None and not empty:
            self._align(found.products, found.squares.sum(-1), found.square)
        self._next = arithmetic.next_measurement(self._step, self._criteria[0].every)

    def _align(self, products: Tensor, squares: Tensor, square: Tensor) -> None:
        fresh = torch.cat((products, squares, square.unsqueeze(-1)), dim=-1).to(self._compared)
        self._compared = arithmetic.running_products(self._compared, fresh)
        step, last = self._step, self._aligned
        rates = [[arithmetic.travelled(last, step, one.steps, one.travel)] for one in self._criteria]
        cosines = arithmetic.cosines(self._compared)
        self._alignment = arithmetic.align(self._alignment, cosines, self._alignment.new_tensor(rates))
        self._aligned = step

    def coefficients(self) -> Tensor:
        factors = arithmetic.strength_ratios(self._norms, self._peaks, self._follow)
        factors = factors * arithmetic.risen(self._step, since=0)
        factors = torch.where(self._norms[..., 0].isnan(), 1.0, factors)
        return arithmetic.coefficients(self._weights, self._alignment, factors) * self._scale

    def after_step(self) -> None:
        self._row = self._alignment
        self._step += 1

    def own_columns(self) -> list[Tensor]:
        return [self._row]


class Measured(NamedTuple):
    """Squared norms ``(S, P, K + 1, places)``; products ``(S, P, K + 1)`` with the validation gradient, its square."""

    squares: Tensor
    products: Tensor | None = None
    square: Tensor | None = None


def measure_at(places: Sequence[Tensor], losses: Tensor, own: slice, validation: Tensor | None) -> Measured:
    """Measure the losses ``(S, P, K + 1)`` of some models at some places: a backward pass for each term.

    :param own: Which of the points are measured.
    :param validation: Their validation losses, ``(S, own)``.
    """
    nothing = losses.new_zeros(losses[:, own].shape[:2])

    def gradients(loss: Tensor) -> list[Tensor | None]:
        if not places:
            return []
        found = torch.autograd.grad(loss.sum(), list(places), retain_graph=True, allow_unused=True)
        return [None if one is None else one[:, own].flatten(2) for one in found]

    def squares(found: Sequence[Tensor | None]) -> Tensor:
        norms = [nothing if one is None else one.norm(dim=-1) for one in found]
        return torch.stack(norms, dim=-1).square() if norms else nothing.new_zeros(*nothing.shape, 0)

    def product(some: Sequence[Tensor | None], others: Sequence[Tensor | None]) -> Tensor:
        pairs = [(a * b).sum(-1) for a, b in zip(some, others, strict=True) if a is not None and b is not None]
        return torch.stack(pairs).sum(0) if pairs else nothing

    beside = None if validation is None else gradients(validation)
    each = [gradients(losses[:, own, i]) for i in range(losses.shape[-1])]
    norms = torch.stack([squares(one) for one in each], dim=2)
    if beside is None:
        return Measured(norms)
    products = torch.stack([product(one, beside) for one in each], dim=-1)
    return Measured(norms, products, squares(beside).sum(-1))


def _starts(criteria: Sequence[LossWeighting], name: str, like: Tensor) -> Tensor:
    """Return what each rule declares as its start, ``(P, ...)``."""
    return torch.stack([criterion._states[name].start for criterion in criteria]).to(like)


def _scales(criteria: Sequence[LossWeighting], like: Tensor) -> Tensor:
    return like.new_tensor([[criterion.scale] for criterion in criteria])
