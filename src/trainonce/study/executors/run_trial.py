"""One trial from its claim to its record, in whatever process an executor has chosen."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import shutil
import time
import traceback
import warnings
from typing import TYPE_CHECKING, Any

import torch

from trainonce.errors import InputError, TerminatedError
from trainonce.random_states import seed_everything
from trainonce.study import layout, loop, torchrun
from trainonce.study.executors.base import Event, Job
from trainonce.study.executors.deaths import hear_others
from trainonce.study.record import UNKNOWN, Record, Status, versions
from trainonce.study.trial import Trial, check_metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from trainonce.study.store import Store
    from trainonce.study.task import Task

    #: Receives the step, the number of steps if it is known, and a note.
    Notify = Callable[[int, int | None, str], None]


def run(task: Task, job: Job, store: Store, device: str, notify: Notify | None = None) -> Event:
    """Run the trial unless another process has it, record it, and return the event it ends with."""
    with store.claim(job.key) as mine:
        if not mine:
            return Event("taken")
        if (there := store.find(job.key, job.since)) is not None and job.is_done(there):
            return Event("there", there)
        try:
            source = None if job.source is None else store.folder(job.source)
            record = train(task, job, store.folder(job.key), source, device, notify)
        except InputError as error:
            return Event("stop", str(error))
        if torchrun.world_size() > 1 and record.error is not None:
            said = hear_others(store.log(job.key))
            record = dataclasses.replace(record, error={**record.error, "message": record.error["message"] + said})
        try:
            store.append(record)
        except OSError as error:
            return Event("stop", f"{error.strerror}.")
        forget(record, store.folder(job.key))
        return Event("end", record)


def train(task: Task, job: Job, folder: Path, source: Path | None, device: str, notify: Notify | None = None) -> Record:
    """Train once and return the record, also when the task raises. Needs no store, and writes to the folder alone.

    :param folder: Of the trial. A checkpoint that is there is where it goes on.
    :param source: The folder of the trial whose history the rule needs.
    """
    start = time.time()
    clear(folder)
    rule, trial, metrics, error = job.rule, None, dict[str, float](), None
    status: Status = "failed"
    warned: list[str] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if job.search is not None:
            rule = job.search.propose(task.terms, task.direction, job.done, task.select_key, job.seed, job.number)
        assert rule is not None
        trial = Trial(task, rule, job.seed, dir=folder, device=device, source=source, until=job.until, notify=notify)
        torchrun.announce(rule, job.seed, None if source is None else str(source), job.until)
        seed_everything(job.seed)
        with _collect_warnings(warned):
            returned = task(trial)
            torchrun.end_trial()
            if not_aligned := trial.not_aligned:
                warned.append(not_aligned)
            metrics, not_finite = check_metrics(task, returned, paused=trial.paused)
            status = "paused" if trial.paused else "diverged" if not_finite else "done"
            if trial.history is None:
                raise RuntimeError(f"The task {task.name!r} never called trial.attach(optimizer): its rule had no say.")
            trial.history.flush()
    except (Exception, SystemExit) as caught:
        status = "failed"
        if isinstance(caught, InputError):
            torchrun.end_trial()
            raise
        if loop.is_asked_to_end():  # what else ends then, such as the processes of a loader, is no failure
            raise TerminatedError from caught
        traceback.print_exc()
        error = {"type": type(caught).__name__, "message": str(caught), "traceback": traceback.format_exc()}
    finally:
        if trial is not None and trial.history is not None:
            with contextlib.suppress(Exception):  # of a device that failed nothing can be read
                trial.history.flush()  # now: later it could write between the rows of a trial that goes on
    if trial is not None and status == "paused":
        trial.note_spent()
    coefficients = _last_coefficients(trial, status)
    warned += warnings_of(coefficients)
    fraction, seconds = _cost(trial, status, start)
    return Record(
        key=job.key,
        task=task.name,
        rule=rule if rule is not None else UNKNOWN,
        seed=job.seed,
        status=status,
        metrics=metrics,
        reports=[] if trial is None else trial.reports,
        coefficients=coefficients,
        seconds=round(seconds, 3),
        fraction=round(fraction, 4),
        until=job.until if status == "paused" else 1.0,
        ended=time.time(),
        device=device_name(device),
        versions=versions(),
        warnings=warned,
        error=error,
    )


def forget(record: Record, folder: Path) -> None:
    """Remove what a trial that has ended would go on from, once its record is written."""
    if record.status in ("done", "diverged"):
        for name in (layout.CHECKPOINT, layout.SPENT):
            (folder / name).unlink(missing_ok=True)
        shutil.rmtree(folder / layout.TRAINER, ignore_errors=True)


def clear(folder: Path) -> None:
    """Remove what an earlier run of the trial has left, but for what it has cost; all stays with a checkpoint."""
    if not (folder / layout.CHECKPOINT).is_file():
        for path in folder.iterdir() if folder.is_dir() else ():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != layout.SPENT:
                path.unlink(missing_ok=True)


def _last_coefficients(trial: Trial | None, status: Status) -> Sequence[float]:
    """Return the coefficients that a trial ended with; none where it had no criterion, or its device failed."""
    if trial is None or trial._criterion is None:
        return []
    try:
        found: list[float] = trial._criterion.coefficients().tolist()
    except RuntimeError:
        if status != "failed":  # of a device that failed nothing can be read
            raise
        return []
    return found


def warnings_of(coefficients: Sequence[float]) -> list[str]:
    """Return what is to be said of the coefficients that a trial ended with."""
    if all(map(math.isfinite, coefficients)):
        return []
    return ["The coefficients were not finite at the end: some loss was not, or its gradient."]


def _cost(trial: Trial | None, status: Status, start: float) -> tuple[float, float]:
    """What the trial cost, in full trainings and in seconds, with earlier runs of it that had to start anew.

    Of a failed one, what its checkpoint does not keep; the rest counts when the trial has ended.
    """
    if trial is None:
        return 0.0, time.time() - start
    if status == "failed":
        return trial.lost
    done = trial.fraction if status == "paused" else 1.0
    return done + trial.wasted[0], trial.seconds + trial.wasted[1]


def device_name(device: str) -> str:
    """What the record calls a device: the GPU's model, or ``"cpu"``."""
    return torch.cuda.get_device_name(device) if torch.device(device).type == "cuda" else str(device)


def device_works(device: str) -> bool:
    """Whether the device still works in this process: after some errors a GPU does not, whatever is asked of it."""
    try:
        torch.zeros((), device=device).item()
    except torch.OutOfMemoryError:
        return True
    except RuntimeError:
        return False
    return True


@contextlib.contextmanager
def _collect_warnings(texts: list[str]) -> Iterator[None]:
    """Add each warning to the texts, once, and show it as usual."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        def keep(message: Any, category: type[Warning], *where: Any, **more: Any) -> None:
            text = f"{category.__name__}: {message}"
            if text not in texts:
                texts.append(text)
            show(message, category, *where, **more)

        warnings.showwarning = keep
        yield
