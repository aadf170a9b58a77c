"""Which executor a study uses, with how many workers, on which devices."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from typing import TYPE_CHECKING, Any

import torch

from trainonce.study.executors.in_process import InProcess
from trainonce.study.executors.options import CONCURRENT, TAKES, check_options
from trainonce.study.executors.processes import Processes
from trainonce.study.executors.ray import Ray
from trainonce.study.executors.sent_task import SentTask
from trainonce.study.executors.stacked import Stacked
from trainonce.study.executors.task_location import TaskLocation
from trainonce.text import did_you_mean, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from trainonce.study.executors.base import Executor
    from trainonce.study.store import Store
    from trainonce.study.task import Task

#: Every executor by name: what makes it from a task, a store, the tools and the modules that trials will import.
EXECUTORS: dict[str, Callable[[Task, Store, Tools, list[str]], Executor]] = {
    "in-process": InProcess,
    "processes": lambda task, *given: Processes(SentTask.of(task), *given),
    "stacked": Stacked,
    "ray": Ray,
}


#: Those that train a trial over several processes.
RANKS = ("ray",)


@dataclasses.dataclass(frozen=True)
class Tools:
    """How to run: by which executor, how many trials at a time, on which devices, processes started in which way."""

    executor: str
    workers: int
    devices: tuple[str, ...]
    start: str = "forkserver"
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # of the executor, by name

    @classmethod
    def choose(
        cls,
        task: Task,
        workers: int | None = None,
        device: str | None = None,
        start: str = "forkserver",
        executor: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Tools:
        """The tools for what was asked; where nothing was, a process a core on the CPU, at most 8, or one a GPU.

        Without a name the executor is ``"in-process"`` for 0 workers and for a task that other processes cannot load,
        else ``"processes"``. One that takes options runs on a cluster, whose devices this process cannot see.
        """
        if executor is not None and executor not in EXECUTORS:
            raise ValueError(
                f"There is no executor {executor!r}; there are: {quoted(EXECUTORS)}.{did_you_mean(executor, EXECUTORS)}"
            )
        check_options(executor or "processes", options or {})
        if task.ranks > 1 and executor not in RANKS:
            raise ValueError(
                f"A training over {task.ranks} processes needs the executor {quoted(RANKS)}; without it, start the "
                "command with torchrun."
            )
        if executor in TAKES:
            return cls._of_cluster(executor, task, workers, device, options or {})
        devices = (device,) if device is not None else tuple(f"cuda:{i}" for i in range(torch.cuda.device_count()))
        devices = devices or ("cpu",)
        _check_device(devices[0])
        if workers is not None and (not isinstance(workers, int) or workers < 0):
            raise ValueError(f"workers is how many trainings run at a time, 0 for in this process; got {workers!r}.")
        if executor == "in-process" and workers:
            raise ValueError(f"The executor 'in-process' trains in this process: use workers=0; got {workers}.")
        if executor == "stacked" and (workers == 0 or TaskLocation.of(task) is None):
            return cls("stacked", 0, devices, start)  # what cannot be stacked trains in this process, too
        if executor not in (None, "in-process") and workers == 0:
            raise ValueError(f"The executor {executor!r} needs at least 1 worker; got 0.")
        alone = executor == "in-process" or workers == 0
        if not alone and TaskLocation.of(task) is None:
            if workers is not None or executor is not None:
                raise _not_in_a_file(task)
            alone = True
        if alone:
            return cls("in-process", 0, devices, start)
        if workers is None:
            workers = min(cores(), 8) if devices[0] == "cpu" else len(devices)
        return cls(executor or "processes", workers, devices, start)

    @classmethod
    def _of_cluster(
        cls, executor: str, task: Task, workers: int | None, device: str | None, options: Mapping[str, Any]
    ) -> Tools:
        if workers is not None:
            raise ValueError(
                f"The executor {executor!r} takes max_concurrent, how many trainings run at a time, and no workers; "
                f"got {workers} workers."
            )
        if TaskLocation.of(task) is None:
            raise _not_in_a_file(task)
        kind = "cuda" if options.get("gpus") else "cpu"
        if device not in (None, kind):
            raise ValueError(
                f"The executor {executor!r} takes gpus, how many GPUs a training has, and no device; got {device!r}."
            )
        return cls(executor, options.get("max_concurrent", CONCURRENT), (kind,), options=dict(options))

    @property
    def threads(self) -> int:
        """How many CPU threads each worker may use: its part of the cores, and no more than OMP_NUM_THREADS."""
        most, asked = max(1, cores() // max(1, self.workers)), os.environ.get("OMP_NUM_THREADS", "")
        return min(most, max(1, int(asked))) if asked.isdecimal() else most

    @contextlib.contextmanager
    def open(self, task: Task, store: Store, preload: list[str]) -> Iterator[Executor]:
        """The executor, stopped at the end of the block however it ends."""
        executor = EXECUTORS[self.executor](task, store, self, preload)
        try:
            yield executor
        finally:
            executor.stop()


def _not_in_a_file(task: Task) -> ValueError:
    return ValueError(
        f"The task {task.name!r} is not in a file, so other processes cannot load it. Put it into a .py file, or train "
        "in this process, with 0 workers."
    )


def cores() -> int:
    """How many CPU cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _check_device(device: str) -> None:
    try:
        kind = torch.device(device).type
    except RuntimeError:
        raise ValueError(f"There is no device {device!r}: use 'cpu', 'cuda' or 'cuda:0'.") from None
    if kind == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"The device {device!r} was asked for, but torch finds no CUDA device here. Use 'cpu'.")
