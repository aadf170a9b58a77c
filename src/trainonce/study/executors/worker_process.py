"""The life of a worker process: load the task, run one trial, exit."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
from typing import TYPE_CHECKING

import torch

from trainonce.errors import TerminatedError
from trainonce.study import loop
from trainonce.study.executors.base import Event, Job
from trainonce.study.executors.parent_watch import end_with_parent
from trainonce.study.executors.run_trial import run
from trainonce.study.executors.sent_task import OtherTaskError
from trainonce.study.store import Store

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from pathlib import Path

    from trainonce.study.executors.sent_task import SentTask

NAME = "trial "  # how the names of worker processes begin


def is_worker() -> bool:
    """Whether this process is a worker."""
    return multiprocessing.current_process().name.startswith(NAME)


def main(
    sent: SentTask,
    job: Job,
    path: str,
    device: str,
    threads: int,
    pipe: Connection,
) -> None:
    """Run one trial of the store at ``path``, and send its events through the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent alone answers it
    signal.signal(signal.SIGTERM, _end)  # by which the parent ends it; the fork server ignores it
    end_with_parent()  # a trial whose study was killed would go on unseen, and keep its device
    torch.set_num_threads(threads)
    store = Store(path)

    def send(event: Event) -> None:
        with contextlib.suppress(OSError):
            pipe.send(event)

    redirect_output(store.log(job.key))
    try:
        task = sent.load()
    except OtherTaskError as error:
        send(Event("stop", str(error)))
    else:
        try:
            send(run(task, job, store, device, notify=lambda *progress: send(Event("beat", progress))))
        except TerminatedError:
            _die()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # whatever threads or processes the task has left behind


def _end(*_: object) -> None:
    """End this process: a training that keeps its state does so first, after the step it is in."""
    if not loop.end_by_signal():
        _die()


def _die() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)


def redirect_output(path: Path) -> None:
    """Write what the task prints to its log and not into the study's display."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    with path.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
