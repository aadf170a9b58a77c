"""Stackable: the parts of a task, beside its training function, from which many of its trials are trained at once."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from torch import Tensor, nn

if TYPE_CHECKING:
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

    from trainonce.study.task import Task, TrainFunction

__all__ = ["Stackable", "stack"]

Tensors = Mapping[str, Tensor]
Losses = Mapping[str, Tensor] | Sequence[Tensor] | Tensor


@dataclasses.dataclass(frozen=True)
class Stackable:
    """One seed of a task in parts. The functions get a model and tensors, and must work under ``torch.func.vmap``.

    Inside them, no ``.item()``, no ``if`` on a value and no random numbers: what is random in a step comes from
    ``draw``. ``nn.Dropout`` and batch normalisation work.

    :param model: The model of this seed, as the training function makes it.
    :param draw: What is new in each step, such as a batch, drawn on the CPU in the order of the training function.
    :param losses: The losses of a step from the model, ``data`` and what was drawn: by term, or in the terms' order.
    :param metrics: What the training function returns, each as a tensor without dimensions; called in eval mode.
    :param optimizer: Makes the optimizer from one model's parameters that are trained, in groups if you like. It must
        treat every entry of a parameter by itself, as SGD and Adam do.
    :param steps: The length of the training.
    :param schedule: Makes the learning-rate schedule, which is stepped after each step.
    :param data: Tensors that stay the same, for ``losses`` and ``metrics``.
    :param report: What ``trial.report`` is given, by name, as tensors; called in eval mode.
    :param report_every: After how many steps each time.
    :param validation: What ``trial.criterion(validation=...)`` is given: one loss of the model, ``data`` and what was
        drawn, called in eval mode. Without it a balance with alignment is not stacked.
    """

    model: nn.Module
    draw: Callable[[], Tensors]
    losses: Callable[[nn.Module, Tensors, Tensors], Losses]
    metrics: Callable[[nn.Module, Tensors], Tensors]
    optimizer: Callable[[Sequence[Tensor]], Optimizer]
    steps: int
    schedule: Callable[[Optimizer], LRScheduler] | None = None
    data: Tensors = dataclasses.field(default_factory=dict)
    report: Callable[[nn.Module, Tensors], Tensors] | None = None
    report_every: int = 0
    validation: Callable[[nn.Module, Tensors, Tensors], Tensor] | None = None


#: What makes the parts of a seed, from the seed and the task's settings.
Parts = Callable[..., Stackable]

_known: dict[TrainFunction, Parts] = {}
RECIPES = "trainonce.recipes"


def stack(task: Task) -> Callable[[Parts], Parts]:
    """Say how a task's trials are stacked. Decorates a function of a seed and the task's settings.

    >>> from trainonce.study import task
    >>> @task(terms=["fit", "small"], metric="error", direction="minimize")
    ... def line(trial, *, steps=100):
    ...     \"\"\"A straight line.\"\"\"
    >>> @stack(line)
    ... def parts(seed, *, steps): ...
    >>> find(line) is parts
    True
    """

    def keep(parts: Parts) -> Parts:
        _known[task.function] = parts
        return parts

    return keep


def find(task: Task) -> Parts | None:
    """What makes the parts of a task; that of a recipe is in a file of its own."""
    package, _, name = task.function.__module__.rpartition(".")
    where = f"{RECIPES}.stacks.{name}"
    if task.function not in _known and package == RECIPES and importlib.util.find_spec(where) is not None:
        importlib.import_module(where)
    return _known.get(task.function)


def make(task: Task, seed: int) -> Stackable:
    """The parts of a seed."""
    parts = find(task)
    assert parts is not None
    return parts(seed, **copy.deepcopy(dict(task.settings)))
