"""Running the trials of a study: one process each, several at a time, forked from a server that has torch loaded."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import math
import multiprocessing
import os
import signal
import threading
import time
from multiprocessing import forkserver
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any, Protocol

import torch

import trainonce
from trainonce.study.executors import run_trial as worker
from trainonce.study.executors.run_trial import UNKNOWN, Job, Where
from trainonce.study.schedule import POLL, Item, Schedule
from trainonce.study.store import Record, Store
from trainonce.study.trial import CHECKPOINT, read_checkpoint
from trainonce.study.weightings.peers import Peer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.connection import Connection

    from trainonce.study.task import Task

TRIAL = "trial "  # how the names of worker processes begin


class Listener(Protocol):
    """Whoever wants to know how the study goes."""

    def started(self, key: str, label: str, seed: int) -> None: ...
    def beat(self, key: str, step: int, total: int | None, note: str) -> None: ...
    def ended(self, record: Record, label: str, left: float) -> None: ...
    def skipped(self, label: str, seed: int) -> None: ...
    def waiting(self, count: int) -> None: ...


class StoppedError(RuntimeError):
    """The study cannot go on: a finished trial could not be recorded, or the task was changed meanwhile."""


def run(task: Task, store: Store, everything: Sequence[Item], tools: Tools, listener: Listener) -> None:
    """Run whatever is missing or has failed."""
    schedule = Schedule(everything, store.read())
    start, spent = time.monotonic(), 0
    with tools.pool(task, store, _preload(task, everything)) as pool:
        while True:
            while pool.has_room and (found := schedule.next()) is not None:
                job, label = found
                with store.claim(job.key) as free:
                    pass
                if free:
                    pool.start(job, label)
                    listener.started(job.key, label, job.seed)
                else:
                    _look_again(schedule, store, job.key, label, listener)
            for item in schedule.skipped:
                listener.skipped(item.label(item.keys[0]), item.seed)
            schedule.skipped.clear()
            if pool.is_idle:
                if schedule.is_finished:
                    return
                listener.waiting(schedule.elsewhere)
                time.sleep(POLL)
                continue
            for key, label, (kind, content) in pool.news():
                if kind == "beat":
                    listener.beat(key, *content)
                elif kind == "stop":
                    raise StoppedError(content)
                elif kind == "taken":
                    _look_again(schedule, store, key, label, listener)
                else:
                    schedule.settle(key, content)
                    spent += 1
                    rate = (time.monotonic() - start) / spent
                    listener.ended(content, label, rate * schedule.left)


def _preload(task: Task, everything: Sequence[Item]) -> list[str]:
    """What the trials will import. torch loads its compiler when an optimizer first steps, which takes a second."""
    searches = ["optuna"] if any(item.search is not None for item in everything) else []
    peers = ["torchjd.scalarization"] if any(isinstance(item.weighting, Peer) for item in everything) else []
    return ["trainonce.study.executors.run_trial", "torch._dynamo", *searches, *peers, *task.preload]


def _look_again(schedule: Schedule, store: Store, key: str, label: str, listener: Listener) -> None:
    """Another process has the trial: take its record if it has just ended, or look again later."""
    record = store.read().get(key)
    if record is None or (record.status == "failed" and record.ended <= schedule.since):
        schedule.settle(key, None)
    else:
        schedule.settle(key, record)
        listener.ended(record, label, math.nan)


# Where trials run


@dataclasses.dataclass(frozen=True)
class Tools:
    """How to run: how many processes at a time (0: in this one), on which devices, started in which way."""

    workers: int
    devices: tuple[str, ...]
    start: str = "forkserver"

    @classmethod
    def choose(cls, task: Task, workers: int | None, device: str | None, start: str = "forkserver") -> Tools:
        """One process a core on the CPU, at most 8; one process a GPU."""
        devices = (device,) if device is not None else tuple(f"cuda:{i}" for i in range(torch.cuda.device_count()))
        devices = devices or ("cpu",)
        _check_device(devices[0])
        if workers is not None and (not isinstance(workers, int) or workers < 0):
            raise ValueError(f"workers is how many trainings run at a time, 0 for in this process; got {workers!r}.")
        if Where.of(task) is None:
            if workers not in (None, 0):
                raise ValueError(
                    f"The task {task.name!r} is not in a file, so other processes cannot load it. Put it into a .py "
                    "file, or use workers=0 to train in this process."
                )
            workers = 0
        if workers is None:
            workers = min(cores(), 8) if devices[0] == "cpu" else len(devices)
        return cls(workers, devices, start)

    @contextlib.contextmanager
    def pool(self, task: Task, store: Store, preload: list[str]) -> Iterator[Here | Processes]:
        if self.workers == 0:
            yield Here(task, store, self.devices[0])
            return
        processes = Processes(task, store, self, preload)
        try:
            yield processes
        finally:
            processes.stop()


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _check_device(device: str) -> None:
    try:
        kind = torch.device(device).type
    except RuntimeError:
        raise ValueError(f"There is no device {device!r}: use 'cpu', 'cuda' or 'cuda:0'.") from None
    if kind == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"The device {device!r} was asked for, but torch finds no CUDA device here. Use 'cpu'.")


class Here:
    """Trials in this process, one after the other: for notebooks, debuggers and tasks that are in no file."""

    def __init__(self, task: Task, store: Store, device: str) -> None:
        self._task, self._store, self._device = task, store, device
        self._next: tuple[Job, str] | None = None

    has_room = property(lambda self: self._next is None)
    is_idle = property(lambda self: self._next is None)

    def start(self, job: Job, label: str) -> None:
        self._next = job, label

    def news(self) -> Iterator[tuple[str, str, worker.News]]:
        assert self._next is not None
        (job, label), self._next = self._next, None
        kind, content = worker.run(self._task, job, self._store, self._device)
        gc.collect()  # a model and its optimizer hold each other, and the device's memory with them
        yield job.key, label, (kind, content)
        if kind == "end" and content.status == "failed" and not worker.answers(self._device):
            what = f"After this failure {self._device} does not answer in this process any more; start the study again."
            how = "" if Where.of(self._task) is None else " With workers=1 each training has a process of its own."
            yield job.key, label, ("stop", what + how)


@dataclasses.dataclass
class _Running:
    """A worker process at its trial."""

    process: Any
    job: Job
    label: str
    slot: int
    start: float
    device: str
    fraction: float = 0.0


class Processes:
    """Trials in processes of their own, which give back all memory, the device's too, when they end."""

    def __init__(self, task: Task, store: Store, tools: Tools, preload: list[str]) -> None:
        where = Where.of(task)
        assert where is not None
        self._task, self._where, self._store, self._tools = task, where, store, tools
        self._threads = max(1, cores() // tools.workers)
        self._context: Any = multiprocessing.get_context(tools.start)
        if tools.start == "forkserver":
            _start_server(self._context, preload)
        self._running: dict[Connection, _Running] = {}

    @property
    def has_room(self) -> bool:
        return len(self._running) < self._tools.workers

    @property
    def is_idle(self) -> bool:
        return not self._running

    def start(self, job: Job, label: str) -> None:
        ours, theirs = self._context.Pipe(duplex=False)
        slot = min(set(range(self._tools.workers)) - {running.slot for running in self._running.values()})
        device = self._tools.devices[slot % len(self._tools.devices)]
        what = (self._where, dict(self._task.settings), self._task.identity, job)
        how = (str(self._store.path), device, self._threads, theirs)
        process = self._context.Process(target=worker.main, args=what + how, name=TRIAL + job.key, daemon=False)
        process.start()
        theirs.close()
        self._running[ours] = _Running(process, job, label, slot, time.time(), device)

    def news(self) -> Iterator[tuple[str, str, worker.News]]:
        """What the workers said, waiting a little for the first to say something, or to die without a word."""
        ready: list[Any] = wait(list(self._running), timeout=POLL)
        # A dead worker's pipe may be held open by something it left behind, so the process is asked, too.
        ready += [pipe for pipe, running in self._running.items() if not running.process.is_alive()]
        for pipe in dict.fromkeys(ready):
            running = self._running[pipe]
            said = _heard(pipe) or self._died(running)
            if said[0] == "beat":
                running.fraction = said[1][0] / said[1][1] if said[1][1] else 1.0
            else:
                del self._running[pipe]
                pipe.close()
                running.process.join()
            yield running.job.key, running.label, said

    def _lost(self, running: _Running) -> tuple[float, float]:
        """What a trial that died has cost, in full trainings and in seconds, but for what its checkpoint keeps."""
        folder, now = self._store.folder(running.job.key), time.time()
        kept, total = read_checkpoint(folder), self._task.steps
        if kept is None or not total:
            return min(1.0, running.fraction), now - running.start
        saved = (folder / CHECKPOINT).stat().st_mtime
        return max(0.0, min(1.0, running.fraction) - kept.steps / total), now - max(running.start, saved)

    def _died(self, running: _Running) -> worker.News:
        """What is to be said of a trial whose process ended without a word."""
        running.process.join()
        job, code = running.job, running.process.exitcode
        reason = f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"
        hint = " Was memory short?" if code == -signal.SIGKILL else ""
        log = self._store.log(job.key)
        printed = log.read_text(errors="replace")[-4000:] if log.is_file() else ""
        fraction, seconds = self._lost(running)
        record = Record(
            job.key,
            self._task.name,
            job.weighting or UNKNOWN,
            job.seed,
            "failed",
            seconds=round(seconds, 3),
            fraction=round(fraction, 4),
            ended=time.time(),
            device=running.device,
            versions={"trainonce": trainonce.__version__, "torch": str(torch.__version__)},
            error={
                "type": "ProcessDied",
                "message": f"The trial's process died ({reason}).{hint}",
                "traceback": printed,
            },
        )
        with self._store.claim(job.key) as mine:
            there = self._store.read().get(job.key)
            if there is not None and (there.status != "failed" or there.ended > running.start):
                return "there", there
            if not mine:
                return "taken", None
            self._store.append(record)
        return "end", record

    def stop(self) -> None:
        for running in self._running.values():
            running.process.terminate()
        for running in self._running.values():
            running.process.join(5)
            if running.process.is_alive():
                running.process.kill()


def _heard(pipe: Any) -> worker.News | None:
    """What a worker said; None if it can say nothing any more."""
    try:
        said: worker.News | None = pipe.recv() if pipe.poll() else None
    except (EOFError, OSError):
        return None
    return said


def _start_server(context: Any, preload: list[str]) -> None:
    """Start the process that workers are forked from. Ctrl-C is not for it: it may be importing for seconds."""
    context.set_forkserver_preload(preload)
    in_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if in_main else None
    try:
        forkserver.ensure_running()
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)
