"""What is written at the end of a training."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import nn

    from trainonce.study import Trial


def written(writers: Mapping[str, Callable[[], None]]) -> None:
    """Write what is kept of a training. What fails is a warning: a long training is not lost to a full disk.

    :param writers: By what is to be said of each, such as ``"The network was not"``.
    """
    for what, write in writers.items():
        try:
            write()
        except (ImportError, OSError, ValueError, RuntimeError, IndexError) as error:
            warnings.warn(f"{what} written: {error}", stacklevel=3)


def save_network(trial: Trial, network: nn.Module) -> None:
    """The network's weights in the trial's folder, put there in one move."""
    beside = trial.dir / "network.pt.part"
    torch.save(network.state_dict(), beside)
    beside.replace(trial.dir / "network.pt")
