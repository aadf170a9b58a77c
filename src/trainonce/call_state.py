"""What a criterion remembers from one call to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from trainonce.terms import Present, mark_present

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from trainonce.terms import Values

PATTERNS = 256  # of absent terms that are kept


class CallState:
    """The last call's losses, and small constants that stay on the device.

    It is apart from the module because setting an attribute of a module is slow.
    """

    def __init__(self) -> None:
        self.last: Values | None = None
        self.places: tuple[Tensor, ...] = ()  # where the next call measures, if the user named tensors
        self.held_out: Callable[[], Tensor] | None = None  # the loss that the next measurement compares with
        self._zero: Tensor | None = None
        self._held: tuple[object, Tensor] | None = None
        self._patterns: dict[tuple[int, ...], Present] = {}

    def held(self, key: object, compute: Callable[[], Tensor]) -> Tensor:
        """What is computed of things that seldom change; ``key`` tells whether they have."""
        if self._held is None or self._held[0] != key:
            with torch.inference_mode(False), torch.no_grad():  # also in validation: training saves it for backward
                self._held = key, compute()
        return self._held[1]

    def take_places(self) -> tuple[Tensor, ...]:
        """The named tensors, for this call only: they belong to its graph."""
        places, self.places = self.places, ()
        return places

    def take_held_out(self) -> Callable[[], Tensor] | None:
        """The held-out loss, for one measurement."""
        loss, self.held_out = self.held_out, None
        return loss

    def base_exponent(self, like: Tensor) -> Tensor:
        """The base term's exponent: the same zero every time, for as long as device and dtype stay."""
        zero = self._zero
        if zero is None or zero.dtype != like.dtype or zero.device != like.device:
            self._zero = zero = like.detach().new_zeros(1)
        return zero

    def mark_present(self, where: tuple[int, ...], count: int, device: torch.device) -> Present:
        """As :func:`trainonce.terms.mark_present`, but each pattern of absent terms is sent to the device once."""
        found = self._patterns.get(where)
        if found is None or found.indices.device != device:
            if len(self._patterns) >= PATTERNS:
                self._patterns.clear()
            with torch.inference_mode(False):  # also when first met in validation: training saves them for backward
                self._patterns[where] = found = mark_present(where, count, device)
        return found
