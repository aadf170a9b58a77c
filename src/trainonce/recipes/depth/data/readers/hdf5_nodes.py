"""Nodes of HDF5 files: bytes by their path. Files are opened when they are first needed, once in every process."""

from __future__ import annotations

import os
import re
from typing import Any, NamedTuple

from trainonce.extras import require

_OPEN: dict[tuple[int, str], Any] = {}


class Node(NamedTuple):
    """Bytes in an HDF5 file."""

    file: str
    path: str

    def __str__(self) -> str:
        return f"{self.file}:{self.path}"

    def read(self) -> bytes:
        file = open_file(self.file)
        try:
            node = file[self.path]
            value = node[()]
        except KeyError:
            raise ValueError(f"{self.file} must hold the node {self.path!r}; it does not. {_nodes(file)}") from None
        except (OSError, RuntimeError, AttributeError, TypeError) as error:
            raise ValueError(f"The node {self} cannot be read ({_summary(error)}). Copy the file again.") from None
        return bytes(value) if isinstance(value, bytes) else bytes(value.tobytes())


def open_file(path: str) -> Any:
    """The open file. Every process opens its own: a handle taken over in a fork is not to be used."""
    key = os.getpid(), path
    if key not in _OPEN:
        _OPEN.setdefault(key, _open(path))
    return _OPEN[key]


def _open(path: str) -> Any:
    h5py = require("h5py", "h5py", "vision")
    try:
        return h5py.File(path, "r", locking=False)
    except OSError as error:
        text = "is cut short" if "truncated" in str(error) else "is not a whole HDF5 file"
        raise ValueError(f"{path} {text} ({_summary(error)}). Copy it again.") from None


def close() -> None:
    """Close the files of this process, so that they can be written again."""
    for process, path in list(_OPEN):
        if process == os.getpid():
            _OPEN.pop((process, path)).close()


def _summary(error: Exception) -> str:
    return re.sub(r".*\((.*)\)$", r"\1", " ".join(str(error).split())) or type(error).__name__


def _nodes(file: Any, most: int = 4) -> str:
    names = list(file)
    return f"It holds {', '.join(names[:most])}{' and more' * (len(names) > most)}." if names else "It is empty."
