"""Running the trials of a study: what is ready goes to the executor, what comes back to the schedule."""

from __future__ import annotations

import dataclasses
import math
import re
import time
from typing import TYPE_CHECKING, Protocol

from trainonce.errors import SameFailureError, StoppedError
from trainonce.study.peers import PEERS
from trainonce.study.schedule import POLL, Item, Schedule
from trainonce.study.signals import keep_signals

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from trainonce.study.executors.base import Job
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
    def on_note(self, text: str) -> None: ...


class News:
    """What any process has recorded since the store was last read as a whole: its place in the file decides, no clock.

    ``position`` is how far it has read.
    """

    def __init__(self, store: Store) -> None:
        self._store, self.position = store, store.position
        self._records: dict[str, list[Record]] = {}

    def find(self, key: str) -> list[Record]:
        """Return the new records of a trial."""
        records, self.position = self._store.read_since(self.position)
        for record in records:
            self._records.setdefault(record.key, []).append(record)
        return self._records.get(key, [])


class Failures:
    """Whether the trials of a study fail one after the other in the same way, and none has ever succeeded."""

    def __init__(self, known: Iterable[Record]) -> None:
        self._hopeless = not any(record.status != "failed" for record in known)
        self._last: Mapping[str, str] | None = None
        self._count = 0

    def add(self, record: Record) -> str:
        """Take a trial that has ended; what they all failed of, once that is clear."""
        if record.status != "failed" or record.error is None:
            self._hopeless = False
            return ""
        self._count = self._count + 1 if self._last is not None and is_same(record.error, self._last) else 1
        self._last = record.error
        first_line = record.error["message"].partition("\n")[0]
        return f"{record.error['type']}: {first_line}" if self._hopeless and self._count >= SAME else ""


SAME = 3  # failures after which there is no hope for the other trials


def is_same(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether two errors are of one type, and raised by one line or with one message but for paths and numbers."""
    if one["type"] != other["type"]:
        return False
    place = _place(one)
    return (place is not None and place == _place(other)) or _outline(one["message"]) == _outline(other["message"])


def _place(error: Mapping[str, str]) -> tuple[str, str] | None:
    """The file and the line that raised."""
    found: list[tuple[str, str]] = re.findall(r'File "([^"\n]+)", line (\d+)', error.get("traceback", ""))
    return found[-1] if found else None


def _outline(message: str) -> str:
    """A message without what differs between trials: paths, numbers, and words with a digit such as a hash."""
    return re.sub(r"\S*[/\\]\S*|[-+]?\w*\d[\w.+-]*", "...", message)


def run(
    task: Task,
    store: Store,
    everything: Sequence[Item],
    tools: Tools,
    listener: Listener,
    *,
    keep_going: bool = False,
    wait: bool = True,
) -> int:
    """Run whatever is missing or has failed, and return how many trials other processes are still running.

    Unless told to keep going, until that is hopeless; unless told not to wait, until nobody runs any.
    """
    schedule, news = Schedule(task, everything, store.read_all()), News(store)
    failures = Failures(record for item in everything for key in item.keys if (record := schedule.records.get(key)))
    started: dict[str, tuple[Job, str]] = {}
    start, count, idle = time.monotonic(), 0, 0
    with keep_signals() as check_signals, tools.open(task, store, _preload(task, everything)) as executor:
        while True:
            check_signals()
            while executor.has_room and (found := schedule.next()) is not None:
                job, label = found
                started[job.key] = found
                with store.claim(job.key) as free:
                    pass
                if not free or any(map(job.is_done, news.find(job.key))):
                    _check_again(schedule, news, job, label, listener)
                else:
                    executor.start(dataclasses.replace(job, since=news.position))
                    listener.on_start(job.key, label, job.seed)
            for skip in schedule.skipped:
                listener.on_skip(*skip)
            schedule.skipped.clear()
            if executor.is_idle:
                if schedule.is_finished:
                    return 0
                if idle and not wait:  # all others have been looked at since the last trial here ended
                    return schedule.elsewhere
                if wait:
                    listener.on_wait(schedule.elsewhere)
                time.sleep(POLL)
                idle += 1
                continue
            idle = 0
            for key, event in executor.events():
                if event.kind == "beat":
                    listener.on_progress(key, *event.content)
                elif event.kind == "note":
                    listener.on_note(event.content)
                elif event.kind == "stop":
                    raise StoppedError(event.content)
                elif event.kind == "taken":
                    _check_again(schedule, news, *started[key], listener)
                else:
                    schedule.close(key, [event.content] if event.kind == "end" else news.find(key))
                    count += 1
                    seconds = (time.monotonic() - start) / count
                    listener.on_end(event.content, started[key][1], seconds * schedule.left)
                    if (failure := failures.add(event.content)) and schedule.left and not keep_going:
                        raise SameFailureError(
                            f"The first {SAME} trials failed in the same way, so the study has stopped. {failure}"
                        )


def _preload(task: Task, everything: Sequence[Item]) -> list[str]:
    """What the trials will import. torch loads its compiler when an optimizer first steps, which takes a second."""
    searches = ["optuna"] if any(item.search is not None and not item.search.rungs for item in everything) else []
    peers = (
        ["torchjd.scalarization"]
        if any(item.rule is not None and item.rule.name in PEERS for item in everything)
        else []
    )
    return ["torch._dynamo", *CORE, *searches, *peers, *task.preload]


#: What ``import trainonce`` leaves for later, and every trial uses, or the file of its task.
CORE = (
    "trainonce.attachment",
    "trainonce.balance.rule",
    "trainonce.composite",
    "trainonce.fixed",
    "trainonce.history",
    "trainonce.optim",
    "trainonce.parameters",
    "trainonce.study.study",
    "trainonce.weighting",
)


def _check_again(schedule: Schedule, news: News, job: Job, label: str, listener: Listener) -> None:
    """Another process has or had the trial: take its records, or check again later."""
    found = news.find(job.key)
    if any(map(job.is_done, found)):
        schedule.close(job.key, found)
        listener.on_end(found[-1], label, math.nan)
    else:
        schedule.postpone(job.key)
