"""What recipes that read data and train networks share: where the data is, a look at it, what is kept at the end."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any

import torch

from trainonce.study import torchrun

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor, nn

    from trainonce.study import Trial


def data_root(given: str) -> str:
    """The folder of the data: as given, or as the environment says."""
    root = given or os.environ.get("TRAINONCE_DATA", "")
    if not root:
        raise FileNotFoundError("This recipe reads data: give its folder with --data-root, or in TRAINONCE_DATA.")
    return root


def checked(look: Callable[[], object]) -> None:
    """Look at all data once, in the first process, and let all know what is wrong."""
    problem = ""
    if torchrun.is_first():
        try:
            look()
        except (OSError, ValueError) as error:
            problem = str(error)
    problem = torchrun.broadcast(problem)
    if problem:
        raise ValueError(problem)


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


def recorded(module: nn.Module, example: tuple[Tensor, ...]) -> Any:
    """The module as two recorded graphs, of the forward and of the backward pass, each one launch."""
    warn = getattr(torch.autograd.graph, "set_warn_on_accumulate_grad_stream_mismatch", None)
    if warn is not None:
        warn(False)  # recording is done on a stream of its own, which is noticed at every later step, to no use
    return torch.cuda.make_graphed_callables(module, example)
