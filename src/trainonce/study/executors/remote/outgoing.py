"""What a worker sends of the folder in which it trains: checkpoints while it trains, and all files at the end."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from trainonce.study import layout
from trainonce.study.executors.remote import pieces, scratch
from trainonce.study.executors.remote.messages import Batch

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator
    from pathlib import Path

    from trainonce.study.executors.remote.messages import Died, Packed
    from trainonce.study.executors.remote.pieces import Piece

    Stamp = tuple[int, int, int]


class Outgoing:
    """The files of a trial on their way to the driver. Made before the trial starts: what is there came from it."""

    def __init__(self, key: str, folder: Path) -> None:
        self._key, self._folder = key, folder
        trial = scratch.trial_path(key)
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
        names = scratch.names_of(self._key, self._folder)
        sent = yield from self._pieces(sorted(names, key=lambda name: name == self._checkpoint))
        yield Batch(tuple(sent), last)

    def _pieces(self, names: Iterable[str]) -> Generator[Piece, None, list[str]]:
        """The pieces of those files that are there; returns their names. Between two pieces any file may go."""
        sent = []
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                yield from pieces.cut(self._folder, name)
                sent.append(name)
        return sent

    def _stamp_others(self) -> dict[str, Stamp | None]:
        """What the task itself has written, but for files that it may be about to move to their name."""
        trial = scratch.trial_path(self._key)
        names = (f"{trial}/{name}" for name in pieces.names_in(self._folder / trial) if not name.endswith(".part"))
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
