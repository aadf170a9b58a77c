"""The folder in which a worker trains a trial, and how its files get there and back.

It has the layout of a store with this trial alone, and the history of another where the rule needs one. So a file
has the same path from either folder.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from trainonce.study import layout
from trainonce.study.executors.remote import pieces

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from trainonce.study.executors.base import Job
    from trainonce.study.executors.remote.messages import Batch
    from trainonce.study.executors.remote.pieces import Piece
    from trainonce.study.store import Store


def trial_path(key: str) -> str:
    """The folder of a trial, from that of a store."""
    return f"{layout.TRIALS}/{key}"


def log_path(key: str) -> str:
    """What a trial printed, from the folder of a store."""
    return f"{layout.LOGS}/{key}.txt"


def names_of(key: str, folder: Path) -> list[str]:
    """All files of a trial in a store or a worker's folder."""
    trial = trial_path(key)
    found = [f"{trial}/{name}" for name in pieces.names_in(folder / trial)]
    return [*found, *([log_path(key)] if (folder / log_path(key)).is_file() else [])]


def pieces_for(job: Job, store: Store) -> Iterator[Piece]:
    """What the store has of a trial for its worker: a checkpoint with its files, and what the trial has cost."""
    names = names_of(job.key, store.path)
    if not (store.folder(job.key) / layout.CHECKPOINT).is_file():
        names = [name for name in names if name == f"{trial_path(job.key)}/{layout.SPENT}"]
    for name in names:
        yield from pieces.cut(store.path, name)


def source_pieces(job: Job, store: Store) -> Iterator[Piece]:
    """The history of another trial, where the rule needs one: for all processes that train the trial."""
    if job.source is not None:
        yield from pieces.cut(store.path, f"{trial_path(job.source)}/{layout.HISTORY}")


class Incoming:
    """Files that arrive from workers: beside the trials until a batch is complete, then in their place at once."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def write(self, key: str, piece: Piece) -> None:
        if not piece.name.startswith((trial_path(key) + "/", log_path(key))):
            raise ValueError(f"A worker sends the files of its trial {key}; got {piece.name!r}.")
        pieces.write(self._folder(key), piece)

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
