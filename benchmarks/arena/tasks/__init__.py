"""The tasks by name, choosing before judging; each file is imported when its task is asked for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, cast

from benchmarks.arena.split import CHOOSING, JUDGING

if TYPE_CHECKING:
    from benchmarks.arena.task import Task

NAMES = (*CHOOSING, *JUDGING)


def get(name: str) -> Task:
    """The task of a name."""
    if name not in NAMES:
        raise ValueError(f"The arena has the tasks {', '.join(NAMES)}; got {name!r}.")
    return cast("Task", importlib.import_module(f"{__name__}.{name}").TASK)
