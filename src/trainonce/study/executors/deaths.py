"""The record of a trial that could not write its own: its process, its worker or its machine died."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from trainonce.study import layout
from trainonce.study.checkpoint import read_checkpoint
from trainonce.study.record import UNKNOWN, Record, versions

if TYPE_CHECKING:
    from trainonce.study.executors.base import Job
    from trainonce.study.store import Store
    from trainonce.study.task import Task


def death_record(
    task: Task,
    job: Job,
    store: Store,
    *,
    kind: str,
    message: str,
    start: float,
    fraction: float,
    device: str,
) -> Record:
    """The record of the failure.

    :param kind: The type of the error, such as ``"ProcessDied"``.
    :param message: A sentence about it.
    :param start: When the trial was started.
    :param fraction: The part of a full training up to its last sign of life.
    """
    log = store.log(job.key)
    fraction, seconds = _cost(job, store, start, fraction)
    return Record(
        job.key,
        task.name,
        job.rule or UNKNOWN,
        job.seed,
        "failed",
        seconds=round(seconds, 3),
        fraction=round(fraction, 4),
        ended=time.time(),
        device=device,
        versions=versions(),
        error={
            "type": kind,
            "message": message,
            "traceback": log.read_text(errors="replace")[-4000:] if log.is_file() else "",
        },
    )


def _cost(job: Job, store: Store, start: float, fraction: float) -> tuple[float, float]:
    """What the trial has cost, in full trainings and in seconds, but for what its checkpoint keeps."""
    folder, now = store.folder(job.key), time.time()
    kept, fraction = read_checkpoint(folder), min(1.0, fraction)
    if kept is None:
        return fraction, now - start
    saved = (folder / layout.CHECKPOINT).stat().st_mtime
    seconds = max(0.0, now - max(start, saved))  # another machine's clock may have dated it in the future
    return max(0.0, fraction - kept.iteration / kept.total), seconds
