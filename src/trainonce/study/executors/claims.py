"""The claims of trials that one process trains side by side."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from trainonce.study.executors.base import Event
from trainonce.study.executors.run_trial import forget

if TYPE_CHECKING:
    from trainonce.study.executors.base import Job
    from trainonce.study.record import Record
    from trainonce.study.store import Store


class Claims:
    """Trials that this process has from :meth:`take` until they are recorded, or until it ends, however it ends."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._held: dict[str, contextlib.ExitStack] = {}

    def take(self, job: Job) -> Event | None:
        """Claim a trial; the event it ends with if another process runs it or has recorded it."""
        with contextlib.ExitStack() as stack:
            if not stack.enter_context(self._store.claim(job.key)):
                return Event("taken")
            if (there := self._store.find(job.key, job.since)) is not None and job.is_done(there):
                return Event("there", there)
            self._held[job.key] = stack.pop_all()
        return None

    def holds(self, key: str) -> bool:
        """Whether a trial is claimed and not recorded yet."""
        return key in self._held

    def record(self, record: Record) -> Event:
        """Write the record of a claimed trial, whose files are in the store, and give the trial back."""
        try:
            self._store.append(record)
            forget(record, self._store.folder(record.key))
        except OSError as error:
            return Event("stop", f"{error.strerror}.")
        finally:
            self.release(record.key)
        return Event("end", record)

    def release(self, key: str) -> None:
        """Give a trial back, recorded or not."""
        if (stack := self._held.pop(key, None)) is not None:
            stack.close()

    def close(self) -> None:
        """Give all trials back."""
        for key in list(self._held):
            self.release(key)
