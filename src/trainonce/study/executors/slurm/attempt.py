"""A trial's turn on the cluster, as a folder that the driver and the job share.

::

    slurm/KEY/1/             the first attempt at a trial; a job that is lost has another
        assignment.pkl       what the job must know
        start.json           of which task it is, and which checkpoint it starts from
        job.json             which job it is: written by the driver once it is submitted
        began.json           which job has it: whoever writes it first, the job or a driver that gives it up
        trial/               the trial's own folder, with its checkpoint
        output.txt           what it printed
        beat.json            how far it has come
        interrupted          its job was told that its time is over, and will go on in another turn
        cancel               the driver does not want it any more
        end.json             how it has ended

Files appear in one move, and no file has two writers at a time. So nothing here needs locks, and a network file system
is enough.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pickle
import shutil
import socket
import time
import uuid
from typing import TYPE_CHECKING, Any

from trainonce.study import layout
from trainonce.study.executors.base import Event
from trainonce.study.record import Record, as_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from trainonce.study.executors.remote.assignment import Assignment

ASSIGNMENT, JOB, BEGAN, TRIAL, OUTPUT = "assignment.pkl", "job.json", "began.json", "trial", "output.txt"
BEAT, INTERRUPTED, CANCEL, END = "beat.json", "interrupted", "cancel", "end.json"
START = "start.json"
OLD = "old"  # and something: the trial's folder of the store, on its way out


@dataclasses.dataclass(frozen=True)
class Given:
    """What a job finds in its folder: the assignment, where modules are, and the history that it may need."""

    assignment: Assignment
    path: tuple[str, ...]
    source: Path | None


@dataclasses.dataclass(frozen=True)
class Attempt:
    """One attempt at a trial, known by its folder."""

    folder: Path

    # The driver's side

    @classmethod
    def last(cls, root: Path, key: str) -> Attempt | None:
        """The newest attempt at a trial, if there is one."""
        numbers = [int(name) for name in _names(root / key) if name.isdecimal()]
        return cls(root / key / str(max(numbers))) if numbers else None

    @classmethod
    def make(cls, root: Path, key: str, given: Given, checkpoint: Path | None, task: str = "") -> Attempt:
        """A new attempt, which appears in one move.

        :param task: What tells the task from other versions of it.
        :param checkpoint: The folder of the trial to go on from. It is copied: a job that was given up may still write.
        """
        before = cls.last(root, key)
        folder = root / key / str(1 if before is None else int(before.folder.name) + 1)
        beside = root / key / f"new-{uuid.uuid4().hex}"
        beside.mkdir(parents=True)
        try:
            if checkpoint is not None:
                _copy(checkpoint, beside / TRIAL)
            (beside / ASSIGNMENT).write_bytes(pickle.dumps(given))
            _write(beside / START, {"saved": cls(beside).saved(), "task": task})
            beside.rename(folder)
        except OSError:
            shutil.rmtree(beside, ignore_errors=True)
            raise
        return cls(folder)

    def note_job(self, cluster: str, job: str, engine: str) -> None:
        """Note which job it is, and where submitit keeps it."""
        _write(self.folder / JOB, {"cluster": cluster, "job": job, "engine": engine, "host": socket.gethostname()})

    def job(self) -> Mapping[str, Any] | None:
        """Which job has it or will have it, as far as that is known; ``revoked`` if none may begin with it any more."""
        noted, began = _read(self.folder / JOB), _read(self.folder / BEGAN)
        if began is None:
            return noted
        return {**(noted or {}), **(began if began["job"] else {"revoked": True})}

    def task(self) -> str:
        """Of which task it is, as :meth:`make` was told."""
        found = _read(self.folder / START) or {}
        return str(found.get("task", ""))

    def revoke(self) -> bool:
        """Keep jobs from beginning with it; False if one has begun."""
        return _link(self.folder / BEGAN, {"job": ""})

    def give_up(self) -> None:
        """Let it end, whether a job has begun with it or not."""
        with contextlib.suppress(FileNotFoundError):
            try:
                (self.folder / CANCEL).touch()
            finally:
                self.revoke()

    def names(self) -> set[str]:
        """The files that are there now. A listing, since a network file system remembers which files were not there."""
        return set(_names(self.folder))

    def beat(self) -> tuple[int, int | None, str] | None:
        """How far the trial has come."""
        found = _read(self.folder / BEAT)
        return None if found is None else (found["step"], found["total"], found["note"])

    def end(self) -> Event | None:
        """How it has ended: ``end`` with a record, or ``stop`` with a sentence."""
        found = _read(self.folder / END)
        if found is None:
            return None
        return Event("end", Record.from_json(found["record"])) if "record" in found else Event("stop", found["stop"])

    def saved(self) -> int:
        """When the last checkpoint was written; 0 if there is none."""
        try:
            return (self.folder / TRIAL / layout.CHECKPOINT).stat().st_mtime_ns
        except (FileNotFoundError, NotADirectoryError):
            return 0

    def has_progressed(self) -> bool:
        """Whether there is a checkpoint that it did not start from. Not a newer one: machines have different clocks."""
        start = _read(self.folder / START) or {}
        return self.saved() not in (0, start.get("saved"))

    def began_at(self) -> float | None:
        found = _read(self.folder / BEGAN)
        return None if found is None else found.get("time")

    def bring_back(self, folder: Path, log: Path) -> None:
        """Move the trial's files to its folder in the store, and what it printed to its log.

        It may be repeated after an error. What was in the store goes away as a whole: on a network file system a file
        that is open somewhere cannot be removed at once, and would keep its folder from being replaced.
        """
        names = self.names()
        if TRIAL in names:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                folder.rename(self.folder / f"{OLD}-{uuid.uuid4().hex}")
            (self.folder / TRIAL).rename(folder)
        if OUTPUT in names:
            log.parent.mkdir(parents=True, exist_ok=True)
            (self.folder / OUTPUT).replace(log)

    def remove(self) -> None:
        """Remove all attempts at the trial."""
        shutil.rmtree(self.folder.parent, ignore_errors=True)

    # The job's side

    def begin(self, job: str) -> int:
        """Which turn at the trial this is for the job, from 1: another after it was requeued.

        0 if it may not train it: another job has it, the driver has given it up, or it has ended.
        """
        if self.is_cancelled() or END in self.names():  # a job may be requeued in its last moment
            return 0
        turn, own = 1, {"job": job, "host": socket.gethostname(), "time": time.time()}
        if not _link(self.folder / BEGAN, {**own, "turn": turn}):
            began = _read(self.folder / BEGAN)
            if began is None or began["job"] != job:
                return 0
            turn = began.get("turn", 1) + 1
            _write(self.folder / BEGAN, {**own, "time": began["time"], "turn": turn})
        (self.folder / INTERRUPTED).unlink(missing_ok=True)
        return turn

    def has_later_turn(self, turn: int) -> bool:
        """Whether the job was requeued since. A node that Slurm has lost sight of may train on meanwhile."""
        began = _read(self.folder / BEGAN)
        return began is not None and began.get("turn", turn) != turn

    def is_cancelled(self) -> bool:
        """Whether the driver does not want it any more."""
        names = self.names()
        return CANCEL in names or not names

    def given(self) -> Given:
        found: Given = pickle.loads((self.folder / ASSIGNMENT).read_bytes())
        return found

    def write_beat(self, step: int, total: int | None, note: str) -> None:
        _write(self.folder / BEAT, {"step": step, "total": total, "note": note})

    def write_end(self, event: Event) -> None:
        if event.kind == "end":
            _write(self.folder / END, {"record": as_json(event.content.to_json())})
        else:
            _write(self.folder / END, {"stop": event.content})


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _copy(source: Path, target: Path) -> None:
    """Copy a trial's folder to which a job may still write.

    The checkpoint comes first and the history last: its rows beyond the checkpoint are dropped when the trial goes on,
    while missing ones would stay missing.
    """
    names = sorted(_names(source), key=lambda name: (name == layout.HISTORY) - (name == layout.CHECKPOINT))
    if names:
        target.mkdir()
    for name in names:
        with contextlib.suppress(FileNotFoundError):  # it has gone since the listing
            if (source / name).is_dir():
                _copy(source / name, target / name)
            elif not name.endswith(".part") and not name.startswith(".nfs"):  # under way, or on its way out
                shutil.copy2(source / name, target / name)


def _beside(path: Path, content: Mapping[str, Any]) -> Path:
    beside = path.with_name(f"{path.name}.{uuid.uuid4().hex}.part")
    beside.write_text(json.dumps(content), encoding="utf-8")
    return beside


def _write(path: Path, content: Mapping[str, Any]) -> None:
    """Write a file in one move."""
    os.replace(_beside(path, content), path)


def _link(path: Path, content: Mapping[str, Any]) -> bool:
    """Write a file in one move unless it is there, whoever else tries at the same time."""
    beside = _beside(path, content)
    try:
        os.link(beside, path)
    except FileExistsError:
        return False
    finally:
        with contextlib.suppress(OSError):
            beside.unlink()
    return True


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found
