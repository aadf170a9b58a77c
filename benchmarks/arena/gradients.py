"""The gradient of every term in every model of a stack, and what rules ask of them: Gram matrices and products.

Only the gradients themselves are as large as the model; everything else is summed up parameter by parameter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from benchmarks.arena.task import Tensors

#: Per term, the gradient at each parameter; None where the term does not reach it.
PerTerm = list[list["Tensor | None"]]
#: The places where norms are taken: all shared parameters, or the last shared layer.
PLACES = ("all", "last")


@dataclass(frozen=True)
class Measurement:
    """Inner products of the terms' gradients, by place. ``held_out``: with the held-out gradient; its own square."""

    gram: Mapping[str, Tensor]  # (S, P, K + 1, K + 1)
    products: Mapping[str, Tensor] | None = None  # (S, P, K + 1)
    square: Mapping[str, Tensor] | None = None  # (S, P)

    def narrow(self, start: int, points: int) -> Measurement:
        """The part of it that belongs to some of the points."""
        parts = (self.gram, self.products, self.square)
        return Measurement(*(_narrow(part, start, points) for part in parts))


def of_each_term(losses: Tensor, parameters: Sequence[Tensor]) -> PerTerm:
    """The gradients of the losses ``(S, P, K + 1)``, one backward pass a term."""
    count = losses.shape[-1]
    return [
        list(torch.autograd.grad(losses[..., i].sum(), parameters, retain_graph=i < count - 1, allow_unused=True))
        for i in range(count)
    ]


def combine(gradients: PerTerm, weights: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
    """The gradient of the weighted sum, per parameter."""
    combined = []
    for at, parameter in enumerate(parameters):
        total = torch.zeros_like(parameter)
        for i, term in enumerate(gradients):
            gradient = term[at]
            if gradient is not None:
                total.addcmul_(gradient, _like(weights[..., i], gradient))
        combined.append(total)
    return combined


def measure(gradients: PerTerm, where: Mapping[str, Sequence[int]], held_out: Tensors | None) -> Measurement:
    """Gram matrices and products with the held-out gradient.

    :param where: By place, the indices of its parameters; places that no rule asks for are left out.
    :param held_out: The held-out gradient by parameter index, as text.
    """
    gram: dict[str, Tensor] = {}
    products: dict[str, Tensor] = {}
    square: dict[str, Tensor] = {}
    for at in sorted(set().union(*where.values())):
        rows = _rows([term[at] for term in gradients])
        if rows is None:
            continue
        places = [place for place, indices in where.items() if at in indices]
        _add(gram, places, rows @ rows.transpose(-1, -2))
        if held_out is not None:
            other = held_out[str(at)].flatten(2)
            _add(products, places, (rows @ other.unsqueeze(-1)).squeeze(-1))
            _add(square, places, other.square().sum(-1))
    return Measurement(gram, products, square) if held_out is not None else Measurement(gram)


def follow(mean: Tensors, gradients: Sequence[Tensor | None], factor: Tensor, first: Tensor) -> None:
    """Move the running mean of the held-out gradient; it begins with the first one.

    :param factor: What is kept of the mean, shape ``(P,)``; 1 where a point does not measure now.
    :param first: Whether a point has measured before, shape ``(P,)``, as 0 or 1.
    """
    for (_, value), gradient in zip(mean.items(), gradients, strict=True):
        keep = _like((factor * (1 - first)).expand(value.shape[:2]), value)
        value.mul_(keep)
        if gradient is not None:
            value.add_(gradient * (1 - keep))


def _rows(gradients: Sequence[Tensor | None]) -> Tensor | None:
    """One parameter's gradients as the rows of a matrix, shape ``(S, P, K + 1, D)``."""
    known = next((g for g in gradients if g is not None), None)
    if known is None:
        return None
    return torch.stack([torch.zeros_like(known) if g is None else g for g in gradients], dim=2).flatten(3)


def _add(sums: dict[str, Tensor], places: Sequence[str], value: Tensor) -> None:
    for place in places:
        sums[place] = sums[place] + value if place in sums else value


def _like(values: Tensor, tensor: Tensor) -> Tensor:
    """Values ``(S, P)`` with as many dimensions as ``tensor``, ``(S, P, ...)``."""
    return values.reshape(*values.shape, *(1,) * (tensor.dim() - 2))


def _narrow(part: Mapping[str, Tensor] | None, start: int, points: int) -> dict[str, Tensor] | None:
    return None if part is None else {place: value.narrow(1, start, points) for place, value in part.items()}
