"""The tasks by name, in the order of the groups of ``split``; each file is imported when its task is asked for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, cast

from benchmarks.arena.split import CHOOSING, JUDGED, JUDGING

if TYPE_CHECKING:
    from benchmarks.arena.task import Task

NAMES = (*CHOOSING, *JUDGED, *JUDGING)


def get(name: str) -> Task:
    """The task of a name."""
    if name not in NAMES:
        raise ValueError(f"The arena has the tasks {', '.join(NAMES)}; got {name!r}.")
    return cast("Task", importlib.import_module(f"{__name__}.{name}").TASK)
