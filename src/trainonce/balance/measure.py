"""One measurement: the norms of the terms' gradients, pair by pair, without a word to the host."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Gradients = tuple[Tensor | None, ...]

NOTHING = 1e-6  # of a loss's whole norm is what rounding leaves where its gradient is 0


class Compared(NamedTuple):
    """The losses' gradients beside that of another: their products with it, shape ``(losses,)``, and its square."""

    products: Tensor
    square: Tensor


class Measured(NamedTuple):
    """The squared norms of the losses' gradients, shape ``(losses, places)``, and how they lie beside another one."""

    squares: Tensor
    compared: Compared | None


def measure(gradients: Iterable[Gradients], scale: Tensor, beside: Gradients | None = None) -> Measured:
    """Measure gradients at some places, one loss after another, and compare them with ``beside`` if it is there.

    They are those of ``scale`` times the losses, so that float16 holds small ones; what comes back is divided by it,
    and float32 or wider.
    """
    found, products = [], []
    for each in gradients:
        found.append(squares(each, scale))
        if beside is not None:
            products.append(_product(each, beside, scale))
    if beside is None:
        return Measured(torch.stack(found), None)
    compared = Compared(torch.stack(products) / scale.square(), squares(beside, scale).sum())
    return Measured(torch.stack(found), compared)


def gradient(loss: Tensor, places: Sequence[Tensor], scale: Tensor) -> Gradients:
    """Return the gradient of ``scale`` times the loss; None where it does not reach.

    ``torch.autograd.grad`` accumulates nothing, so no hook of ``.grad`` runs and DistributedDataParallel notices none
    of it. Tensor hooks (``parameter.register_hook``) do run, as in any backward pass: one that clips the gradient clips
    what is measured. The graph is kept for the user's own backward.
    """
    scaled = scale.to(loss.dtype)
    return torch.autograd.grad(loss, list(places), grad_outputs=scaled, retain_graph=True, allow_unused=True)


def squares(gradients: Gradients, scale: Tensor) -> Tensor:
    """Return the squared norm at each place of gradients that were scaled."""
    return (torch.stack([_norm(one, scale) for one in gradients]) / scale).square()


def _norm(gradient: Tensor | None, like: Tensor) -> Tensor:
    if gradient is None:
        return torch.zeros_like(like)
    if gradient.is_sparse:
        gradient = gradient.coalesce().values()
    norm: Tensor = torch.linalg.vector_norm(gradient, dtype=torch.promote_types(gradient.dtype, torch.float32))
    return norm.to(like)


def _product(gradients: Gradients, other: Gradients, like: Tensor) -> Tensor:
    wide = like.dtype
    dots = [
        torch.dot(one.to_dense().flatten().to(wide), two.to_dense().flatten().to(wide)).to(like)
        for one, two in zip(gradients, other, strict=True)
        if one is not None and two is not None
    ]
    return torch.stack(dots).sum() if dots else torch.zeros_like(like)


def pairs(squares: Tensor) -> Tensor:
    """Return for each loss but the first the first's norm and its own where they meet, shape ``(losses - 1, 2)``.

    Those are the places that all losses reach. Where there is none, each loss is compared at what it alone shares with
    the first; where that is nothing, both norms are 0.
    """
    reached = squares > NOTHING**2 * squares.sum(1, keepdim=True)
    idle = ~reached.any(1, keepdim=True)  # a loss without any gradient has no say in what is shared
    by_all = (reached | idle).all(0)
    with_first = reached[:1] & reached[1:]
    shared = torch.where(by_all.any(), by_all, with_first).to(squares.dtype)
    return torch.stack(((squares[:1] * shared).sum(1), (squares[1:] * shared).sum(1)), dim=1).sqrt()
