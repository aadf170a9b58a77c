"""What a worker tells the driver about its trial. Events pass as bytes: a worker does not load what they consist of."""

from __future__ import annotations

from typing import NamedTuple

from trainonce.study.executors.remote.pieces import Piece


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
