"""The files of a trial on their way to a worker and back, in pieces, and what else a worker says.

A worker trains in a folder with the layout of a store, with this trial alone, and the history of another where the
rule needs one. So a file has the same path from either folder. A large file never has to fit into memory.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from trainonce.study import layout

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from trainonce.study.executors.base import Job
    from trainonce.study.store import Store

    Stamp = tuple[int, int, int]

SIZE = 4 << 20  # bytes of a piece


class Piece(NamedTuple):
    """A part of a file: its path from the folder that is sent, and where the part begins in it."""

    name: str
    offset: int
    content: bytes


def names_in(folder: Path) -> list[str]:
    """The files below a folder, by their paths from it. Any of them may be gone by now."""
    found = (Path(place, name) for place, _, names in os.walk(folder) for name in names)
    return sorted(path.relative_to(folder).as_posix() for path in found if path.is_file())


def cut(folder: Path, name: str, size: int = SIZE) -> Iterator[Piece]:
    """The pieces of a file; an empty one has one, too. The file may grow, or be replaced, meanwhile."""
    offset = 0
    with (folder / name).open("rb") as file:
        while (content := file.read(size)) or not offset:
            yield Piece(name, offset, content)
            if not content:
                return
            offset += len(content)


def write(folder: Path, piece: Piece) -> None:
    """Put a piece where it belongs; those of a file arrive in their order."""
    parts = PurePosixPath(piece.name)
    if parts.is_absolute() or ".." in parts.parts:
        raise ValueError(f"A file must lie below the folder that is sent; got {piece.name!r}.")
    path = folder / parts
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("r+b" if piece.offset else "wb") as file:
        file.seek(piece.offset)
        file.write(piece.content)


# What a worker says. Events pass as bytes: it does not load what they consist of.


class Began(NamedTuple):
    """A worker has the trial."""


class Packed(NamedTuple):
    """An event, pickled, and whether it is the last."""

    content: bytes
    last: bool


class Died(NamedTuple):
    """The trial's process ended without its last event; a sentence."""

    message: str


class Batch(NamedTuple):
    """All pieces of these files were sent. ``last``: how the trial has ended; then there are no other files."""

    names: tuple[str, ...]
    last: Packed | Died | None = None


Message = Began | Packed | Piece | Batch


# The files of a trial


def trial_path(key: str) -> str:
    """The folder of a trial, from that of a store."""
    return f"{layout.TRIALS}/{key}"


def log_path(key: str) -> str:
    """What a trial printed, from the folder of a store."""
    return f"{layout.LOGS}/{key}.txt"


def names_of(key: str, folder: Path) -> list[str]:
    """All files of a trial in a store or a worker's folder."""
    trial = trial_path(key)
    found = [f"{trial}/{name}" for name in names_in(folder / trial)]
    return [*found, *([log_path(key)] if (folder / log_path(key)).is_file() else [])]


def pieces_for(job: Job, store: Store) -> Iterator[Piece]:
    """What the store has of a trial for its worker: a checkpoint with its files, and what the trial has cost."""
    names = names_of(job.key, store.path)
    if not (store.folder(job.key) / layout.CHECKPOINT).is_file():
        names = [name for name in names if name == f"{trial_path(job.key)}/{layout.SPENT}"]
    for name in names:
        yield from cut(store.path, name)


def source_pieces(job: Job, store: Store) -> Iterator[Piece]:
    """The history of another trial, where the rule needs one: for all processes that train the trial."""
    if job.source is not None:
        yield from cut(store.path, f"{trial_path(job.source)}/{layout.HISTORY}")


class Outgoing:
    """The files of a trial on their way to the driver. Made before the trial starts: what is there came from it."""

    def __init__(self, key: str, folder: Path) -> None:
        self._key, self._folder = key, folder
        trial = trial_path(key)
        self._checkpoint, self._history = f"{trial}/{layout.CHECKPOINT}", f"{trial}/{layout.HISTORY}"
        self._spent = f"{trial}/{layout.SPENT}"
        self._sent, self._others = self._stamp(self._checkpoint), self._stamp_others()

    @property
    def is_due(self) -> bool:
        """Whether there is a checkpoint that was not sent."""
        return self._stamp(self._checkpoint) not in (None, self._sent)

    def checkpoint(self) -> Iterator[Piece | Batch]:
        """What the trial needs to go on elsewhere, and those of its other files that have changed since the last time.

        The trial goes on, so the checkpoint is read first and the history last: it then has all steps up to the
        checkpoint, and perhaps more, which are cut when the trial goes on. They are put in place the other way round.
        There is no batch at the end if the trial has removed its checkpoint meanwhile.
        """
        self._sent, others = self._stamp(self._checkpoint), self._stamp_others()
        changed = [name for name, stamp in others.items() if stamp != self._others.get(name)]
        sent = yield from self._pieces([self._checkpoint, self._spent, *changed, self._history])
        if self._checkpoint in sent and self._history in sent:
            self._others = others
            yield Batch(tuple(reversed(sent)))

    def everything(self, last: Packed | Died) -> Iterator[Piece | Batch]:
        """All files of a trial that has ended, and how it has; a checkpoint comes last, as above."""
        names = names_of(self._key, self._folder)
        sent = yield from self._pieces(sorted(names, key=lambda name: name == self._checkpoint))
        yield Batch(tuple(sent), last)

    def _pieces(self, names: Iterable[str]) -> Generator[Piece, None, list[str]]:
        """The pieces of those files that are there; returns their names. Between two pieces any file may go."""
        sent = []
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                yield from cut(self._folder, name)
                sent.append(name)
        return sent

    def _stamp_others(self) -> dict[str, Stamp | None]:
        """What the task itself has written, but for files that it may be about to move to their name."""
        trial = trial_path(self._key)
        names = (f"{trial}/{name}" for name in names_in(self._folder / trial) if not name.endswith(".part"))
        ours = (self._checkpoint, self._history, self._spent)
        return {name: self._stamp(name) for name in names if name not in ours}

    def _stamp(self, name: str) -> Stamp | None:
        """What tells a file from the one before, which it has replaced; None if there is none.

        The inode alone does not: that of a file that was replaced is free for the next one.
        """
        try:
            found = (self._folder / name).stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size


class Incoming:
    """Files that arrive from workers: beside the trials until a batch is complete, then in their place at once."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def write(self, key: str, piece: Piece) -> None:
        if not piece.name.startswith((trial_path(key) + "/", log_path(key))):
            raise ValueError(f"A worker sends the files of its trial {key}; got {piece.name!r}.")
        write(self._folder(key), piece)

    def place(self, key: str, batch: Batch) -> list[Path]:
        """Move a complete batch into the store, in its order; returns what else the trial has there.

        Of a trial that has ended nothing else is needed, once it is recorded. Until then its checkpoint is.
        """
        for name in batch.names:
            target = self._store.path / name
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(self._folder(key) / name, target)
        self.discard(key)
        others = set(names_of(key, self._store.path)) - {*batch.names, f"{trial_path(key)}/{layout.CURVES}"}
        return [self._store.path / name for name in sorted(others)]

    def discard(self, key: str) -> None:
        """Remove what arrived, and was not complete."""
        shutil.rmtree(self._folder(key), ignore_errors=True)

    def _folder(self, key: str) -> Path:
        return self._store.path / layout.INCOMING / key
