"""Loggers: send every term's loss and coefficient to TensorBoard, MLflow, Weights & Biases or a CSV file.

A sink is a function of named numbers and a step. Those here are made from the object you already have, so nothing is
imported that you did not ask for, and one of your own is a function of two parameters.

>>> import torch, trainonce
>>> from trainonce.integrations import loggers
>>> w, criterion = torch.nn.Parameter(torch.ones(1)), trainonce.CompositeLoss(["fit", "small"])
>>> optimizer = torch.optim.SGD([w], lr=0.1)
>>> attachment = trainonce.attach(optimizer, criterion)
>>> logs = loggers.log(attachment, lambda values, step: print(step, *sorted(values)), every=1)
>>> criterion(fit=w.sum(), small=w.abs().sum()).backward()
>>> optimizer.step()
1 coefficient/fit coefficient/small exponent/small loss/fit loss/small ratio/small reference
"""

from __future__ import annotations

import csv as files
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from trainonce import distributed
from trainonce.readback import Readback

if TYPE_CHECKING:
    import os

    from torch.optim import Optimizer

    from trainonce.attachment import Attachment

#: Takes named numbers and the optimizer step they belong to.
Sink = Callable[[Mapping[str, float], int], None]


# Sinks


def tensorboard(writer: Any, prefix: str = "") -> Sink:
    """Return a sink that writes to a ``torch.utils.tensorboard.SummaryWriter``."""

    def write(values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            writer.add_scalar(prefix + name, value, step)

    return write


def wandb(run: Any, prefix: str = "") -> Sink:
    """Return a sink that writes to a run of Weights & Biases, what ``wandb.init()`` returns.

    Its own steps only grow, so the optimizer's step travels as ``trainonce/step``, which is made the x-axis.
    """
    names: set[str] = set()

    def write(values: Mapping[str, float], step: int) -> None:
        for name in values.keys() - names:
            run.define_metric(prefix + name, step_metric="trainonce/step")
            names.add(name)
        run.log({**{prefix + name: value for name, value in values.items()}, "trainonce/step": step})

    return write


def mlflow(module: Any, prefix: str = "", run_id: str | None = None) -> Sink:
    """Return a sink that writes to MLflow: pass the module ``mlflow``, which logs to its active run, or name a run."""

    def write(values: Mapping[str, float], step: int) -> None:
        metrics = {prefix + name: value for name, value in values.items()}
        module.log_metrics(metrics, step=step, **({} if run_id is None else {"run_id": run_id}))

    return write


def csv(path: str | os.PathLike[str]) -> Sink:
    """Return a sink that writes a CSV file, one row per step; an existing file with the same columns is continued."""
    path = Path(path)
    columns: list[str] = []

    def write(values: Mapping[str, float], step: int) -> None:
        if not columns:
            columns.extend(_columns(path, ["step", *sorted(values)]))
        row = [str(step), *(repr(values[name]) if name in values else "" for name in columns[1:])]
        with path.open("a", newline="") as file:
            files.writer(file).writerow(row)

    return write


def _columns(path: Path, wanted: list[str]) -> list[str]:
    """Return the columns of the file, which is begun if it is not there."""
    if path.is_file() and path.stat().st_size:
        with path.open(newline="") as file:
            found = next(files.reader(file))
        if found != wanted:
            raise ValueError(
                f"{path} has the columns {', '.join(found)}; this run logs {', '.join(wanted)}. Choose another path."
            )
        return found
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        files.writer(file).writerow(wanted)
    return wanted


# Logging


def log(attachment: Attachment, *sinks: Sink, every: int = 50, start: int = 0) -> Logging:
    """Send what ``criterion.log_dict()`` holds to the sinks after every so many optimizer steps.

    The numbers are copied to the host while training continues, and are written at a later step under the step they
    belong to. Call :meth:`Logging.close` at the end, or use the result in a ``with`` statement, to write the last ones.

    :param attachment: What :func:`trainonce.attach` returned.
    :param sinks: Functions of named numbers and a step. With several processes only the first writes.
    :param every: How many optimizer steps lie between two logs.
    :param start: The number of optimizer steps that a resumed training has already made.
    """
    if not sinks:
        raise ValueError("log needs a sink to write to, such as loggers.csv('losses.csv').")
    if every < 1:
        raise ValueError(f"every is a number of optimizer steps and must be at least 1; got {every}.")
    if start < 0:
        raise ValueError(f"start is a number of optimizer steps and must be at least 0; got {start}.")
    return Logging(attachment, sinks, every, start)


class Logging:
    """Watches the optimizer until it is closed; returned by :func:`log`."""

    def __init__(self, attachment: Attachment, sinks: tuple[Sink, ...], every: int, start: int) -> None:
        self._attachment, self._sinks, self._every = attachment, sinks, every
        self._start = start - attachment.steps
        self._last = attachment.steps  # a step without the criterion's call is no row
        self._coming: list[tuple[int, list[str], Readback]] = []
        self._handle = attachment.optimizer.register_step_post_hook(self._after_step)

    def _after_step(self, optimizer: Optimizer, *_: Any) -> None:
        step, before, self._last = self._attachment.steps, self._last, self._attachment.steps
        if step != before and (self._start + step) % self._every == 0 and not _is_capturing():
            scalars = self._attachment.criterion.log_dict()  # on all ranks: what is sharded needs them
            together = torch.stack([value.float() for value in scalars.values()])
            self._coming.append((self._start + step, list(scalars), Readback(together)))
        self._write(lambda reading: reading.ready())

    def _write(self, due: Callable[[Readback], bool]) -> None:
        first = not distributed.is_distributed() or torch.distributed.get_rank() == 0
        while self._coming and due(self._coming[0][2]):
            step, names, reading = self._coming.pop(0)
            values = dict(zip(names, reading.value().tolist(), strict=True))
            for sink in self._sinks if first else ():
                sink(values, step)

    def close(self) -> None:
        """Write what is still on its way, and stop logging."""
        self._handle.remove()
        self._write(lambda _: True)

    def __enter__(self) -> Logging:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _is_capturing() -> bool:
    """Whether a CUDA graph is being captured: nothing may be read then."""
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
