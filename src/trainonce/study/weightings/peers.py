"""The other weighting methods as plain data: TorchJD's scalarizers by name, with their settings.

Their criterion, :class:`~trainonce.study.weightings.peer_loss.PeerLoss`, is imported where one is trained: it loads
torch's compiler, for which who only reads records need not wait.
"""

from __future__ import annotations

import dataclasses
import inspect
from typing import TYPE_CHECKING, Any

from trainonce import param_groups
from trainonce.errors import InputError
from trainonce.extras import require
from trainonce.study import torchrun
from trainonce.study.weightings.base import Weighting
from trainonce.study.weightings.peer_names import PEERS
from trainonce.text import did_you_mean, is_number, quoted

if TYPE_CHECKING:
    from pathlib import Path

    from torch.optim import Optimizer

    import trainonce
    from trainonce.composite import NonFinite
    from trainonce.study.task import Task


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
        from trainonce.study.weightings.peer_loss import PeerLoss

        return PeerLoss(terms, self._build(len(terms)), scale=scale, nonfinite=nonfinite)

    def attach(
        self, optimizer: Optimizer, criterion: trainonce.CompositeLoss, history: trainonce.History, steps: int | None
    ) -> trainonce.Attachment:
        from trainonce.study.weightings.peer_loss import PeerLoss

        assert isinstance(criterion, PeerLoss)
        criterion.epoch = self.epoch or max(1, (steps or EPOCHS * 100) // EPOCHS)
        attachment = super().attach(optimizer, criterion, history, steps)
        if self.method in ("uw", "imtl-l"):  # FAMO steps its own weights, the others have none
            for name, parameter in criterion.scalarizer.named_parameters():
                param_groups.own_group(optimizer, parameter, name)
        return attachment


def _torchjd(method: str) -> Any:
    return getattr(require("torchjd.scalarization", "TorchJD", "peers"), PEERS[method].scalarizer)
