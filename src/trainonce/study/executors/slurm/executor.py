"""Trials as Slurm jobs: those that are ready together are one array, and a job that is lost has another.

The driver alone writes to the store. What it shares with jobs is :mod:`~trainonce.study.executors.slurm.attempt`: a
folder for each trial, on a file system that the nodes see. A driver that was killed leaves its jobs running; the next
one takes them over, since a place in the queue and hours of training are worth more than a fresh start.
"""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import sys
import time
import uuid
from typing import TYPE_CHECKING

from trainonce.study import layout
from trainonce.study.executors.base import Event, Job
from trainonce.study.executors.processes import postpone_interrupt
from trainonce.study.executors.remote.assignment import Assignment
from trainonce.study.executors.remote.driver_store import DriverStore, check_open_files
from trainonce.study.executors.sent_task import SentTask
from trainonce.study.executors.slurm.attempt import BEAT, BEGAN, CANCEL, END, INTERRUPTED, JOB, TRIAL, Attempt, Given
from trainonce.study.executors.slurm.engines import SubmissionError, open_engine
from trainonce.study.executors.slurm.leftovers import remove_leftovers
from trainonce.study.executors.slurm.parameters import time_of, whole
from trainonce.study.executors.slurm.patience import Patience, insist, is_passing
from trainonce.study.executors.slurm.reasons import say
from trainonce.study.executors.slurm.verdict import Death, judge
from trainonce.study.executors.slurm.worker import NO_PROGRESS, Work
from trainonce.study.executors.task_location import TaskLocation
from trainonce.study.schedule import POLL

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from trainonce.study.executors.tools import Tools
    from trainonce.study.store import Store
    from trainonce.study.task import Task

AGAIN_SECONDS = 30.0  # until a submission that failed is repeated
PATIENCE_SECONDS = 600.0  # how long it is repeated while no job runs
STOP_SECONDS = 15.0  # how long jobs that were cancelled are waited for


@dataclasses.dataclass
class _Running:
    """A trial with its present attempt and job; without a job it is still to be submitted."""

    job: Job
    attempt: Attempt
    id: str = ""
    noted: bool = False  # whether its folder says which job it is
    lost: int = 0  # jobs that the cluster ended
    gone: float | None = None  # when the job was first seen to have ended
    fraction: float = 0.0
    beat: tuple[int, int | None, str] | None = None
    patience: Patience = dataclasses.field(default_factory=Patience)


class Slurm:
    """The executor with a job for each trial."""

    def __init__(self, task: Task, store: Store, tools: Tools, preload: list[str]) -> None:
        location = TaskLocation.of(task)
        assert location is not None
        check_open_files(tools.workers)
        self._task, self._store, self._tools = task, store, tools
        self._driver, self._sent = DriverStore(task, store), SentTask.of(task, location)
        self._root = store.path / layout.SLURM
        self._threads, self._minutes = whole(tools.options, "cpus", 1), time_of(tools.options)
        own = uuid.uuid4().hex
        self._jobs_folder = self._root / f"jobs-{socket.gethostname()}-{own}"
        name = f"trainonce-{layout.default_folder(task.name)}".replace(" ", "-")
        self._engine = open_engine(self._jobs_folder, tools.options, name, tools.workers)
        self._answers: list[tuple[str, Event]] = []
        self._new: dict[str, Job] = {}  # without an attempt so far
        self._patience = Patience()
        self._running: dict[str, _Running] = {}
        self._asked = self._looked = self._refused = -float("inf")
        self._failing_since: float | None = None
        self._ended: dict[str, str] = {}
        self._said: set[str] = set()
        self._alive = contextlib.ExitStack()
        self._alive.enter_context(store.claim(own))
        self._notes = insist(lambda: remove_leftovers(self._root, store, self._engine, self._sent), PATIENCE_SECONDS)

    @property
    def has_room(self) -> bool:
        return len(self._new) + len(self._running) + len(self._answers) < self._tools.workers

    @property
    def is_idle(self) -> bool:
        return not self._new and not self._running and not self._answers and not self._notes

    def start(self, job: Job) -> None:
        if (event := self._driver.take(job)) is not None:
            self._answers.append((job.key, event))
            return
        self._new[job.key] = job

    def _first_attempt(self, job: Job) -> _Running:
        """A new attempt that goes on from the newest checkpoint there is, of an earlier one or of the store."""
        last = Attempt.last(self._root, job.key)
        if last is not None:
            last.give_up()
        kept = None if last is None or not last.saved() else last.folder / TRIAL
        return self._attempt(job, kept or self._store.folder(job.key))

    def _attempt(self, job: Job, checkpoint: Path, lost: int = 0) -> _Running:
        assignment = Assignment(self._sent, job, self._tools.devices[0], self._threads)
        source = None if job.source is None else self._store.folder(job.source)
        given = Given(assignment, tuple(sys.path), source)
        attempt = Attempt.make(self._root, job.key, given, checkpoint, self._sent.identity)
        return _Running(job, attempt, lost=lost)

    def _take_over(self, job: Job) -> _Running | None:
        """The attempt of a driver that was killed, if its job still waits, runs, or has ended with a record."""
        last = Attempt.last(self._root, job.key)
        if last is None:
            return None
        names = last.names()
        if END in names:
            event, known = last.end(), self._store.read().get(job.key)
            if event is None or event.kind != "end":
                return None  # a reason to stop may be gone by now
            recorded = known is not None and known.ended == event.content.ended  # by a driver that was killed then
            return None if recorded else _Running(job, last)
        if CANCEL in names or (JOB not in names and last.revoke()):
            return None
        found = last.job() or {}
        same = found.get("cluster", self._engine.name) == self._engine.name
        number = found.get("job", "")
        if not same or not number or "revoked" in found or number in self._engine.ended([number]):
            return None
        return _Running(job, last, number, noted=True)

    # Events

    def events(self) -> Iterator[tuple[str, Event]]:
        answers, self._answers = self._answers, []
        notes, self._notes = [("", Event("note", text)) for text in self._notes], []
        found = [*notes, *answers, *self._begin(), *self._submit(), *self._look()]
        if not found:
            time.sleep(POLL)
            found = list(self._look())
        yield from found

    def _begin(self) -> Iterator[tuple[str, Event]]:
        """Give an attempt to each trial that has none; the next turn tries again where the file system fails."""
        for key, job in list(self._new.items()):
            try:
                self._running[key] = self._take_over(job) or self._first_attempt(job)
            except OSError as error:
                if (why := self._patience.explain(error, self._root)) is not None:
                    yield key, Event("stop", why)
            else:
                self._patience.forget()
                del self._new[key]

    def _submit(self) -> Iterator[tuple[str, Event]]:
        """Submit what is waiting for it, all in one array."""
        now = time.monotonic()
        if now - self._refused < AGAIN_SECONDS:
            return
        waiting = [running for running in self._running.values() if not running.id and _is_open(running.attempt)]
        if not waiting:
            return
        try:
            with postpone_interrupt():
                ids = self._engine.submit([Work(str(running.attempt.folder), self._minutes) for running in waiting])
                for running, found in zip(waiting, ids, strict=True):
                    running.id = found
                for running in waiting:
                    self._note_job(running)
        except SubmissionError as error:
            self._refused, self._failing_since = now, self._failing_since or now
            others = len(self._running) > len(waiting)
            if not others and not (error.passing and now - self._failing_since < PATIENCE_SECONDS):
                yield waiting[0].job.key, Event("stop", str(error))
        else:
            self._failing_since = None

    def _note_job(self, running: _Running) -> None:
        """Write down which job a trial has; where the file system fails, :meth:`_look` tries again."""
        try:
            running.attempt.note_job(self._engine.name, running.id, self._jobs_folder.name)
            running.noted = True
        except OSError as error:
            if not is_passing(error):
                raise

    def _look(self) -> Iterator[tuple[str, Event]]:
        """What the folders and the queue say."""
        now = time.monotonic()
        if now - self._asked >= self._engine.interval:
            self._asked = now
            ids = [running.id for running in self._running.values() if running.id]
            self._ended = dict(self._engine.ended(ids))
            yield from self._say_why(self._engine.waits_for(ids))
        if now - self._looked < self._engine.look:
            return
        self._looked = now
        for key, running in list(self._running.items()):
            try:
                event = self._look_at(running, now)
            except OSError as error:
                why = running.patience.explain(error, running.attempt.folder)
                event = None if why is None else Event("stop", why)
            else:
                running.patience.forget()
            if event is not None:
                yield key, event

    def _say_why(self, waiting: Mapping[str, str]) -> Iterator[tuple[str, Event]]:
        """Say once of each reason to wait that it does not pass by itself."""
        for job, reason in waiting.items():
            if reason not in self._said and (sentence := say(job, reason)) is not None:
                yield "", Event("note", sentence)
            self._said.add(reason)

    def _look_at(self, running: _Running, now: float) -> Event | None:
        if running.id and not running.noted:
            self._note_job(running)
        names = running.attempt.names()
        if END in names:
            return self._end(running)
        if BEAT in names and (beat := running.attempt.beat()) not in (None, running.beat):
            running.beat, running.fraction = beat, beat[0] / beat[1] if beat[1] else 1.0
            return Event("beat", beat)
        if running.id not in self._ended:
            running.gone = None
            return None
        running.gone = running.gone or now
        return self._after_death(running, names) if now - running.gone >= self._engine.grace else None

    def _end(self, running: _Running) -> Event | None:
        event = running.attempt.end()
        if event is None:
            return None  # the listing was ahead of the file
        if event.kind == "stop":
            self._driver.release(running.job.key)
            self._forget(running)
        else:
            self._bring_back(running)
            event = self._driver.record(event.content)
            if event.kind == "end":  # else the next driver finds it in the attempt's folder, and records it
                self._forget(running)
        del self._running[running.job.key]
        return event

    def _bring_back(self, running: _Running) -> None:
        running.attempt.bring_back(self._store.folder(running.job.key), self._store.log(running.job.key))

    def _after_death(self, running: _Running, names: set[str]) -> Event | None:
        """Start the trial again, or record its failure."""
        attempt, job, output = running.attempt, running.job, self._engine.output(running.id)
        waited = INTERRUPTED in names and (attempt.folder / INTERRUPTED).read_text() != NO_PROGRESS
        began = attempt.began_at()
        verdict = judge(
            Death(
                running.id,
                "TIMEOUT" if INTERRUPTED in names and not waited else self._ended[running.id],
                self._minutes,
                began=BEGAN in names,
                progressed=attempt.has_progressed(),
                interrupted=waited,
                printed=_last_line(output),
                output=output.is_file(),
                before=running.lost,
            )
        )
        if verdict.what == "again":
            attempt.give_up()
            self._running[job.key] = self._attempt(job, attempt.folder / TRIAL, running.lost + verdict.counts)
            return None
        if verdict.what == "stop":
            event = Event("stop", verdict.sentence)
            self._driver.release(job.key)
        else:
            self._bring_back(running)
            device = self._tools.devices[0]
            event = self._driver.record_death(job, verdict.kind, verdict.sentence, running.fraction, device, began)
        del self._running[job.key]
        self._forget(running)
        return event

    def _forget(self, running: _Running) -> None:
        running.attempt.remove()
        with contextlib.suppress(OSError):
            for path in self._jobs_folder.glob(f"{running.id}_*") if running.id else ():
                path.unlink(missing_ok=True)

    # The end

    def stop(self) -> None:
        """Cancel the jobs that still wait or run, and keep their checkpoints in the store.

        Whatever the file system says: a full disk must not leave jobs that nobody wants.
        """
        ids = {running.id for running in self._running.values() if running.id}
        if ids:
            self._engine.cancel(ids)  # before anything that a file system may delay
        for running in self._running.values():
            with contextlib.suppress(OSError):
                running.attempt.give_up()
        if ids:
            self._engine.cancel(ids)  # again: those that run look in their folder whether they are meant
        end = time.monotonic() + STOP_SECONDS
        while ids and not ids <= self._engine.ended(ids).keys() and time.monotonic() < end:
            time.sleep(POLL)
        left = ids - self._engine.ended(ids).keys() if ids else ids  # which the next driver will find
        for running in self._running.values():
            with contextlib.suppress(OSError):
                if running.id not in left and END not in running.attempt.names():
                    self._bring_back(running)
                    self._forget(running)
        self._driver.close()
        self._engine.close()
        self._alive.close()
        with contextlib.suppress(OSError):
            remove_leftovers(self._root, self._store, self._engine, self._sent)


def _is_open(attempt: Attempt) -> bool:
    """Whether an attempt may have a job: not if it has ended, nor while its folder cannot be read."""
    try:
        return END not in attempt.names()
    except OSError as error:
        if not is_passing(error):
            raise
        return False


def _last_line(path: Path) -> str:
    """The last line of a job's output, which of a program that could not start is its error."""
    try:
        lines = path.read_text(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1].strip()[:300] if lines else ""
