"""Trials as tasks of a Ray cluster: an existing one, or one on this machine that is started and stopped.

The driver alone writes to the store. A Ray worker trains each trial in a process of its own, and streams back its
progress, its checkpoints, and at the end its files and its record.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pickle
import socket
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainonce.errors import StoppedError
from trainonce.extras import require
from trainonce.study.executors import ray_worker
from trainonce.study.executors.base import Event, Job
from trainonce.study.executors.ray_ranks import Ranks
from trainonce.study.executors.remote.assignment import Assignment
from trainonce.study.executors.remote.driver_store import DriverStore
from trainonce.study.executors.remote.pieces import Batch, Piece
from trainonce.study.executors.remote.scratch import Incoming, pieces_for
from trainonce.study.executors.remote.task_folder import task_folder
from trainonce.study.executors.remote.trial_process import Died, Given, Packed
from trainonce.study.executors.sent_task import SentTask
from trainonce.study.executors.task_location import TaskLocation
from trainonce.study.schedule import POLL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainonce.study.executors.tools import Tools
    from trainonce.study.record import Record
    from trainonce.study.store import Store
    from trainonce.study.task import Task

RETRIES = 3  # of a trial whose worker or node died
STORE = 200 << 20  # bytes of the object store of a cluster that is started here: pieces of files pass through it
AHEAD = 8  # objects that a worker may send before the driver has taken them
CAPACITY_AGE = 5.0  # seconds after which the cluster is asked again how large it is


@dataclasses.dataclass
class _Running:
    """A trial on the cluster."""

    job: Job
    stream: Any  # of what its worker sends
    given: Given
    files: list[Any]
    ranks: Ranks | None = None
    fraction: float = 0.0
    deaths: int = 0


class Ray:
    """The executor on a Ray cluster."""

    def __init__(self, task: Task, store: Store, tools: Tools, preload: list[str]) -> None:
        location = TaskLocation.of(task)
        assert location is not None
        self._ray = require("ray", "Ray", "ray")
        self._task, self._store, self._tools, self._preload = task, store, tools, preload
        self._driver, self._incoming = DriverStore(task, store), Incoming(store)
        self._sent, self._folder = SentTask.of(task, location), task_folder(location)
        self._cpus, self._gpus = tools.options.get("cpus", 1.0), tools.options.get("gpus", 0.0)
        self._running: dict[str, _Running] = {}
        self._ended: list[tuple[str, Event]] = []
        self._groups: list[Any] = []  # placement groups that are free
        self._asked, self._room = -CAPACITY_AGE, 0
        address = tools.options.get("address") or os.environ.get("RAY_ADDRESS") or "local"
        self._connect(address)
        try:
            self._check_room(address)
        except BaseException:
            self._ray.shutdown()
            raise
        self._remote = self._ray.remote(
            num_cpus=self._cpus,
            num_gpus=self._gpus,
            num_returns="streaming",
            max_retries=0,  # here: a trial goes on from its checkpoint, and its files must not come twice
            max_calls=0,  # a worker stays: the trial's process gives back the GPU
            _generator_backpressure_num_objects=AHEAD,
        )(ray_worker.train)

    # The cluster

    def _connect(self, address: str) -> None:
        ray = self._ray
        if ray.is_initialized():
            raise ValueError(
                "Ray is connected already in this process, and the files of the task travel when it connects: call "
                "ray.shutdown() first, and name the cluster with address."
            )
        if address.startswith("ray://"):
            raise ValueError(
                f"The address {address!r} is one of Ray Client, which streams no results: start the study on a machine "
                "of the cluster with the address 'auto', or with 'ray job submit'."
            )
        _check_answer(address)
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        given: dict[str, Any] = {"address": address, "log_to_driver": False, "logging_level": "ERROR"}
        if address == "local":
            from trainonce.study.executors.tools import cores  # which imports this module

            given |= {"num_cpus": cores(), "object_store_memory": STORE, "include_dashboard": False}
        with tempfile.TemporaryDirectory(prefix="trainonce-task-") as folder:
            if self._folder is not None:
                self._folder.copy(Path(folder))
                given["runtime_env"] = {"working_dir": folder}
            try:
                ray.init(**given)
            except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
                raise _no_answer(address, error, TOKEN) from None

    def _check_room(self, address: str) -> None:
        if self._capacity() or ("max_concurrent" in self._tools.options and address != "local"):
            return
        wanted = f"{self._cpus:g} CPUs and {self._gpus:g} GPUs"
        later = "" if address == "local" else ", or name max_concurrent to wait for nodes that are added later"
        raise ValueError(f"A training asks for {wanted}, and no node of the Ray cluster has them. Ask for less{later}.")

    def _capacity(self) -> int:
        """How many trials fit into the cluster as it is now."""
        if time.monotonic() - self._asked >= CAPACITY_AGE:
            nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
            self._asked, self._room = time.monotonic(), sum(map(self._fit, nodes)) // self._task.ranks
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
        if (event := self._driver.take(job)) is not None:
            self._ended.append((job.key, event))
            return
        self._incoming.discard(job.key)
        self._running[job.key] = self._submit(job)

    def _submit(self, job: Job, deaths: int = 0) -> _Running:
        assignment = Assignment(self._sent, job, self._device, threads=max(1, int(self._cpus)))
        origin = None if self._folder is None else str(self._folder.origin)
        given = Given(job.key, pickle.dumps(assignment), tuple(self._preload), origin)
        files = [self._ray.put(piece) for piece in pieces_for(job, self._store)]
        if self._task.ranks == 1:
            return _Running(job, self._remote.remote(given, files), given, files, deaths=deaths)
        group = self._groups.pop() if self._groups else None
        ranks = Ranks(self._ray, self._task.ranks, self._wanted, group)
        first = given._replace(environment=ranks.environment(0))
        stream = self._remote.options(**ranks.options(0)).remote(first, files)
        return _Running(job, stream, given, files, ranks, deaths=deaths)

    def events(self) -> Iterator[tuple[str, Event]]:
        ended, self._ended = self._ended, []
        yield from ended
        if not self._running:
            return
        streams = {running.stream: running for running in self._running.values()}
        ready, _ = self._ray.wait(list(streams), timeout=0 if ended else POLL, num_returns=1, fetch_local=False)
        for stream in ready:
            yield from self._pass_on(streams[stream], self._receive(streams[stream]))
        for running in [running for running in self._running.values() if running.ranks is not None]:
            yield from self._pass_on(running, self._check_ranks(running))

    def _pass_on(self, running: _Running, event: Event | None) -> Iterator[tuple[str, Event]]:
        """The event for the runner; the last one ends the trial, while its worker stays for others."""
        if event is None:
            return
        if event.kind != "beat":
            del self._running[running.job.key]
            self._driver.release(running.job.key)
            self._leave(running.ranks, event)
        yield running.job.key, event

    def _leave(self, ranks: Ranks | None, event: Event) -> None:
        """Keep the workers of a trial over several processes for the next one, unless some may still be training."""
        if ranks is not None and event.kind == "end" and event.content.status != "failed":
            self._groups.append(ranks.group)
        elif ranks is not None:
            ranks.stop()

    def _cancel(self, running: _Running) -> None:
        """End a trial's processes, and their workers."""
        with contextlib.suppress(Exception):
            self._ray.cancel(running.stream, force=True)
        if running.ranks is not None:
            running.ranks.stop()

    def _check_ranks(self, running: _Running) -> Event | None:
        """What to do if another process of a trial has failed, and the first one has not noticed."""
        assert running.ranks is not None
        if (found := running.ranks.failure()) is None:
            return None
        text, died = found
        if died:
            return self._restart(running, text)
        return self._driver.record_death(running.job, "ProcessDied", text, running.fraction, self._device)

    def _receive(self, running: _Running) -> Event | None:
        """Take the next message of a trial; the event that it amounts to, if any."""
        key = running.job.key
        try:
            message = self._ray.get(next(running.stream))
        except StopIteration:
            return self._restart(running, "its stream ended early")
        except self._ray.exceptions.RayError as error:
            return self._answer(running, error)
        try:
            match pickle.loads(message.content) if isinstance(message, Packed) else message:
                case ray_worker.Meeting() as meeting:
                    assert running.ranks is not None
                    running.ranks.start_others(running.given, running.files, meeting)
                case Piece() as piece:
                    self._incoming.write(key, piece)
                case Batch() as batch:
                    self._incoming.place(key, batch)
                case Died(text):
                    return self._driver.record_death(running.job, "ProcessDied", text, running.fraction, self._device)
                case Event("end", record):
                    return self._driver.record(_with_others(record, running.ranks))
                case Event("beat", (step, total, _)) as event:
                    running.fraction = step / total if total else 1.0
                    return event
                case Event() as event:
                    return event
        except OSError as error:
            return Event("stop", f"The files of a trial cannot be written to {self._store.path}: {error.strerror}.")
        return None

    @property
    def _device(self) -> str:
        return self._tools.devices[0]

    def _answer(self, running: _Running, error: Any) -> Event | None:
        """What to do after an error of Ray's: stop where it would come again, else start the trial again."""
        wrong = self._ray.exceptions
        if isinstance(error, wrong.RuntimeEnvSetupError):
            return Event("stop", f"The files of the task could not be sent to a worker: {_first_line(error)}")
        if isinstance(error, wrong.RayTaskError) and not isinstance(error.cause, wrong.RayError):
            cause = error.cause or error
            if isinstance(cause, ImportError):
                return Event("stop", f"A worker has no trainonce, or not all it needs: {cause}. Install it there.")
            return Event("stop", f"A worker failed outside of the task: {type(cause).__name__}: {_first_line(cause)}")
        return self._restart(running, _first_line(error))

    def _restart(self, running: _Running, why: str) -> Event | None:
        """Start a trial again whose worker or node died, from its last checkpoint; the last time, record it."""
        running.deaths += 1
        self._incoming.discard(running.job.key)
        if running.deaths > RETRIES:
            text = f"The trial's worker died {running.deaths} times, the last time because: {why}"
            return self._driver.record_death(running.job, "WorkerDied", text, running.fraction, self._device)
        self._cancel(running)
        self._running[running.job.key] = self._submit(running.job, running.deaths)
        return None

    def stop(self) -> None:
        for running in self._running.values():
            self._cancel(running)
        self._ray.shutdown()  # which ends what still runs for this driver, and a cluster that was started for it
        for key in self._running:
            self._incoming.discard(key)
        self._driver.close()


MANY = 1_000_000


def _with_others(record: Record, ranks: Ranks | None) -> Record:
    """The record; of a failure, with what the other processes of the trial said."""
    if ranks is None or record.status != "failed" or record.error is None:
        return record
    error = {**record.error, "message": record.error["message"] + ranks.last_words()}
    return dataclasses.replace(record, error=error)


def _check_answer(address: str) -> None:
    """Raise if nothing listens at an address; Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal():
        try:
            socket.create_connection((host, int(port)), timeout=10).close()
        except (OSError, OverflowError) as error:
            raise _no_answer(address, error) from None


def _no_answer(address: str, error: Exception, hint: str = "") -> StoppedError:
    return StoppedError(f"No Ray cluster answers at {address!r}: {_first_line(error)}{hint}")


TOKEN = " A cluster that asks for a token needs RAY_AUTH_MODE=token here, too."  # of which Ray says nothing itself


def _first_line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    line = text.splitlines()[0]
    return line if line.endswith((".", "!", "?")) else f"{line}."
