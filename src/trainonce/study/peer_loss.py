"""A scalarizer of TorchJD as a rule.

TorchJD's classes do the weighing. Here they get names, a place in the optimizer, and what some need besides the losses
of a call: FAMO the losses after the step, DWA the epochs. The training loop knows nothing of it.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from trainonce import param_groups
from trainonce.weighting import LossWeighting, NonFinite

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch.optim import Optimizer

    from trainonce.terms import Batch

STEPPED = ("UW", "IMTLL")  # FAMO steps its own weights, the others have none


class PeerLoss(LossWeighting):
    """A scalarizer of TorchJD under the interface of every rule. Its coefficients are the gradient of its value.

    .. note:: FAMO is defined with the losses of the same batch after the step, a second forward pass. Here it gets
        those of the next batch, which the loop computes anyway: the same where the batch is always the same, noisier
        where it is not. DWA's epoch is a number of steps.

    :param scalarizer: An object of one of TorchJD's classes.
    :param epoch: Of DWA, in optimizer steps.
    """

    shown: Tensor
    steps: int
    stepped: int

    def __init__(
        self,
        terms: Iterable[str],
        scalarizer: Any,
        *,
        epoch: int = 1,
        scale: float = 1.0,
        nonfinite: NonFinite = "propagate",
    ) -> None:
        super().__init__(terms, scale=scale, nonfinite=nonfinite)
        self.method = type(scalarizer).__name__
        self.scalarizer = scalarizer
        self.epoch = epoch
        self.add_state("shown", 1 / len(self.terms))  # what the last backward pass multiplied each loss by
        self.add_count("steps", 0)
        self.add_count("stepped", 0)  # whether FAMO waits for the losses after a step
        self._factor = torch.ones(())
        self._draws = self.method == "Random"
        self._random = torch.Generator().manual_seed(torch.initial_seed() % 2**63)
        self.memory = _Memory(self)

    def join(self, optimizer: Optimizer) -> None:
        """Give what TorchJD trains parameter groups of its own, without weight decay."""
        if self.method in STEPPED:
            for name, parameter in self.scalarizer.named_parameters():
                param_groups.own_group(optimizer, parameter, name)

    def weigh(self) -> Tensor:
        return self.shown.clone()  # backward writes into the buffer

    def observe(self, batch: Batch) -> None:
        if self.stepped and batch.present is None and hasattr(self.scalarizer, "update"):
            self.scalarizer.update(batch.losses.detach())
        self.stepped = 0

    def combine(self, batch: Batch) -> Tensor:
        if batch.present is not None:
            raise ValueError(
                f"{self.method} has no rule for a batch without some of its terms. Leave this plan out for tasks with "
                "absent terms."
            )
        if self.frozen or not (self.training and torch.is_grad_enabled()):
            return super().combine(batch)
        if batch.losses.requires_grad:
            batch.losses.register_hook(self._show)  # type: ignore[no-untyped-call]
        if not self._draws:
            return self._follow(self.scalarizer(batch.losses))
        # From a random state of its own: the task's batches are the seed's, whatever the plan.
        devices = [batch.losses.device] if batch.losses.is_cuda else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(int(torch.randint(2**62, (), generator=self._random)))
            return self._follow(self.scalarizer(batch.losses))

    def _follow(self, value: Tensor) -> Tensor:
        """Let backward note by what it multiplies the gradient: accumulation, GradScaler, ``scale``."""
        if value.requires_grad:
            value.register_hook(self._keep_factor)  # type: ignore[no-untyped-call]
        return value

    def _keep_factor(self, gradient: Tensor) -> None:
        self._factor = gradient.detach()

    def _show(self, gradient: Tensor) -> None:
        with torch.no_grad():
            self.shown.copy_(gradient / self._factor)

    def after_step(self, skipped: Tensor | None) -> None:
        if skipped is not None and skipped.item():  # by GradScaler
            return
        self.stepped = 1
        self.steps += 1
        if self.steps % self.epoch == 0 and hasattr(self.scalarizer, "step"):
            self.scalarizer.step()


class _Memory(torch.nn.Module):
    """What a scalarizer keeps besides parameters and buffers, FAMO's optimizer too, and where its draws stand."""

    def __init__(self, loss: PeerLoss) -> None:
        super().__init__()
        self._of = (loss,)  # in a tuple, so that it is no module of this one

    def get_extra_state(self) -> dict[str, Any]:
        scalarizer, random = self._of[0].scalarizer, self._of[0]._random
        own = {name: value for name, value in vars(scalarizer).items() if name not in vars(torch.nn.Module())}
        kept = {k: v.state_dict() if isinstance(v, torch.optim.Optimizer) else v for k, v in own.items()}
        return {"kept": copy.deepcopy(kept), "random": random.get_state()}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        scalarizer, random, device = self._of[0].scalarizer, self._of[0]._random, self._of[0].shown.device
        for name, value in state["kept"].items():
            if isinstance(value, dict) and "param_groups" in value:
                optimizer = torch.optim.Adam(scalarizer.parameters())
                optimizer.load_state_dict(value)
                setattr(scalarizer, name, optimizer)
            else:
                setattr(scalarizer, name, tree_map_only(Tensor, lambda part: part.to(device, copy=True), value))
        random.set_state(state["random"].cpu())
