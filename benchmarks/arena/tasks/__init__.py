"""The tasks by name, in the order of the groups of ``split``; each file is imported when its task is asked for."""

from __future__ import annotations

import importlib

from benchmarks.arena.split import CHOOSING, JUDGED, JUDGING
from benchmarks.arena.task import Task, with_base

NAMES = (*CHOOSING, *JUDGED, *JUDGING)


def get(name: str, base: str | None = None) -> Task:
    """Return the task of a name, its base first; ``base`` asks for another one than the task's."""
    if name not in NAMES:
        raise ValueError(f"The arena has the tasks {', '.join(NAMES)}; got {name!r}.")
    task: Task = importlib.import_module(f"{__name__}.{name}").TASK
    return with_base(task, base)
