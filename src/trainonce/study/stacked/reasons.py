"""Why a trial or a task cannot be stacked, each in a sentence; None where it can."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from trainonce.optim import SGDW
from trainonce.study import layout
from trainonce.study.stacked.kinds import KINDS
from trainonce.study.stacked.stackable import find
from trainonce.text import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

    from trainonce.study.executors.base import Job
    from trainonce.study.task import Task

#: Optimizers that treat every entry of a parameter by itself.
BY_ENTRY = (
    torch.optim.SGD,
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.NAdam,
    torch.optim.RAdam,
    torch.optim.Adamax,
    torch.optim.Adagrad,
    torch.optim.RMSprop,
    SGDW,
)
#: Whether the task has a validation loss, only its training function knows.
NO_VALIDATION = "a balance is aligned by a validation loss, which the parts of the task lack; travel=0 does without"
_RANDOM = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout, nn.RReLU)


class NotStackableError(Exception):
    """The trials must be trained one by one; the message says why."""


def of_task(task: Task) -> str | None:
    """Why none of a task's trials can be stacked."""
    if find(task) is None:
        return f"the task {task.name!r} has no parts to stack; see trainonce.study.stacked.stack"
    return None


def of_job(job: Job) -> str | None:
    """Why this trial cannot be stacked although its task can."""
    if job.search is not None:
        return "a search needs the results of earlier trials, or pauses its trials"
    assert job.rule is not None
    return None if job.rule.name in KINDS else f"the rule {job.rule.name!r} trains one by one"


def of_folder(folder: Path) -> str | None:
    """Why the trial with this folder cannot be stacked now."""
    return "what was interrupted goes on from its checkpoint" if (folder / layout.CHECKPOINT).is_file() else None


def of_optimizer(optimizer: Optimizer) -> str | None:
    if type(optimizer) not in BY_ENTRY:
        known = quoted(kind.__name__ for kind in BY_ENTRY)
        return f"{type(optimizer).__name__} may mix the entries of a parameter; stacked are {known}"
    if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
        return "the optimizer has a hook, which would see all models at once"
    return None


def of_model(model: nn.Module) -> str | None:
    for module in model.modules():
        if isinstance(module, _RANDOM):
            return f"{type(module).__name__} draws random numbers in a way that cannot be repeated side by side"
        if isinstance(module, nn.RNNBase):
            return f"torch.func.vmap cannot map {type(module).__name__}"
    return None


def of_schedule(schedule: LRScheduler) -> str | None:
    if isinstance(schedule, torch.optim.lr_scheduler.ReduceLROnPlateau):
        return "ReduceLROnPlateau follows a metric, and models side by side have one learning rate"
    return None


def of_tensors(where: str, name: str, values: Sequence[object]) -> str | None:
    """Why what the seeds have under one name cannot become one tensor."""
    for value in values:
        if not isinstance(value, Tensor):
            kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
            return f"{where} must give tensors, and {name!r} is a {kind}"
    shapes = {tuple(value.shape): None for value in values if isinstance(value, Tensor)}
    if len(shapes) > 1:
        found = " and ".join(map(str, list(shapes)[:2]))
        return f"{name!r} of {where} does not have the same shape in all seeds: {found}"
    return None


def of_error(error: Exception) -> str:
    """Why a stack could not be trained, from what it raised."""
    text = str(error).strip().partition("\n")[0].rstrip(".")
    if isinstance(error, NotStackableError):
        return text
    if "randomness" in text:  # vmap's own sentence speaks of its arguments
        return "the model or its losses draw random numbers by themselves, such as the dropout of attention"
    return f"side by side they raise {type(error).__name__}: {text}"
