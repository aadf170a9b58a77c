"""Files on their way between driver and workers, in pieces, so that a large one never has to fit into memory."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

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
