"""Trials side by side in one process, as one batched model; those that cannot be stacked run as they would without."""

from __future__ import annotations

import functools
import gc
import resource
import time
from typing import TYPE_CHECKING

import torch

from trainonce.errors import InputError
from trainonce.history import History
from trainonce.study import layout
from trainonce.study.executors.base import Event, Job
from trainonce.study.executors.claims import Claims
from trainonce.study.executors.in_process import InProcess
from trainonce.study.executors.processes import Processes
from trainonce.study.executors.run_trial import clear, device_name, warnings_of
from trainonce.study.executors.sent_task import SentTask
from trainonce.study.executors.task_location import TaskLocation
from trainonce.study.record import Record, versions
from trainonce.study.stacked import reasons
from trainonce.study.stacked.blocks import Block, blocks_of, name_of
from trainonce.study.stacked.memory import models_that_fit
from trainonce.study.stacked.stackable import make
from trainonce.study.stacked.training import Outcome, StackedTraining
from trainonce.study.trial import check_metrics

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from trainonce.study.executors.base import Executor
    from trainonce.study.executors.tools import Tools
    from trainonce.study.store import Store
    from trainonce.study.task import Task

MOST = 4096  # trials that wait at a time
BEAT = 1.0  # seconds between two signs of life


class Stacked:
    """The executor that collects all trials which can start, and trains them as few stacks.

    A stack that is stopped leaves nothing behind: its trials start anew.
    """

    def __init__(self, task: Task, store: Store, tools: Tools, preload: list[str]) -> None:
        self._task, self._store, self._device = task, store, tools.devices[0]
        self._claims = Claims(store)
        alone = TaskLocation.of(task) is None or tools.workers == 0
        self._others: Executor = (
            InProcess(task, store, tools) if alone else Processes(SentTask.of(task), store, tools, preload)
        )
        self._jobs: list[Job] = []
        self._waiting: list[Job] = []  # for the other executor
        self._notes: list[str] = []
        self._said: set[str] = set()
        self._why = reasons.of_task(task)

    @property
    def has_room(self) -> bool:
        return len(self._jobs) + len(self._waiting) < min(MOST, _claims_that_may_be_open())

    @property
    def is_idle(self) -> bool:
        return not self._jobs and not self._waiting and self._others.is_idle

    def start(self, job: Job) -> None:
        why = self._why or reasons.of_job(job) or reasons.of_folder(self._store.folder(job.key))
        if why is None:
            self._jobs.append(job)
        else:
            self._leave([job], why)

    def _leave(self, jobs: Sequence[Job], why: str) -> None:
        """Let the other executor have some trials, and say why."""
        self._waiting += jobs
        if why not in self._said:
            self._said.add(why)
            self._notes.append(f"Trials that are not stacked: {why}.")

    def events(self) -> Iterator[tuple[str, Event]]:
        for text in self._notes:
            yield "", Event("note", text)
        self._notes.clear()
        if self._jobs:
            yield from self._train_all()
            return
        while self._waiting and self._others.has_room:
            self._others.start(self._waiting.pop(0))
        if not self._others.is_idle:
            yield from self._others.events()

    def stop(self) -> None:
        self._jobs, self._waiting = [], []
        self._claims.close()
        self._others.stop()

    # Stacks

    def _train_all(self) -> Iterator[tuple[str, Event]]:
        jobs, self._jobs = self._jobs, []
        mine = []
        for job in jobs:
            event = self._claims.take(job)
            if event is None:
                mine.append(job)
            else:
                yield job.key, event
        if not mine:
            return
        try:
            room = models_that_fit(functools.partial(make, self._task), self._task.terms, self._device, jobs[0].seed)
            waiting = blocks_of(mine, room)
            while waiting:
                block = waiting.pop(0)
                try:
                    yield from self._train(block)
                except reasons.NotStackableError as error:
                    self._release(block.jobs.values(), error)
                except torch.OutOfMemoryError:
                    if block.models == 1:
                        raise
                    waiting = [*block.halves(), *waiting]
                gc.collect()
        except InputError as error:
            yield jobs[0].key, Event("stop", str(error))
        except Exception as error:  # whatever the task's functions cannot do side by side
            self._release(mine, error)

    def _release(self, jobs: Iterable[Job], error: Exception) -> None:
        """Let the other executor have what has not ended of some trials, and say why."""
        left = [job for job in jobs if self._claims.holds(job.key)]
        for job in left:
            self._claims.release(job.key)
        self._leave(left, reasons.of_error(error))

    def _train(self, block: Block) -> Iterator[tuple[str, Event]]:
        task, start, shown = self._task, time.time(), time.monotonic()
        training = StackedTraining(
            task.terms, block.rules, block.seeds, functools.partial(make, task), self._device, steps=task.steps
        )
        for step in training.run():
            if time.monotonic() - shown > BEAT:
                shown = time.monotonic()
                note = f"{block.models} side by side"
                yield from ((job.key, Event("beat", (step, training.parts.steps, note))) for job in block.jobs.values())
        outcomes = list(training.outcomes())
        seconds = (time.time() - start) / block.models
        for seed, rule, outcome in outcomes:
            job = block.jobs[seed, name_of(rule)]
            try:
                record = self._record(job, outcome, seconds)
            except OSError as error:  # of a full disk, which is no reason to train again
                yield job.key, Event("stop", f"{self._store.folder(job.key)} could not be written: {error.strerror}.")
                return
            yield job.key, self._claims.record(record)

    def _record(self, job: Job, outcome: Outcome, seconds: float) -> Record:
        """Write the history of a trial and return its record."""
        folder = self._store.folder(job.key)
        clear(folder)
        folder.mkdir(parents=True, exist_ok=True)
        history = History(folder / layout.HISTORY)
        history.begin(self._task.terms, outcome.columns)
        history.extend(outcome.rows)
        metrics, not_finite = check_metrics(self._task, outcome.metrics)
        assert job.rule is not None
        return Record(
            key=job.key,
            task=self._task.name,
            rule=job.rule,
            seed=job.seed,
            status="diverged" if not_finite else "done",
            metrics=metrics,
            reports=outcome.reports,
            coefficients=tuple(outcome.coefficients),
            seconds=round(seconds, 3),
            fraction=1.0,
            ended=time.time(),
            device=device_name(self._device),
            versions=versions(),
            warnings=warnings_of(outcome.coefficients),
        )


def _claims_that_may_be_open() -> int:
    """Every claim is an open file; half of those that a process may have are left to others."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return MOST if most == resource.RLIM_INFINITY else max(1, most // 2)
