"""What a job does: train one trial in the folder that it shares with the driver, and say how that ended."""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from trainonce.extras import require
from trainonce.study.executors.base import Event
from trainonce.study.executors.remote.assignment import train
from trainonce.study.executors.slurm.attempt import INTERRUPTED, OUTPUT, TRIAL, Attempt
from trainonce.study.executors.slurm.patience import insist
from trainonce.study.executors.worker_process import NAME

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainonce.study.executors.slurm.attempt import Given

INSIST_SECONDS = 300.0  # how long a job tries to read or write what it cannot do without
NO_PROGRESS = "no-progress"  # what ``interrupted`` holds where another turn would come no further


class Pace(NamedTuple):
    """Seconds between two notes of progress, and between two looks for whether the trial is still this job's."""

    beat: float
    look: float


QUICK, SLOW = Pace(1.0, 5.0), Pace(10.0, 15.0)  # on this machine; on a file system that hundreds of jobs may share


@dataclasses.dataclass
class Work:
    """The function of a job. submitit pickles it, and calls ``checkpoint`` when the time of the job is over."""

    folder: str
    minutes: int
    _began: float = 0.0
    _saved: int = 0

    def __call__(self) -> str:
        environment = require("submitit", "submitit", "slurm").JobEnvironment()
        attempt, alone = Attempt(Path(self.folder)), environment.cluster != "debug"
        if not (turn := insist(lambda: attempt.begin(environment.job_id), INSIST_SECONDS)):
            return "another job has the trial, or the driver has given it up"
        self._began, self._saved = time.time(), insist(attempt.saved, INSIST_SECONDS)
        with _own_process(attempt, environment) if alone else contextlib.nullcontext():
            event = _train(attempt, Progress(attempt, turn, SLOW if environment.cluster == "slurm" else QUICK))
            if not insist(lambda: attempt.has_later_turn(turn), INSIST_SECONDS):
                insist(lambda: attempt.write_end(event), INSIST_SECONDS)
        if alone:
            os._exit(0)  # whatever threads or processes the task has left behind
        return event.kind

    def checkpoint(self) -> Any:
        """Another turn for the trial, which goes on from its checkpoint; none where this turn has written none."""
        attempt = Attempt(Path(self.folder))
        over = time.time() - self._began > 0.5 * 60 * self.minutes  # and not preempted
        with contextlib.suppress(OSError):  # what cannot be known now is no reason to end the trial
            if over and attempt.saved() == self._saved:
                (attempt.folder / INTERRUPTED).write_text(NO_PROGRESS)
                return None
            (attempt.folder / INTERRUPTED).touch()
        return require("submitit.helpers", "submitit", "slurm").DelayedSubmission(self)


def _train(attempt: Attempt, progress: Progress) -> Event:
    given = insist(attempt.given, INSIST_SECONDS)
    if (why := _obstacle(given)) is not None:
        return Event("stop", why)
    sys.path += [folder for folder in given.path if folder not in sys.path]
    return train(given.assignment, attempt.folder / TRIAL, given.source, progress)


def _obstacle(given: Given) -> str | None:
    """What this node lacks, as a sentence."""
    host, file = socket.gethostname(), given.assignment.sent.location.file
    if file is not None and not os.path.isfile(file):
        return f"The node {host} does not see {file}: put the task on a file system that all nodes share."
    if given.assignment.device == "cuda" and not torch.cuda.is_available():
        return f"On the node {host} torch finds no GPU, though the job asked for one: check --gpus, --gres and torch."
    return None


class Progress:
    """Notes how far a trial has come, now and then; ends the process once the trial is not its own any more."""

    def __init__(self, attempt: Attempt, turn: int, pace: Pace) -> None:
        self._attempt, self._turn, self._pace = attempt, turn, pace
        self._noted, self._looked = -float("inf"), time.monotonic()

    def __call__(self, step: int, total: int | None, note: str) -> None:
        now = time.monotonic()
        if now - self._noted >= self._pace.beat:
            self._noted = now
            with contextlib.suppress(OSError):  # a full disk, of which the trial will say more
                self._attempt.write_beat(step, total, note)
        if now - self._looked >= self._pace.look:
            self._looked = now
            with contextlib.suppress(OSError):  # the next look may succeed; a training must not end of it
                if self._attempt.is_cancelled() or self._attempt.has_later_turn(self._turn):
                    os._exit(1)


@contextlib.contextmanager
def _own_process(attempt: Attempt, environment: Any) -> Iterator[None]:
    """Output goes to a file, and signals end the process: raised in the task, they would be its failure."""
    multiprocessing.current_process().name = NAME + attempt.folder.parent.name
    with (attempt.folder / OUTPUT).open("ab") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    preemption = environment._usr_sig()
    requeue = signal.getsignal(preemption)

    def end_turn(number: int, frame: Any) -> None:
        signal.signal(preemption, signal.SIG_IGN)
        code = 1
        try:
            requeue(number, frame)  # type: ignore[operator, misc]
        except SystemExit as asked:
            code = asked.code if isinstance(asked.code, int) else 1
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
        _exit(code)

    def end_if_cancelled(number: int, frame: Any) -> None:
        with contextlib.suppress(OSError):
            if attempt.is_cancelled():  # a job that is preempted gets this signal, too, and may have minutes left
                _exit(128 + number)

    signal.signal(preemption, end_turn)
    signal.signal(signal.SIGTERM, end_if_cancelled)
    signal.signal(signal.SIGINT, lambda number, frame: _exit(128 + number))
    yield
    sys.stdout.flush()
    sys.stderr.flush()


def _exit(code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code % 256)
