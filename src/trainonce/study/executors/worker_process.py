"""The life of a worker process: load the task, run one trial, exit."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
import sys
from typing import TYPE_CHECKING, NamedTuple

import torch

from trainonce.errors import TerminatedError
from trainonce.study import loop, torchrun
from trainonce.study.executors.base import Event, Job
from trainonce.study.executors.parent_watch import end_with_parent
from trainonce.study.executors.run_trial import run
from trainonce.study.executors.sent_task import OtherTaskError
from trainonce.study.store import Store

if TYPE_CHECKING:
    from collections.abc import Mapping
    from multiprocessing.connection import Connection
    from pathlib import Path

    from trainonce.study.executors.sent_task import SentTask

NAME = "trial "  # how the names of worker processes begin


def is_worker() -> bool:
    """Whether this process is a worker."""
    return multiprocessing.current_process().name.startswith(NAME)


class Given(NamedTuple):
    """What a worker process is given."""

    sent: SentTask
    job: Job
    path: str  # of the store
    device: str
    threads: int
    environment: Mapping[str, str] = {}  # variables to set for the trial

    @property
    def log(self) -> Path:
        """Where its output goes: the trial's log, or for another process of the trial than the first a file beside."""
        rank = self.environment.get("RANK", "0")
        log = Store(self.path).log(self.job.key)
        return log if rank == "0" else log.with_suffix(f".{rank}.txt")


def main(given: Given, pipe: Connection) -> None:
    """Run one trial, or the part of it that is for this process, and send its events through the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent alone answers it
    signal.signal(signal.SIGTERM, _end)  # by which the parent ends it; the fork server ignores it
    end_with_parent()  # a trial whose study was killed would go on unseen, and keep its device
    os.environ.update(given.environment)
    torch.set_num_threads(given.threads)

    def send(event: Event) -> None:
        with contextlib.suppress(OSError):
            pipe.send(event)

    send(Event("beat", (0, 1, "")))  # from here on it hears signals
    _redirect_output(given.log)
    device = given.device
    if "RANK" in given.environment:  # the group is left as it is: a process that has failed would wait for the others
        device = torchrun.process_group(device).__enter__() or device
    try:
        task = given.sent.load()
    except OtherTaskError as error:
        send(Event("stop", str(error)))
    except Exception as error:
        send(Event("stop", _describe_loading(given.sent.name, error)))
    else:
        store, job = Store(given.path), given.job
        try:
            if torchrun.is_first():
                event = run(task, job, store, device, notify=lambda *progress: send(Event("beat", progress)))
                torchrun.dismiss()
                send(event)
            else:
                torchrun.follow(task, device)
        except TerminatedError:
            _die()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # whatever threads or processes the task has left behind


def _describe_loading(name: str, error: Exception) -> str:
    return (
        f"The task {name!r} cannot be loaded on {socket.gethostname()}: {type(error).__name__}: {error}. Put its files "
        "where all machines see them, and install what it imports on each."
    )


def _end(*_: object) -> None:
    """End this process: a training that keeps its state does so first, after the step it is in."""
    if not loop.end_by_signal():
        _die()


def _die() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)


def _redirect_output(path: Path) -> None:
    """Write what the task prints to its log and not into the study's display."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    with path.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
