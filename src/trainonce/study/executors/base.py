"""What the runner asks of an executor: to start trials, and to report what becomes of them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from trainonce.study.store import START, Position

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trainonce.study.record import Record
    from trainonce.study.search import Search
    from trainonce.study.weightings import Weighting


@dataclasses.dataclass(frozen=True)
class Job:
    """A trial to run. In a search ``weighting`` is None and ``done`` holds the search's earlier trials."""

    key: str
    seed: int
    weighting: Weighting | None
    source: str | None = None  # the key of the trial whose history the weighting needs
    search: Search | None = None
    number: int = 0  # within the search
    done: Sequence[Record] = ()
    since: Position = START  # where the records end that the study knows: a trial recorded behind it does not run


class Event(NamedTuple):
    """What happened to a trial.

    ======== =========================================== =========================
    kind     meaning                                     content
    ======== =========================================== =========================
    beat     it has come this far                        step, total, a note
    end      it has ended and its record is written      the record
    there    another process had recorded it already     the record
    taken    another process is running it               None
    stop     the study cannot go on                      the reason, a sentence
    ======== =========================================== =========================
    """

    kind: Literal["beat", "end", "there", "taken", "stop"]
    content: Any = None


class Executor(Protocol):
    """Runs trials, several at a time or one after the other.

    The runner calls :meth:`start` while ``has_room``, then :meth:`events` until every job has ended, and :meth:`stop`
    at the end, also after an error or Ctrl-C. An executor runs a job by calling
    :func:`trainonce.study.executors.run_trial.run` wherever the training happens: that function claims the trial in
    the store, trains, writes the record and returns the last event. The store is a folder, so the place must share a
    file system with the runner.

    :mod:`~trainonce.study.executors.in_process` is the shortest example. A new executor is one file here and one line
    in :data:`trainonce.study.executors.tools.EXECUTORS`.
    """

    @property
    def has_room(self) -> bool:
        """Whether another job may be started now."""
        ...

    @property
    def is_idle(self) -> bool:
        """Whether no started job is left to wait for."""
        ...

    def start(self, job: Job) -> None:
        """Start a job and return without waiting for it."""
        ...

    def events(self) -> Iterator[tuple[str, Event]]:
        """The keys of started jobs with what has happened to them since the last call.

        Called only while not idle. It waits for the first event, at most about half a second, so that the runner can
        start what has become ready meanwhile. Each job ends with exactly one event of a kind other than ``beat``; a
        ``stop`` may follow if nothing else can run there. A job whose machine or process died ends with a record of
        status ``failed``, which the executor writes itself.
        """
        ...

    def stop(self) -> None:
        """End whatever is still running, without a record: those trials run again in the next study."""
        ...
