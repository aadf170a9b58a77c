"""Trials as tasks of a Ray cluster: an existing one, or one on this machine that is started and stopped.

A Ray worker is a worker like any other: it locks, trains and records the trial in the folder of the study, which all
nodes see. The driver chooses trials, passes progress on, and starts a trial again whose worker or node died.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import math
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainonce.extras import require
from trainonce.study import identity
from trainonce.study.executors import ray_worker
from trainonce.study.executors.base import Event, Job
from trainonce.study.executors.deaths import note_lost, record_death
from trainonce.study.executors.processes import PATIENCE as LEAVE
from trainonce.study.executors.ray_cluster import connect, describe
from trainonce.study.executors.ray_ranks import Ranks
from trainonce.study.executors.ray_worker import Given, Meeting
from trainonce.study.executors.sent_task import SentTask
from trainonce.study.schedule import POLL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainonce.study.executors.tools import Tools
    from trainonce.study.store import Store
    from trainonce.study.task import Task

RETRIES = 3  # of a trial whose worker or node died
CAPACITY_AGE = 5.0  # seconds after which the cluster is asked again how large it is
PATIENCE = 60.0  # seconds without any training after which a note says what is waited for
MANY = 1_000_000


@dataclasses.dataclass
class _Running:
    """A trial on the cluster."""

    job: Job
    stream: Any  # of what its worker sends
    given: Given
    start: float
    ranks: Ranks | None = None
    began: bool = False
    fraction: float = 0.0


class Ray:
    """The executor on a Ray cluster."""

    def __init__(self, task: Task, store: Store, tools: Tools, preload: list[str]) -> None:
        self._ray = require("ray", "Ray", "ray")
        self._task, self._store, self._tools, self._preload = task, store, tools, tuple(preload)
        self._sent = SentTask.of(task)
        self._cpus, self._gpus = tools.options.get("cpus", 1.0), tools.options.get("gpus", 0.0)
        self._running: dict[str, _Running] = {}
        self._ended: list[tuple[str, Event]] = []
        self._deaths = collections.Counter[str]()  # of the workers of each trial
        self._lost: dict[str, tuple[_Running, str, str]] = {}  # what to record of trials that do not start again
        self._groups: list[Any] = []  # placement groups that are free
        self._asked, self._room = -CAPACITY_AGE, 0
        self._waiting: float | None = None  # since when no training runs, while some could
        address = tools.options.get("address") or os.environ.get("RAY_ADDRESS") or "local"
        connect(self._ray, address)
        try:
            self._check_room(address)
            self._remote = self._ray.remote(
                num_cpus=self._cpus,
                num_gpus=self._gpus,
                num_returns="streaming",
                max_retries=0,  # here: a trial goes on from its checkpoint
                max_calls=0,  # a worker stays: the trial's process gives back the GPU
            )(ray_worker.train)
        except BaseException:
            self._ray.shutdown()
            raise

    # The cluster

    def _check_room(self, address: str) -> None:
        if self._capacity() or ("max_concurrent" in self._tools.options and address != "local"):
            return
        later = "" if address == "local" else ", or name max_concurrent to wait for nodes that are added later"
        raise ValueError(f"A training asks for {self._wish}, and {self._lack}. Ask for less{later}.")

    @property
    def _wish(self) -> str:
        each = f"{self._cpus:g} CPUs and {self._gpus:g} GPUs"
        return each if self._task.ranks == 1 else f"{each} for each of its {self._task.ranks} processes"

    @property
    def _lack(self) -> str:
        one = self._task.ranks == 1
        return "no node of the Ray cluster has them" if one else "the Ray cluster has no room for them"

    def _capacity(self) -> int:
        """How many trials fit into the cluster as it is now; where it does not say, as it was."""
        if time.monotonic() - self._asked >= CAPACITY_AGE:
            self._asked = time.monotonic()
            with contextlib.suppress(self._ray.exceptions.RayError):
                nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
                self._room = sum(map(self._fit, nodes)) // self._task.ranks
        return self._room

    @property
    def _wanted(self) -> dict[str, float]:
        """What a training asks for, by Ray's names."""
        return {name: amount for name, amount in (("CPU", self._cpus), ("GPU", self._gpus)) if amount}

    def _fit(self, node: dict[str, float]) -> int:
        fits = (node.get(name, 0.0) / amount + 1e-6 for name, amount in self._wanted.items())
        return int(min(fits, default=MANY))

    # The protocol

    @property
    def has_room(self) -> bool:
        asked = "max_concurrent" in self._tools.options  # more than there is room for lets a cluster grow
        limit = self._tools.workers if asked else min(self._tools.workers, self._capacity())
        return len(self._running) + len(self._ended) < limit

    @property
    def is_idle(self) -> bool:
        return not self._running and not self._ended

    def start(self, job: Job) -> None:
        if job.key in self._lost:  # a process of it had the lock when its death was to be recorded
            running, *why = self._lost[job.key]
            self._ended.append((job.key, self._record_death(running, *why)))
            return
        try:
            self._running[job.key] = self._submit(job)
        except self._ray.exceptions.RayError as error:
            self._ended.append((job.key, Event("stop", f"Ray does not take a training: {describe(error)}")))

    def _submit(self, job: Job) -> _Running:
        given = Given(
            self._sent,
            job,
            str(self._store.path),
            dataclasses.replace(self._tools, executor="processes", workers=1, options={}),
            max(1, int(self._cpus)),
            self._preload,
            os.getcwd(),
            _folder_of(self._sent.location.module),
            self._store.joined,
        )
        if self._task.ranks == 1:
            return _Running(job, self._remote.remote(given), given, time.time())
        group = self._groups.pop() if self._groups else None
        ranks = Ranks(self._ray, self._task.ranks, self._wanted, group)
        first = given._replace(environment=ranks.environment(0))
        stream = self._remote.options(**ranks.options(0)).remote(first)
        return _Running(job, stream, given, time.time(), ranks)

    def events(self) -> Iterator[tuple[str, Event]]:
        ended, self._ended = self._ended, []
        yield from ended
        if not self._running:
            return
        try:
            yield from self._news(0 if ended else POLL)
        except self._ray.exceptions.RayError as error:
            yield next(iter(self._running), ""), Event("stop", f"Ray does not answer any more: {describe(error)}")

    def _news(self, timeout: float) -> Iterator[tuple[str, Event]]:
        """What has happened to the trials on the cluster."""
        for running in self._ready(timeout):
            yield from self._pass_on(running, self._receive(running))
        for running in [running for running in self._running.values() if running.ranks is not None]:
            yield from self._pass_on(running, self._check_ranks(running))
        yield from self._note_waiting()

    def _ready(self, timeout: float) -> list[_Running]:
        """The trials with a message. The first is waited for; the others must not wait until it has no more."""
        streams = {running.stream: running for running in self._running.values()}
        found, _ = self._ray.wait(list(streams), timeout=timeout, num_returns=1, fetch_local=False)
        if found and len(streams) > 1:
            found, _ = self._ray.wait(list(streams), timeout=0, num_returns=len(streams), fetch_local=False)
        return [streams[stream] for stream in found]

    def _note_waiting(self) -> Iterator[tuple[str, Event]]:
        """Say once what is waited for, where no training has run for a while."""
        now = time.monotonic()
        if not self._running or any(running.began for running in self._running.values()):
            self._waiting = None
        elif self._waiting is None:
            self._waiting = now
        elif now - self._waiting >= PATIENCE:
            self._waiting = math.inf
            why = "the nodes that have them are busy or not ready" if self._capacity() else self._lack
            text = f"No training could start for {PATIENCE:.0f} seconds: it asks for {self._wish}, and {why}. Waiting."
            yield next(iter(self._running)), Event("note", text)

    def _pass_on(self, running: _Running, event: Event | None) -> Iterator[tuple[str, Event]]:
        """The event for the runner; the last one ends the trial, while its worker stays for others."""
        if event is None:
            return
        if event.kind != "beat":
            del self._running[running.job.key]
            self._leave(running.ranks, event)
        yield running.job.key, event

    def _leave(self, ranks: Ranks | None, event: Event) -> None:
        """Keep the workers of a trial over several processes for the next one, unless some may still be training."""
        if ranks is not None and event.kind == "end" and event.content.status != "failed" and ranks.have_ended():
            self._groups.append(ranks.group)
        elif ranks is not None:
            ranks.stop()

    def _receive(self, running: _Running) -> Event | None:
        """Take the next message of a trial; the event that it amounts to, if any."""
        try:
            message = self._ray.get(next(running.stream))
        except StopIteration:
            return self._restart(running, "its stream ended early")
        except self._ray.exceptions.RayError as error:
            return self._answer(running, error)
        if not running.began:
            running.began, running.start = True, time.time()
        if isinstance(message, Meeting):
            assert running.ranks is not None
            running.ranks.start_others(running.given, message)
        if not isinstance(message, Event):
            return None
        if message.kind == "beat":
            step, total, _ = message.content
            running.fraction = step / total if total else 1.0
        return message

    def _check_ranks(self, running: _Running) -> Event | None:
        """What to do if another process of a trial has failed, and the first one has not noticed."""
        assert running.ranks is not None
        match running.ranks.failure():
            case None:
                return None
            case str(text):
                self._cancel(running)  # first: it has the trial
                return self._record_death(running, "ProcessDied", text)
            case error:
                return self._answer(running, error)

    def _answer(self, running: _Running, error: Any) -> Event | None:
        """What to do after an error of Ray's: stop where it would come again, else start the trial again."""
        wrong = self._ray.exceptions
        if isinstance(error, wrong.RuntimeEnvSetupError):
            return Event("stop", f"Ray could not set up a worker: {describe(error)}")
        cause = error.cause if isinstance(error, wrong.RayTaskError) else None
        if cause is None or isinstance(cause, wrong.RayError | OSError):  # its machine has failed, or has no space
            return self._restart(running, describe(error))
        if isinstance(cause, ImportError):
            return Event("stop", f"A worker has no trainonce, or not all it needs: {cause}. Install it there.")
        return Event("stop", f"A worker failed outside of the task: {describe(error)}")

    def _restart(self, running: _Running, why: str) -> Event | None:
        """Start a trial again whose worker or node died, from its last checkpoint; the last time, record it."""
        key = running.job.key
        self._deaths[key] += 1
        self._cancel(running)
        if self._deaths[key] > RETRIES:
            text = f"The trial's worker died {self._deaths[key]} times, the last time because: {why}"
            return self._record_death(running, "WorkerDied", text)
        note_lost(running.job, self._store, running.start, running.fraction)
        del self._running[key]
        self.start(running.job)
        return None

    def _record_death(self, running: _Running, kind: str, message: str) -> Event:
        key = running.job.key
        self._lost[key] = running, kind, message
        event = record_death(
            self._task.name,
            running.job,
            self._store,
            kind=kind,
            message=message,
            start=running.start,
            fraction=running.fraction,
            device=self._tools.devices[0],
        )
        if event.kind != "taken":
            del self._lost[key]
        return event

    def _cancel(self, running: _Running) -> None:
        """End a trial's processes, and their workers."""
        with contextlib.suppress(Exception):
            self._ray.cancel(running.stream, force=True)
        with contextlib.suppress(self._ray.exceptions.RayError):
            if running.ranks is not None:
                running.ranks.stop()

    def stop(self) -> None:
        with contextlib.suppress(Exception):  # of a cluster that has gone
            streams = [running.stream for running in self._running.values()]
            for stream in streams:
                self._ray.cancel(stream)  # so that it keeps the state of its training
            self._ray.wait([stream.completed() for stream in streams], num_returns=len(streams), timeout=LEAVE)
        self._ray.shutdown()  # which ends what still runs for this driver, and a cluster that was started for it


def _folder_of(module: str) -> str | None:
    """The folder from which a module is imported, unless it is installed."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None or not identity.is_own(Path(file)):
        return None
    depth = module.count(".") + (Path(file).name == "__init__.py")
    return str(Path(file).absolute().parents[depth])
