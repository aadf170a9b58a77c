"""A task with something changed: loss scales, optimizer, learning rate, length; and the optimizer that follows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.arena.task import Task


@dataclass(frozen=True)
class Variant:
    """What is changed of a task: factors of its losses by term, the optimizer, its learning rate, the steps.

    ``base`` is that of :func:`~benchmarks.arena.task.with_base`: None for the order of terms in the task's file.
    """

    scale: Mapping[str, float] = field(default_factory=dict)
    optimizer: str = "adam"
    lr: float | None = None
    steps: int | None = None
    base: str | None = None

    def __str__(self) -> str:
        parts = [self.optimizer, *(f"{term} x{factor:g}" for term, factor in sorted(self.scale.items()))]
        parts += [] if self.lr is None else [f"lr {self.lr:g}"]
        parts += [] if self.steps is None else [f"{self.steps} steps"]
        parts += [] if self.base is None else [f"base {self.base}"]
        return ", ".join(parts)


def learning_rate(task: Task, optimizer: str) -> float:
    if optimizer == "adam":
        return task.lr
    if task.sgd_lr is None:
        raise ValueError(f"{task.name} has no learning rate for SGD; give one with --lr.")
    return task.sgd_lr


def factors(task: Task, variant: Variant) -> list[float]:
    unknown = [term for term in variant.scale if term not in task.terms]
    if unknown:
        raise ValueError(f"{task.name} has the terms {', '.join(task.terms)}; got {', '.join(unknown)}.")
    return [variant.scale.get(term, 1.0) for term in task.terms]


def make_optimizer(
    name: str, trained: list[Tensor], lr: float | Tensor, betas: tuple[float, float]
) -> torch.optim.Optimizer:
    """On a GPU, where the learning rate is a tensor, the fused kernels, which a CUDA graph can hold."""
    gpu = isinstance(lr, Tensor)
    kind: dict[str, Any] = {"fused": True} if gpu else {"foreach": True}
    if name == "adam":
        return torch.optim.Adam(trained, lr=lr, betas=betas, capturable=gpu, **kind)
    if name == "sgd":
        return torch.optim.SGD(trained, lr=lr, momentum=0.9, **kind)
    raise ValueError(f"The optimizers are adam and sgd; got {name!r}.")
