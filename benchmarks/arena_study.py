"""The arena's small tasks as tasks of a study, which train one by one or stacked.

    trainonce compare benchmarks.arena_study:fashion --plans balance uniform grid --executor stacked

MNIST and Fashion-MNIST are read from the folder that ``TRAINONCE_DATA`` names. The arena itself trains with rules that
no study has, so it has an engine of its own; this is for its tasks under the library's.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from benchmarks.arena import tasks
from benchmarks.arena.draws import OFFSET
from trainonce.study import Trial, task
from trainonce.study.stacked import Stackable, stack

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

    from benchmarks.arena.task import Task, Tensors
    from trainonce.study import Task as StudyTask

SPLITS = ("validation", "test")
REPORTS = 27  # of a training, as ASHA's three rungs of 1, 3 and 9 want them


def study_task(arena: Task) -> StudyTask:
    """A task of the arena for the study, with its parts for stacks."""
    metric, _, unit = arena.metric.partition(", ")
    keys = {split: f"{split}/{metric}" for split in SPLITS}

    def train(trial: Trial, *, steps: int = arena.steps, lr: float = arena.lr) -> dict[str, float]:
        def move(tensors: Tensors) -> Tensors:
            return {name: value.to(trial.device) for name, value in tensors.items()}

        @torch.no_grad()
        def score(split: str) -> float:
            return arena.score(model, data, split).item()  # type: ignore[arg-type]

        data, model, rng = (
            move(arena.data(trial.seed)),
            new_model(arena, trial.seed).to(trial.device),
            draws(trial.seed),
        )
        drawn: Tensors = {}
        criterion = trial.criterion(validation=lambda: arena.held_out(model, data, drawn))
        optimizer = adam(arena, lr)(list(model.parameters()))
        trial.attach(optimizer)
        schedule = half_cosine(steps)(optimizer)
        for step in trial.loop([model, schedule, rng]):
            drawn = move(arena.draw(rng))
            optimizer.zero_grad()
            criterion(arena.losses(model, data, drawn)).backward()
            optimizer.step()
            schedule.step()
            if (step + 1) % report_every(steps) == 0:
                trial.report(step + 1, **{metric: score("validation")})
        return {key: score(split) for split, key in keys.items()}

    def parts(seed: int, *, steps: int, lr: float) -> Stackable:
        rng = draws(seed)
        return Stackable(
            new_model(arena, seed),
            lambda: arena.draw(rng),
            arena.losses,
            lambda model, data: {key: arena.score(model, data, split) for split, key in keys.items()},
            adam(arena, lr),
            steps,
            half_cosine(steps),
            arena.data(seed),
            lambda model, data: {metric: arena.score(model, data, "validation")},
            report_every(steps),
            arena.held_out,
        )

    train.__doc__ = f"The arena's {arena.name}."
    direction = "maximize" if arena.higher else "minimize"
    made = task(terms=arena.terms, metric=metric, direction=direction, unit=unit[:1], version=1, name=arena.name)(train)
    stack(made)(parts)
    return made


def new_model(arena: Task, seed: int) -> torch.nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return arena.model()


def draws(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(OFFSET + seed)


def adam(arena: Task, lr: float) -> Callable[[list[Tensor]], Optimizer]:
    return lambda parameters: torch.optim.Adam(parameters, lr=lr, betas=arena.betas)


def half_cosine(steps: int) -> Callable[[Optimizer], LRScheduler]:
    def factor(step: int) -> float:
        return (1 + math.cos(math.pi * step / steps)) / 2

    return lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def report_every(steps: int) -> int:
    return max(1, steps // REPORTS)


for _name in tasks.NAMES:
    globals()[_name] = study_task(tasks.get(_name))
