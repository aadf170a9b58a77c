"""Running the trials of a study: what is ready goes to the executor, what comes back to the schedule."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Protocol

from trainonce.study.schedule import POLL, Item, Schedule
from trainonce.study.weightings.peers import Peer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainonce.study.executors.tools import Tools
    from trainonce.study.record import Record
    from trainonce.study.store import Store
    from trainonce.study.task import Task


class Listener(Protocol):
    """What follows the progress of a study, such as a display."""

    def on_start(self, key: str, label: str, seed: int) -> None: ...
    def on_progress(self, key: str, step: int, total: int | None, note: str) -> None: ...
    def on_end(self, record: Record, label: str, left: float) -> None: ...
    def on_skip(self, label: str, seed: int, why: str) -> None: ...
    def on_wait(self, count: int) -> None: ...


class StoppedError(RuntimeError):
    """The study cannot go on: a finished trial could not be recorded, or the task was changed meanwhile."""


def run(task: Task, store: Store, everything: Sequence[Item], tools: Tools, listener: Listener) -> None:
    """Run whatever is missing or has failed."""
    schedule = Schedule(everything, store.read())
    labels: dict[str, str] = {}
    start, count = time.monotonic(), 0
    with tools.open(task, store, _preload(task, everything)) as executor:
        while True:
            while executor.has_room and (found := schedule.next()) is not None:
                job, label = found
                labels[job.key] = label
                with store.claim(job.key) as free:
                    pass
                if free:
                    executor.start(job)
                    listener.on_start(job.key, label, job.seed)
                else:
                    _check_again(schedule, store, job.key, label, listener)
            for skip in schedule.skipped:
                listener.on_skip(*skip)
            schedule.skipped.clear()
            if executor.is_idle:
                if schedule.is_finished:
                    return
                listener.on_wait(schedule.elsewhere)
                time.sleep(POLL)
                continue
            for key, event in executor.events():
                if event.kind == "beat":
                    listener.on_progress(key, *event.content)
                elif event.kind == "stop":
                    raise StoppedError(event.content)
                elif event.kind == "taken":
                    _check_again(schedule, store, key, labels[key], listener)
                else:
                    schedule.close(key, event.content)
                    count += 1
                    seconds = (time.monotonic() - start) / count
                    listener.on_end(event.content, labels[key], seconds * schedule.left)


def _preload(task: Task, everything: Sequence[Item]) -> list[str]:
    """What the trials will import. torch loads its compiler when an optimizer first steps, which takes a second."""
    searches = ["optuna"] if any(item.search is not None for item in everything) else []
    peers = ["torchjd.scalarization"] if any(isinstance(item.weighting, Peer) for item in everything) else []
    return ["torch._dynamo", *searches, *peers, *task.preload]


def _check_again(schedule: Schedule, store: Store, key: str, label: str, listener: Listener) -> None:
    """Another process has the trial: take its record if it has just ended, or check again later."""
    record = store.read().get(key)
    if record is None or (record.status == "failed" and record.ended <= schedule.since):
        schedule.postpone(key)
    else:
        schedule.close(key, record)
        listener.on_end(record, label, math.nan)
