"""A trial on its way to a worker that does not have the store, and what the worker does with it."""

from __future__ import annotations

import dataclasses
import socket
from typing import TYPE_CHECKING

import torch

import trainonce
from trainonce.errors import InputError
from trainonce.study import torchrun
from trainonce.study.executors import run_trial
from trainonce.study.executors.base import Event, Job
from trainonce.study.executors.sent_task import OtherTaskError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trainonce.study.executors.run_trial import Notify
    from trainonce.study.executors.sent_task import SentTask


@dataclasses.dataclass(frozen=True)
class Assignment:
    """What a worker must know to train a trial; it can be pickled.

    ``sent`` says where the worker finds the task; :meth:`move` where its files lie elsewhere there.
    """

    sent: SentTask
    job: Job
    device: str
    threads: int
    version: str = trainonce.__version__

    def move(self, origin: Path, place: Path) -> Assignment:
        """The same for a machine where the files of the folder ``origin`` lie in ``place``."""
        rule = None if self.job.rule is None else self.job.rule.move(origin, place)
        job = dataclasses.replace(self.job, rule=rule)
        return dataclasses.replace(self, sent=self.sent.move(origin, place), job=job)


def train(assignment: Assignment, folder: Path, source: Path | None = None, notify: Notify | None = None) -> Event:
    """Train a trial in this process, and return the event it ends with: ``end`` with its record, or ``stop``.

    :param folder: Of the trial, of this worker alone. A checkpoint that is there is where the trial goes on.
    :param source: A folder with the history that the rule needs, where ``job.source`` names a trial.
    """
    if assignment.version != trainonce.__version__:
        return Event(
            "stop",
            f"The worker on {socket.gethostname()} has trainonce {trainonce.__version__}, the study has "
            f"{assignment.version}: install the same on all machines.",
        )
    torch.set_num_threads(assignment.threads)
    try:
        task = assignment.sent.load()
    except OtherTaskError as error:
        return Event("stop", str(error))
    except Exception as error:
        return Event(
            "stop",
            f"The task {assignment.sent.name!r} cannot be loaded on {socket.gethostname()}: {type(error).__name__}: "
            f"{error}. Install on the workers what it imports; files travel from the task's own folder only.",
        )
    try:
        record = run_trial.train(task, assignment.job, folder, source, assignment.device, notify)
        run_trial.forget(record, folder)  # here; the driver's goes when it has recorded the trial
        return Event("end", record)
    except InputError as error:
        return Event("stop", str(error))


def train_over_ranks(
    assignment: Assignment, folder: Path, source: Path | None, send: Callable[[Event], None]
) -> Event | None:
    """Train in this process, with others where torchrun's variables are set; returns the last event of the first.

    The process group is left as it is: the process ends, and one that has failed would wait for the others.
    """
    group = torchrun.process_group(assignment.device)
    device = group.__enter__()
    if device is not None:
        assignment = dataclasses.replace(assignment, device=device)
    if not torchrun.is_first():
        torchrun.follow(assignment.sent.load(), assignment.device, source)
        return None
    event = train(assignment, folder, source, notify=lambda *progress: send(Event("beat", progress)))
    torchrun.dismiss()
    return event
