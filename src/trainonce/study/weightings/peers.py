"""The other weighting methods, through TorchJD's scalarizers, under the interface of our criteria.

TorchJD's classes do the weighing. Here they get names, a place in the optimizer, and what some need besides the losses
of a call: FAMO the losses after the step, DWA the epochs. The training loop knows nothing of it.
"""

from __future__ import annotations

import dataclasses
import inspect
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainonce import param_groups
from trainonce.errors import InputError
from trainonce.extras import require
from trainonce.fixed import FixedLoss
from trainonce.study import torchrun
from trainonce.study.weightings.base import Weighting
from trainonce.study.weightings.peer_names import PEERS
from trainonce.terms import Values, collect, stack
from trainonce.text import did_you_mean, is_number, quoted

if TYPE_CHECKING:
    from pathlib import Path

    from torch.optim import Optimizer

    import trainonce
    from trainonce.composite import NonFinite
    from trainonce.study.task import Task
    from trainonce.terms import Losses


EPOCHS = 20  # of DWA in a training, where no epoch is given


@dataclasses.dataclass(frozen=True)
class Peer(Weighting):
    """A weighting method of TorchJD. ``settings`` go to its class; ``epoch`` is DWA's, in optimizer steps."""

    method: str
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    epoch: int | None = None
    kind = "peer"

    def __post_init__(self) -> None:
        """Numbers as floats, so that 2 and 2.0 are the same."""
        floats = {key: float(value) if is_number(value) else value for key, value in self.settings.items()}
        object.__setattr__(self, "settings", floats)

    def describe(self, digits: int) -> str:
        shown = self.settings | ({} if self.epoch is None else {"epoch": self.epoch})
        return ", ".join([self.method, *(f"{key} {value:.{digits}g}" for key, value in shown.items())])

    def check(self, task: Task) -> None:
        known = self._setting_names()
        for key, value in self.settings.items():
            if not is_number(value):
                raise ValueError(f"The plan {self.method!r} takes numbers; got {value!r} for {key!r}.")
            if key not in known:
                raise ValueError(
                    f"The plan {self.method!r} has no setting {key!r}; it has: {quoted(known) or 'none'}."
                    f"{did_you_mean(key, known)}"
                )
        if self.epoch is not None and not (isinstance(self.epoch, int) and self.epoch >= 1):
            raise ValueError(f"The plan 'dwa' has epochs of at least 1 step; got {self.epoch!r}.")
        self._build(len(task.terms))  # TorchJD checks the values

    def _setting_names(self) -> list[str]:
        return [p for p in inspect.signature(_torchjd(self.method)).parameters if p not in ("shape", "min_losses")]

    @property
    def resumable(self) -> bool:
        return self.method not in ("dwa", "famo", "random-weights")  # they keep more than a state_dict holds

    def _build(self, count: int) -> Any:
        scalarizer = _torchjd(self.method)
        shape = (count,) if "shape" in inspect.signature(scalarizer).parameters else ()
        return scalarizer(*shape, **self.settings)

    def criterion(
        self, terms: tuple[str, ...], scale: float, nonfinite: NonFinite, source: Path | None
    ) -> trainonce.CompositeLoss:
        if torchrun.world_size() > 1:
            raise InputError(
                f"The plan {self.method!r} is TorchJD's, which does not keep the processes of torchrun together: their "
                "weights would differ. Run it with one process."
            )
        return PeerLoss(terms, self._build(len(terms)), scale=scale, nonfinite=nonfinite)

    def attach(
        self, optimizer: Optimizer, criterion: trainonce.CompositeLoss, history: trainonce.History, steps: int | None
    ) -> trainonce.Attachment:
        assert isinstance(criterion, PeerLoss)
        criterion.epoch = self.epoch or max(1, (steps or EPOCHS * 100) // EPOCHS)
        attachment = super().attach(optimizer, criterion, history, steps)
        if self.method in ("uw", "imtl-l"):  # FAMO steps its own weights, the others have none
            for name, parameter in criterion.scalarizer.named_parameters():
                param_groups.own_group(optimizer, parameter, name)
        return attachment


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


def _torchjd(method: str) -> Any:
    return getattr(require("torchjd.scalarization", "TorchJD", "peers"), PEERS[method].scalarizer)
