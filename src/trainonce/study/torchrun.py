"""Trials on several devices at once: one process each, started by torchrun; the first leads and records.

The first process runs the study within itself, as without torchrun. Before each trial it sends the others what to
train; they run the task's function beside it, in a temporary folder, and nothing of theirs is recorded.
"""

from __future__ import annotations

import contextlib
import gc
import os
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import distributed

from trainonce.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainonce.study.rules import Rule
    from trainonce.study.task import Task

T = TypeVar("T")

#: Messages between the processes go over a group of their own: the others may have to wait for days while the first
#: reads data or writes a report, and collectives of a training should not.
MESSAGE_TIMEOUT = timedelta(days=30)
_messages: Any = None
_training = False


def world_size() -> int:
    """How many processes train together."""
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def is_first() -> bool:
    return rank() == 0


def rank() -> int:
    """Which of them this process is."""
    return distributed.get_rank() if world_size() > 1 else 0


def broadcast(content: T) -> T:
    """What the first process has, for all of them."""
    if world_size() == 1:
        return content
    box: list[Any] = [content]
    distributed.broadcast_object_list(box, group=_messages)
    return box[0]  # type: ignore[no-any-return]


def gather(content: T) -> list[T]:
    """What each process has, in the order of their ranks; only the first receives it."""
    if world_size() == 1:
        return [content]
    box: list[Any] | None = [None] * world_size() if is_first() else None
    distributed.gather_object(content, box, group=_messages)
    return box or []


@contextlib.contextmanager
def process_group(wanted: str | None) -> Iterator[str | None]:
    """Join the processes that torchrun has started, if it has; gives the device of this one.

    :param wanted: ``"cpu"``, or None for a GPU each where there are any.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) < 2 or "RANK" not in os.environ:
        yield None
        return
    device = _device(wanted)
    distributed.init_process_group("gloo" if device == "cpu" else "nccl")
    global _messages
    _messages = distributed.new_group(backend="gloo", timeout=MESSAGE_TIMEOUT)
    yield device
    _messages = None
    gc.collect()  # DistributedDataParallel lies in a cycle, and while it lives gloo's threads outlive the group
    distributed.destroy_process_group()  # not after an error: it would wait for the others


def _device(wanted: str | None) -> str:
    if wanted == "cpu" or not torch.cuda.is_available():
        return "cpu"
    if wanted not in (None, "cuda"):
        raise ValueError(
            f"Under torchrun each process has a device of its own; --device is cpu or cuda, not {wanted!r}."
        )
    local, there = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if local >= there:
        raise ValueError(f"torchrun has started more processes here than there are GPUs, {there}; or use --device cpu.")
    torch.cuda.set_device(local)
    return f"cuda:{local}"


def announce(rule: Rule | None, seed: int = 0, source: str | None = None, until: float = 1.0) -> None:
    """Tell the others what is trained next; None: nothing any more."""
    global _training
    if world_size() > 1:
        broadcast((rule, seed, source, until))
        _training = rule is not None


def end_trial() -> None:
    """The trial has ended in all processes: the others wait for the next."""
    global _training
    _training = False


def dismiss() -> None:
    """Something went wrong in the first process: let the others go, if they listen."""
    if world_size() > 1 and not _training:
        with contextlib.suppress(RuntimeError):  # they may be gone
            announce(None)


def follow(task: Task | None, device: str) -> int:
    """Train whatever the first process announces, until it announces the end. Without a task there will be nothing."""
    from trainonce.random_states import seed_everything
    from trainonce.study.trial import Trial

    while True:
        rule, seed, source, until = broadcast((None, 0, None, 1.0))
        if rule is None:
            return int(task is None)
        assert task is not None
        with tempfile.TemporaryDirectory() as folder:
            where = None if source is None else Path(source)
            trial = Trial(task, rule, seed, dir=Path(folder), device=device, source=where, until=until)
            seed_everything(seed)
            with contextlib.suppress(InputError):  # the first process meets the same error and reports it
                task(trial)
            if trial.history is not None:
                trial.history.flush()  # now, while it is known that the first process writes
