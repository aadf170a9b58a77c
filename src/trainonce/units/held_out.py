"""HeldOutDrift: the cosines between the terms' gradients and that of a loss on data that is not trained on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from trainonce.units import rule
from trainonce.units.buffers import StartingBuffers

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from trainonce.units.settings import HeldOut

KEEP = 0.9  # what is kept of the running means at a measurement


class HeldOutDrift(StartingBuffers):
    """Running means of the products of gradients, and of their squares, from which the cosines are computed.

    Means of products, and not of gradients: they are as good (see the arena), and as small as the number of terms.
    """

    products: Tensor
    squares: Tensor
    square: Tensor

    START: ClassVar = dict.fromkeys(("products", "squares", "square"), math.nan)

    def __init__(self, terms: int, settings: HeldOut, dtype: torch.dtype) -> None:
        super().__init__()
        self.settings = settings
        for name, shape in (("products", terms), ("squares", terms), ("square", 1)):
            self.register_buffer(name, torch.empty(shape, dtype=dtype))
        self.reset()

    def reset(self) -> None:
        self.start()
        self.last = 0  # the step of the last measurement

    @torch.no_grad()
    def move(self, exponents: Tensor, asked: Tensor, fresh: Tensor, step: int) -> Tensor:
        """The exponents after a measurement of all terms, compared with the gradient of the held-out loss.

        ``asked``: what halving adds to the exponents. ``fresh``: the products of their gradients, the terms' squared
        norms and that of the held-out loss.
        """
        usable = fresh.isfinite().all()
        before = torch.cat((self.products, self.squares, self.square))
        after = torch.where(before.isnan(), fresh, KEEP * before + (1 - KEEP) * fresh)
        after = torch.where(usable, after, before)
        count = len(self.products)
        self.products.copy_(after[:count])
        self.squares.copy_(after[count:-1])
        self.square.copy_(after[-1:])
        cosines = torch.nan_to_num(self.products / (self.squares * self.square).sqrt())
        rate = self.settings.rate(self.last, step)
        self.last = step
        return rule.drift(exponents, cosines, rate, asked)

    # Checkpoints

    def get_extra_state(self) -> Tensor:
        return torch.tensor([self.last], dtype=torch.int64, device="cpu")

    def set_extra_state(self, saved: Tensor) -> None:
        (self.last,) = saved.tolist()


def checked(loss: Callable[[], Tensor] | None, places: Collection[Tensor]) -> Callable[[], Tensor] | None:
    """The held-out loss for a measurement, with its result checked. ``places``: tensors that the user named."""
    if loss is None:
        return None
    if places:
        raise RuntimeError(
            "held_out compares gradients at parameters, but this call measures at the tensors that share named. "
            "Name parameters with GradientUnits(shared=...), or leave out held_out."
        )

    def evaluate() -> Tensor:
        value = loss()
        if not isinstance(value, Tensor) or value.dim() != 0 or not value.requires_grad:
            found = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            found += " without one" if isinstance(value, Tensor) and not value.requires_grad else ""
            raise TypeError(f"held_out needs a function that returns a scalar loss with a gradient; got {found}.")
        return value

    return evaluate
