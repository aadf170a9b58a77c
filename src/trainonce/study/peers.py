"""TorchJD's scalarizers as rules of a study, by the names of their plans. Listing them needs neither TorchJD nor torch.

Their criterion, :class:`~trainonce.study.peer_loss.PeerLoss`, is imported where one is trained: it loads torch's
compiler, for which who only reads records need not wait.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from trainonce.errors import InputError
from trainonce.extras import require

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainonce.study.peer_loss import PeerLoss
    from trainonce.weighting import NonFinite

#: The class of each plan.
PEERS = {
    "uw": "UW",
    "imtl-l": "IMTLL",
    "dwa": "DWA",
    "famo": "FAMO",
    "geometric": "GeometricMean",
    "random-weights": "Random",
}

#: Scalarizers of TorchJD that are no plan, and why.
LEFT_OUT = {
    "Mean": "it is the plan 'uniform'",
    "Sum": "it is the plan 'uniform' with a larger learning rate",
    "Constant": "it is the plan 'fixed'",
    "COSMOS": "it needs a preference between the losses, which is what a search looks for",
    "PBI": "it needs a preference between the losses, which is what a search looks for",
    "STCH": "its smoothing and reference point are in the losses' units, so they would have to be searched too",
}

EPOCHS = 20  # of DWA in a training, where no epoch is given


def settings_of(name: str) -> dict[str, Any]:
    """Return the settings of a scalarizer with their defaults; DWA's epoch, in optimizer steps, is ours."""
    found = inspect.signature(_scalarizer(name)).parameters
    own = {p.name: p.default for p in found.values() if p.name not in ("shape", "min_losses")}
    return own | ({"epoch": None} if name == "dwa" else {})


def build(
    name: str,
    terms: tuple[str, ...],
    settings: Mapping[str, Any],
    *,
    scale: float = 1.0,
    nonfinite: NonFinite = "propagate",
    steps: int | None = None,
) -> PeerLoss:
    """Make the criterion of a scalarizer; TorchJD checks the values of its settings."""
    from trainonce.study import torchrun
    from trainonce.study.peer_loss import PeerLoss

    if torchrun.world_size() > 1:
        raise InputError(
            f"The plan {name!r} is TorchJD's, which does not keep the processes of torchrun together: their weights "
            "would differ. Run it with one process."
        )
    own = {key: value for key, value in settings.items() if key != "epoch"}
    epoch = settings.get("epoch")
    if epoch is not None and not (isinstance(epoch, int) and epoch >= 1):
        raise ValueError(f"The plan 'dwa' has epochs of at least 1 step; got {epoch!r}.")
    make = _scalarizer(name)
    shape = (len(terms),) if "shape" in inspect.signature(make).parameters else ()
    epoch = epoch or max(1, (steps or EPOCHS * 100) // EPOCHS)
    return PeerLoss(terms, make(*shape, **own), epoch=epoch, scale=scale, nonfinite=nonfinite)


def _scalarizer(name: str) -> Any:
    return getattr(require("torchjd.scalarization", "TorchJD", "peers"), PEERS[name])
