"""What the runner asks of an executor: to start trials, and to report what becomes of them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from trainonce.study.store import START, Position

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trainonce.study.record import Record
    from trainonce.study.rules import Rule
    from trainonce.study.search import Search


@dataclasses.dataclass(frozen=True)
class Job:
    """A trial to run. In a search ``rule`` is None and ``done`` holds the search's earlier trials."""

    key: str
    seed: int
    rule: Rule | None
    source: str | None = None  # the key of the trial whose history the rule needs
    search: Search | None = None
    number: int = 0  # within the search
    done: Sequence[Record] = ()
    until: float = 1.0  # the part of the training after which the trial pauses
    since: Position = START  # where the records end that the study knows: a trial recorded behind it does not run

    def is_done(self, record: Record) -> bool:
        """Whether a record of the trial says that it has come as far as this job takes it, or has ended."""
        return record.status != "paused" or record.until >= self.until


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
    note     something to tell, of no trial              a sentence
    ======== =========================================== =========================
    """

    kind: Literal["beat", "end", "there", "taken", "stop", "note"]
    content: Any = None


class Executor(Protocol):
    """Runs trials, several at a time or one after the other.

    The schedule decides which trial runs and when, the executor where. The runner calls :meth:`start` while
    ``has_room``, then :meth:`events` until every job has ended, and :meth:`stop` at the end, also after an error or
    Ctrl-C. All four are called from one thread.

    ============== ====================================================================================================
    what           how it goes through the protocol
    ============== ====================================================================================================
    progress       events ``beat``
    a result       the record in ``end``; it and the trial's files are in the store before the event is yielded
    a failure      of the task: an ``end`` like any other, with status ``failed``; the trial runs again next time
    a death        of the worker: the executor starts the job again, or ends it with a record that it writes itself
    nothing works  ``stop`` with a sentence: the runner raises it, and stops the executor
    a pause        a record of status ``paused``; the trial's folder keeps the checkpoint for its next job
    Ctrl-C         reaches the driver alone, which calls :meth:`stop`
    resuming       a checkpoint in the trial's folder is where the next run of the trial goes on
    ============== ====================================================================================================

    Wherever a job runs, :func:`trainonce.study.executors.run_trial.run` runs it: it claims the trial in the store,
    trains, writes the record and returns the last event. The shortest example is
    :mod:`~trainonce.study.executors.in_process`.
    Where its process may die, :func:`trainonce.study.executors.deaths.record_death` writes the record in its place.

    A new executor is one file here, one line in :data:`trainonce.study.executors.tools.EXECUTORS` and, if it has
    options, its lines in :mod:`trainonce.study.executors.options`. It is made from the task, the store, the
    :class:`~trainonce.study.executors.tools.Tools`, whose ``options`` are checked, and the names of modules that
    trials will import.
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
