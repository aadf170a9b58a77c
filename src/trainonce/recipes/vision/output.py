"""What a training shows: its validation metric on the way, the network and pictures at the end."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Protocol

import torch

from trainonce.study import layout, torchrun

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import nn

    from trainonce.study import Trial


class OutputSettings(Protocol):
    """The settings of a recipe that say what is shown and written."""

    @property
    def steps(self) -> int: ...

    @property
    def evaluations(self) -> int: ...

    @property
    def keep_model(self) -> bool: ...


def report_between(
    trial: Trial, settings: OutputSettings, step: int, validate: Callable[[], Mapping[str, float]]
) -> None:
    """Report the validation metrics after every part of the training but the last; ``step`` counts from 1."""
    every = max(1, settings.steps // settings.evaluations) if settings.evaluations else settings.steps + 1
    if step % every == 0 and step < settings.steps:
        trial.report(step, **validate())


def write_outputs(trial: Trial, settings: OutputSettings, network: nn.Module, draw: Callable[[], None]) -> None:
    """Write the network, where the settings ask for it, and the pictures, in the first process.

    :param draw: Writes the pictures.
    """
    if not torchrun.is_first():
        return
    writers = {"The network was not": lambda: save_network(trial, network)} if settings.keep_model else {}
    write_or_warn(writers | {"No pictures were": draw})


def write_or_warn(writers: Mapping[str, Callable[[], None]]) -> None:
    """Call each writer, and turn its error into a warning: a long training is not lost to a full disk.

    :param writers: By how the warning begins, such as ``"The network was not"``.
    """
    for what, write in writers.items():
        try:
            write()
        except (ImportError, OSError, ValueError, RuntimeError, IndexError) as error:
            warnings.warn(f"{what} written: {error}", stacklevel=4)


def save_network(trial: Trial, network: nn.Module) -> None:
    """Write the network's weights to the trial's folder, in one move."""
    beside = trial.dir / f"{layout.NETWORK}.part"
    torch.save(network.state_dict(), beside)
    beside.replace(trial.dir / layout.NETWORK)
