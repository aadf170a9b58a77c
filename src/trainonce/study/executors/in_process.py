"""Trials in this process, one after the other: for notebooks, debuggers and tasks that are in no file."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from trainonce.study import torchrun
from trainonce.study.executors import run_trial
from trainonce.study.executors.base import Event, Job
from trainonce.study.executors.task_location import TaskLocation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trainonce.study.executors.tools import Tools
    from trainonce.study.store import Store
    from trainonce.study.task import Task


class InProcess:
    """The executor without other processes: a started job is run when its events are asked for."""

    def __init__(self, task: Task, store: Store, tools: Tools, preload: Sequence[str] = ()) -> None:
        self._task, self._store, self._device = task, store, tools.devices[0]
        self._job: Job | None = None

    @property
    def has_room(self) -> bool:
        return self._job is None

    @property
    def is_idle(self) -> bool:
        return self._job is None

    def start(self, job: Job) -> None:
        self._job = job

    def events(self) -> Iterator[tuple[str, Event]]:
        assert self._job is not None
        job, self._job = self._job, None
        event = run_trial.run(self._task, job, self._store, self._device)
        gc.collect()  # a model and its optimizer hold each other, and the device's memory with them
        failed = event.content.error if event.kind == "end" and event.content.status == "failed" else None
        if failed is not None and torchrun.world_size() > 1:
            text = f"The trial failed, and with it those of the other processes: {failed['message']}"
            event = Event("stop", text)
        yield job.key, event
        if event.kind == "end" and event.content.status == "failed" and not run_trial.device_works(self._device):
            what = f"After this failure {self._device} does not answer in this process any more; start the study again."
            alone = " With 1 worker each training has a process of its own."
            yield job.key, Event("stop", what + (alone if TaskLocation.of(self._task) is not None else ""))

    def stop(self) -> None:
        self._job = None
