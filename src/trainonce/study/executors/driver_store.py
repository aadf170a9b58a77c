"""The store as the driver uses it for workers elsewhere: it holds their claims, and writes their records."""

from __future__ import annotations

import contextlib
import resource
import time
from typing import TYPE_CHECKING

from trainonce.study.executors.base import Event
from trainonce.study.executors.deaths import death_record
from trainonce.study.executors.run_trial import forget

if TYPE_CHECKING:
    from trainonce.study.executors.base import Job
    from trainonce.study.record import Record
    from trainonce.study.store import Store
    from trainonce.study.task import Task


FILES = 64  # that a driver opens beside those for its trials


class DriverStore:
    """Claims and records of trials that train where the store is not.

    A trial is claimed from :meth:`take` until it is recorded, or until the driver ends, however it ends. So of several
    drivers on one folder only one has a trial, and no worker needs locks.
    """

    def __init__(self, task: Task, store: Store) -> None:
        self._task, self._store = task, store
        self._claims: dict[str, contextlib.ExitStack] = {}
        self._started: dict[str, float] = {}

    def take(self, job: Job) -> Event | None:
        """Claim a trial; the event it ends with if another driver runs it or has recorded it."""
        stack = contextlib.ExitStack()
        if not stack.enter_context(self._store.claim(job.key)):
            stack.close()
            return Event("taken")
        if (there := self._store.find(job.key, job.since)) is not None and job.is_done(there):
            stack.close()
            return Event("there", there)
        self._claims[job.key], self._started[job.key] = stack, time.time()
        return None

    def holds(self, key: str) -> bool:
        """Whether a trial is claimed and not recorded yet."""
        return key in self._claims

    def record(self, record: Record) -> Event:
        """Write the record of a claimed trial, once its files are in the store, and give the trial back."""
        try:
            self._store.append(record)
            forget(record, self._store.folder(record.key))
        except OSError as error:
            return Event("stop", f"{error.strerror}.")
        finally:
            self.release(record.key)
        return Event("end", record)

    def record_death(self, job: Job, kind: str, message: str, fraction: float, device: str) -> Event:
        """Write the failure of a claimed trial whose worker died; the message is a sentence."""
        start = self._started[job.key]
        found = {"kind": kind, "message": message, "start": start, "fraction": fraction, "device": device}
        return self.record(death_record(self._task, job, self._store, **found))  # type: ignore[arg-type]

    def release(self, key: str) -> None:
        """Give a trial back, recorded or not."""
        if (stack := self._claims.pop(key, None)) is not None:
            stack.close()

    def close(self) -> None:
        """Give all trials back."""
        for key in list(self._claims):
            self.release(key)


def check_open_files(concurrent: int, each: int = 1) -> None:
    """Raise if this process may not open enough files for so many trials at a time, with this many for each."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    most = (limit - FILES) // each
    if limit != resource.RLIM_INFINITY and concurrent > most:
        files = "a file" if each == 1 else f"{each} files"
        raise ValueError(
            f"max_concurrent={concurrent} needs {files} for each training, and this process may open {limit}: use at "
            f"most {most}, or raise the limit with ulimit -n."
        )
