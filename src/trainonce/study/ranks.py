"""Trials on several devices at once: one process each, started by torchrun; the first leads and records.

The first process runs the study as ever, in itself. Before each trial it tells the others what to train; they run the
task's function beside it, with a folder that is thrown away, and nothing of theirs is recorded.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import distributed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainonce.study.points import Point
    from trainonce.study.task import Task

T = TypeVar("T")


def count() -> int:
    """How many processes train together."""
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def is_first() -> bool:
    return count() == 1 or distributed.get_rank() == 0


def from_first(content: T) -> T:
    """What the first process has, for all of them."""
    if count() == 1:
        return content
    box: list[Any] = [content]
    distributed.broadcast_object_list(box)
    return box[0]  # type: ignore[no-any-return]


@contextlib.contextmanager
def joined() -> Iterator[str | None]:
    """Join the processes that torchrun has started, if it has; gives the device of this one."""
    if int(os.environ.get("WORLD_SIZE", "1")) < 2 or "RANK" not in os.environ:
        yield None
        return
    gpu = torch.cuda.is_available()
    device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if gpu else "cpu"
    if gpu:
        torch.cuda.set_device(device)
    distributed.init_process_group("nccl" if gpu else "gloo")
    yield device
    distributed.destroy_process_group()  # not after an error: it would wait for the others


def announce(point: Point | None, seed: int = 0, source: str | None = None) -> None:
    """Tell the others what is trained next; None: nothing any more."""
    if count() > 1:
        from_first((point, seed, source))


def follow(task: Task, device: str) -> None:
    """Train whatever the first process announces, until it announces the end."""
    from trainonce.study.trial import Trial, seed_everything

    while True:
        point, seed, source = from_first((None, 0, None))
        if point is None:
            return
        with tempfile.TemporaryDirectory() as folder:
            where = None if source is None else Path(source)
            trial = Trial(task, point, seed, dir=Path(folder), device=device, source=where)
            seed_everything(seed)
            task(trial)
            if trial.history is not None:
                trial.history.flush()  # now, while it is known that the first process writes
