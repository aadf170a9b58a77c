"""What the arena asks of a task: pure functions, so that many trainings run side by side as one batched model.

A stack trains S seeds times P points at once. The model's parameters have the shape ``(S, P, ...)``, data and draws
``(S, ...)``; :mod:`benchmarks.arena.stack` maps the functions of a task over both with ``torch.func.vmap``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Protocol

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable

Tensors = dict[str, Tensor]
Split = Literal["validation", "test"]


class Net(Protocol):
    """The model with its parameters in place; call it as the module."""

    def __call__(self, *args: Tensor | str) -> Tensor: ...


@dataclass(frozen=True)
class Task:
    """One task. Every function but ``data`` and ``model`` works under ``torch.func.vmap``.

    :param terms: The names of the losses, base first where ``base`` names no other.
    :param base: The base, where it is not the first of ``terms``; :func:`with_base` puts it there.
    :param metric: What ``score`` gives, with its unit, such as ``"accuracy, %"``.
    :param higher: Whether a higher score is better.
    :param steps: The length of a training.
    :param lr: Adam's learning rate, chosen with equal weights on the seeds 0 to 2; it falls to 0 along half a cosine.
    :param betas: Adam's.
    :param sgd_lr: The same for SGD with momentum 0.9, for the tasks that are run with it too.
    :param shared: The beginnings of the names of the parameters that every term reaches.
    :param last: The beginning of the names of the last layer among them.
    :param data: The data of a seed, train, validation and test, in memory; the same shapes for every seed.
    :param model: A new module; the arena seeds torch before the call.
    :param draw: What is random in a step: indices of a batch, noise. From the generator alone, on the CPU.
    :param losses: The losses of a step, shape ``(K + 1,)``.
    :param held_out: The base loss on a batch of validation data; it may use the entries of ``draw`` made for it.
    :param score: The metric on a split.
    """

    name: str
    terms: tuple[str, ...]
    metric: str
    higher: bool
    steps: int
    lr: float
    shared: tuple[str, ...]
    last: tuple[str, ...]
    data: Callable[[int], Tensors]
    model: Callable[[], nn.Module]
    draw: Callable[[torch.Generator], Tensors]
    losses: Callable[[Net, Tensors, Tensors], Tensor]
    held_out: Callable[[Net, Tensors, Tensors], Tensor]
    score: Callable[[Net, Tensors, Split], Tensor]
    sgd_lr: float | None = None
    betas: tuple[float, float] = (0.9, 0.999)
    base: str | None = None


def with_base(task: Task, base: str | None = None) -> Task:
    """Return the task with its base, or with the term that is asked for, first among its terms and losses.

    ``base`` of what is returned is None where this is the order of terms in the task's file: that of the first records,
    which name no base.
    """
    base = base or task.base or task.terms[0]
    if base not in task.terms:
        raise ValueError(f"{task.name} has the terms {', '.join(task.terms)}; got {base}.")
    order = sorted(range(len(task.terms)), key=lambda i: task.terms[i] != base)
    if order[0] == 0:
        return replace(task, base=base if base == task.base else None)

    def losses(net: Net, data: Tensors, draw: Tensors) -> Tensor:
        found = task.losses(net, data, draw)
        return torch.stack([found[i] for i in order])

    return replace(task, terms=tuple(task.terms[i] for i in order), losses=losses, base=base)
