"""Trials in processes of their own, which give back all memory, the device's too, when they end."""

from __future__ import annotations

import dataclasses
import multiprocessing
import signal
import time
from multiprocessing import forkserver
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any

from trainonce.study.executors import worker_process
from trainonce.study.executors.deaths import describe_exit, record_death
from trainonce.study.executors.worker_process import Given
from trainonce.study.schedule import POLL
from trainonce.study.signals import SIGNALS, in_main_thread, postpone_signals

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from multiprocessing.connection import Connection

    from trainonce.study.executors.base import Event, Job
    from trainonce.study.executors.sent_task import SentTask
    from trainonce.study.executors.tools import Tools
    from trainonce.study.store import Store


PATIENCE = 30.0  # seconds in which trials that are ended may finish their step and keep their state
GRACE = 1.0  # seconds after which a SIGTERM that has ended a trial's process was not meant for this one, too


@dataclasses.dataclass
class _Running:
    """A worker process at its trial."""

    process: Any
    job: Job
    slot: int
    start: float
    device: str
    fraction: float = 0.0
    began: bool = False  # whether it has said anything


class Processes:
    """The executor with a process for each trial, several at a time, forked from a server that has torch loaded.

    :param environment: Variables to set for the trials.
    """

    def __init__(
        self,
        sent: SentTask,
        store: Store,
        tools: Tools,
        preload: Sequence[str],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._sent, self._store, self._tools, self._environment = sent, store, tools, environment or {}
        self._context: Any = multiprocessing.get_context(tools.start)
        if tools.start == "forkserver":
            _start_server(self._context, ["trainonce.study.executors.worker_process", *preload])
        self._running: dict[Connection, _Running] = {}

    @property
    def has_room(self) -> bool:
        return len(self._running) < self._tools.workers

    @property
    def is_idle(self) -> bool:
        return not self._running

    def start(self, job: Job) -> None:
        ours, theirs = self._context.Pipe(duplex=False)
        slot = min(set(range(self._tools.workers)) - {running.slot for running in self._running.values()})
        device = self._tools.devices[slot % len(self._tools.devices)]
        given = Given(self._sent, job, str(self._store.path), device, self._tools.threads, self._environment)
        name = worker_process.NAME + job.key
        process = self._context.Process(target=worker_process.main, args=(given, theirs), name=name, daemon=False)
        with postpone_signals():
            process.start()
            self._running[ours] = _Running(process, job, slot, time.time(), device)
        theirs.close()

    def events(self) -> Iterator[tuple[str, Event]]:
        ready: list[Any] = wait(list(self._running), timeout=POLL)
        # A dead worker's pipe may be held open by something it left behind, so the process is asked, too.
        ready += [pipe for pipe, running in self._running.items() if not running.process.is_alive()]
        for pipe in dict.fromkeys(ready):
            running = self._running[pipe]
            event = _receive(pipe) or self._record_death(running)
            running.began = True
            if event.kind == "beat":
                step, total, _ = event.content
                running.fraction = step / total if total else 1.0
            else:
                del self._running[pipe]
                pipe.close()
                running.process.join()
            yield running.job.key, event

    def _record_death(self, running: _Running) -> Event:
        """Record the failure of a trial whose process ended without its last event."""
        running.process.join()
        if running.process.exitcode == -signal.SIGTERM:
            time.sleep(GRACE)  # a job scheduler ends all processes of a job: then this one is interrupted here
        return record_death(
            self._sent.name,
            running.job,
            self._store,
            kind="ProcessDied",
            message=describe_exit(running.process.exitcode),
            start=running.start,
            fraction=running.fraction,
            device=running.device,
        )

    def stop(self) -> None:
        end = time.monotonic() + PATIENCE
        try:
            for pipe, running in self._running.items():
                if running.began or pipe.poll():
                    running.process.terminate()
                else:
                    running.process.kill()  # it does not hear signals yet, and has nothing to keep
            for running in self._running.values():
                running.process.join(max(0.0, end - time.monotonic()))
        finally:  # also after another Ctrl-C
            for running in self._running.values():
                running.process.kill()


def _receive(pipe: Any) -> Event | None:
    """The next event of a worker; None if there will be none any more."""
    try:
        event: Event | None = pipe.recv() if pipe.poll() else None
    except (EOFError, OSError):
        return None
    return event


def _start_server(context: Any, preload: Sequence[str]) -> None:
    """Start the process that workers are forked from. Ctrl-C and SIGTERM are not for it: it ends with this one."""
    context.set_forkserver_preload(preload)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in SIGNALS} if in_main_thread() else {}
    try:
        forkserver.ensure_running()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
