"""Whether a study finds the data that it began with, told by the names and sizes of its files."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Inventory(NamedTuple):
    """Some files: how many, how large together, and a digest of all names and sizes."""

    files: int
    bytes: int
    digest: str

    def __str__(self) -> str:
        return f"{self.files} file{'s' * (self.files != 1)} of {_size(self.bytes)}"


def inventory(paths: Iterable[str | os.PathLike[str]]) -> Inventory | None:
    """What is there of some files and folders, wherever they lie; None if nothing is."""
    found = sorted(each for path in paths for each in _files(Path(path)))
    if not found:
        return None
    digest = hashlib.sha256("\n".join(f"{size} {name}" for name, size in found).encode()).hexdigest()[:16]
    return Inventory(len(found), sum(size for _, size in found), digest)


def _files(path: Path) -> Iterator[tuple[str, int]]:
    """Names, from the path's own on, and sizes. Hidden files are not data."""
    if path.is_file():
        yield path.name, path.stat().st_size
    for place, folders, names in os.walk(path):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if not name.startswith("."):
                file = Path(place, name)
                yield f"{path.name}/{file.relative_to(path).as_posix()}", file.stat().st_size


def _size(count: int) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.3g} {unit}"
        count /= 1000  # type: ignore[assignment]
    raise AssertionError
