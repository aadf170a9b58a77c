"""A scalarizer of TorchJD under the interface of our criteria.

TorchJD's classes do the weighing. Here they get names, a place in the optimizer, and what some need besides the losses
of a call: FAMO the losses after the step, DWA the epochs. The training loop knows nothing of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainonce.fixed import FixedLoss
from trainonce.study.weightings.peer_names import PEERS
from trainonce.terms import Values, collect, stack

if TYPE_CHECKING:
    from trainonce.composite import NonFinite
    from trainonce.terms import Losses


class PeerLoss(FixedLoss):
    """A scalarizer of TorchJD as a criterion. Its ``weights`` are the gradient of its value, divided by their sum.

    .. note:: FAMO is defined with the losses of the same batch after the step, a second forward pass. Here it gets
        those of the next batch, which the loop computes anyway: the same where the batch is always the same, noisier
        where it is not. DWA's epoch is a number of steps.
    """

    _kind = "PeerLoss"

    def __init__(self, terms: tuple[str, ...], scalarizer: Any, *, scale: float, nonfinite: NonFinite) -> None:
        super().__init__(dict.fromkeys(terms, 1.0), scale=scale, nonfinite=nonfinite)
        self.scalarizer = scalarizer
        self.epoch = 1
        self._steps = 0
        self._stepped_on = False  # FAMO waits for the losses after a step
        self._total, self._factor = torch.ones(()), torch.ones(())
        self._draws = type(scalarizer).__name__ == PEERS["random-weights"].scalarizer
        self._random = torch.Generator().manual_seed(torch.initial_seed() % 2**63)

    def forward(self, losses: Losses | None = None, /, *more: object, **terms: Tensor | None) -> Tensor:
        given, where = collect(self.terms, losses, terms)
        if self.nonfinite != "propagate":
            given, where = self._keep_finite(given, where)
        if where is not None:
            raise ValueError(
                f"{type(self.scalarizer).__name__} has no rule for a batch without some of its terms. Leave this plan "
                "out for tasks with absent terms."
            )
        values = stack(self.terms, given, None)
        if not torch.is_grad_enabled():
            return super().forward(values)
        self._note(Values(values.detach(), None))
        if self._stepped_on and hasattr(self.scalarizer, "update"):
            self.scalarizer.update(values.detach())
        self._stepped_on = False
        values.register_hook(self._show_weights)  # type: ignore[no-untyped-call]
        if not self._draws:
            return self._follow(self.scalarizer(values)) * self.scale
        # From a random state of its own: the task's batches are the seed's, whatever the plan.
        devices = [values.device] if values.is_cuda else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(int(torch.randint(2**62, (), generator=self._random)))
            return self._follow(self.scalarizer(values)) * self.scale

    @property
    def total(self) -> Tensor:
        """What the weights summed to before they were divided by it: of some methods it grows or shrinks."""
        return self._total

    def _follow(self, value: Tensor) -> Tensor:
        """Let backward note by what it multiplies the gradient: accumulation, GradScaler, ``scale``."""
        value.register_hook(self._keep_factor)  # type: ignore[no-untyped-call]
        return value

    def _keep_factor(self, gradient: Tensor) -> None:
        self._factor = gradient.detach()

    def _show_weights(self, gradient: Tensor) -> None:
        with torch.no_grad():
            self._total = gradient.sum() / self._factor
            self.fixed.copy_(gradient / gradient.sum())
            self._show()

    def _after_step(self, found_inf: Tensor | None) -> None:
        if found_inf is not None and found_inf.item():  # GradScaler skipped it
            return
        self._stepped_on = True
        self._steps += 1
        if self._steps % self.epoch == 0 and hasattr(self.scalarizer, "step"):
            self.scalarizer.step()
