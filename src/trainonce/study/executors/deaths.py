"""The record of a trial that could not write its own: its process, its worker or its machine died."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

from trainonce.study import layout
from trainonce.study.checkpoint import read_checkpoint, read_spent, write_spent
from trainonce.study.executors.base import Event
from trainonce.study.record import UNKNOWN, Record, versions

if TYPE_CHECKING:
    from pathlib import Path

    from trainonce.study.executors.base import Job
    from trainonce.study.store import Store


DIED = "The trial's process died"  # how the sentences about it begin
HEARD = 3.0  # seconds in which the other processes of a trial that has failed may say why


def record_death(
    name: str, job: Job, store: Store, *, kind: str, message: str, start: float, fraction: float, device: str
) -> Event:
    """Record the failure, unless another process has the trial or has recorded it; return the event it ends with.

    :param name: Of the task.
    :param kind: The type of the error, such as ``"ProcessDied"``.
    :param message: A sentence about it.
    :param start: When the trial was started.
    :param fraction: The part of a full training up to its last sign of life.
    """
    with store.claim(job.key) as mine:
        if (there := store.find(job.key, job.since)) is not None and job.is_done(there):
            return Event("there", there)
        if not mine:
            return Event("taken")
        fraction, seconds = _cost(job, store, start, fraction)
        log = store.log(job.key)
        printed = log.read_text(errors="replace")[-4000:] if log.is_file() else ""
        record = Record(
            job.key,
            name,
            job.rule or UNKNOWN,
            job.seed,
            "failed",
            seconds=round(seconds, 3),
            fraction=round(fraction, 4),
            ended=time.time(),
            device=device,
            versions=versions(),
            error={"type": kind, "message": message, "traceback": printed},
        )
        try:
            store.append(record)
        except OSError as error:
            return Event("stop", f"{error.strerror}.")
    return Event("end", record)


def describe_exit(code: int | None) -> str:
    """A sentence about a trial's process that ended with this exit code."""
    reason = f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"
    hint = " Was memory short?" if code == -signal.SIGKILL else ""
    return f"{DIED} ({reason}).{hint}"


def describe_other(code: int | None, log: Path) -> str:
    """A sentence about a process that trained beside the first one of a trial, which is kept at the end of its log."""
    lines = log.read_text(errors="replace").strip().splitlines()
    text = f"{describe_exit(code)} {lines[-1] if lines else ''}".strip()
    with log.open("a") as file:
        file.write(f"{text}\n")
    return text


def hear_others(log: Path) -> str:
    """What another process of the trial said when it died; nothing if none did. The first one has failed, too."""
    end = time.monotonic() + HEARD
    while True:
        for path in log.parent.glob(f"{log.stem}.*{log.suffix}"):
            lines = path.read_text(errors="replace").splitlines()
            if lines and lines[-1].startswith(DIED):
                return f" Another process of the trial: {lines[-1]}"
        if time.monotonic() > end:
            return ""
        time.sleep(0.1)


def note_lost(job: Job, store: Store, start: float, fraction: float) -> None:
    """Note what a trial that will be started again has cost since its last checkpoint."""
    with store.claim(job.key) as mine:
        if mine:
            folder = store.folder(job.key)
            before, lost = read_spent(folder), _cost(job, store, start, fraction)
            folder.mkdir(parents=True, exist_ok=True)
            write_spent(folder, before[0] + lost[0], before[1] + lost[1])


def _cost(job: Job, store: Store, start: float, fraction: float) -> tuple[float, float]:
    """What the trial has cost, in full trainings and in seconds, but for what its checkpoint keeps."""
    folder, now = store.folder(job.key), time.time()
    kept, fraction = read_checkpoint(folder), min(1.0, fraction)
    if kept is None:
        return fraction, now - start
    saved = (folder / layout.CHECKPOINT).stat().st_mtime
    seconds = max(0.0, now - max(start, saved))  # another machine's clock may have dated it in the future
    return max(0.0, fraction - kept.iteration / kept.total), seconds
