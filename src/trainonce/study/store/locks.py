"""Locks on single bytes of a file, for threads and processes alike. They end with their process, however it ends.

On Linux a lock belongs to the open file. Elsewhere it belongs to the process, and closing the file anywhere in that
process releases it; there a process opens the file once for all its locks, and knows itself which it holds.
"""

from __future__ import annotations

import contextlib
import functools
import os
import struct
import sys
import threading
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Release = Callable[[], None]

try:
    import fcntl
except ImportError:  # pragma: no cover
    raise ImportError(
        "A study locks its folder with fcntl, which this system lacks: use Linux, macOS or WSL."
    ) from None


@contextlib.contextmanager
def lock(path: Path, byte: int, *, wait: bool) -> Iterator[bool]:
    """Hold the byte during the block; without waiting, the block is told whether it does."""
    take = _take_by_file if _files_own_locks() else _take_by_process
    release: Release | None = None
    try:
        release = take(path, byte, wait)
    except OSError as error:
        if wait or not isinstance(error, BlockingIOError):
            raise OSError(
                error.errno,
                f"{path} cannot be locked: {error.strerror}. A study needs a folder that it may write to, on a file "
                "system with locks: choose another with --out.",
            ) from None
    if release is None:
        yield False
        return
    try:
        yield True
    finally:
        release()


# Locks of the open file

_open: set[IO[bytes]] = set()  # what a forked process must close: as long as it is open there, it is locked


@functools.cache
def _files_own_locks() -> bool:
    """Whether this system has locks of the open file."""
    if sys.platform != "linux":
        return False
    try:
        with open(os.devnull, "rb") as file:
            fcntl.fcntl(file, fcntl.F_OFD_GETLK, _flock(fcntl.F_WRLCK, 0))
    except OSError:
        return False
    return True


def _flock(kind: int, byte: int) -> bytes:
    """The C structure ``flock`` of Linux, for one byte."""
    return struct.pack("hhqqi0q", kind, os.SEEK_SET, byte, 1, 0)


def _take_by_file(path: Path, byte: int, wait: bool) -> Release:
    file = path.open("r+b", buffering=0)
    _open.add(file)
    try:
        fcntl.fcntl(file, fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK, _flock(fcntl.F_WRLCK, byte))
    except BaseException:
        _open.discard(file)
        file.close()
        raise
    return functools.partial(_release_by_file, file, byte)


def _release_by_file(file: IO[bytes], byte: int) -> None:
    _open.discard(file)
    if not file.closed:  # as it is in a forked process
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, _flock(fcntl.F_UNLCK, byte))  # whoever else has it open
        file.close()


# Locks of the process

_shared: dict[tuple[int, int], tuple[IO[bytes], set[int]]] = {}  # by device and inode: the file, and the bytes held
_released = threading.Condition()


def _take_by_process(path: Path, byte: int, wait: bool) -> Release:
    status = path.stat()
    place = status.st_dev, status.st_ino
    with _released:
        while place in _shared and byte in _shared[place][1]:
            if not wait:
                raise BlockingIOError
            _released.wait()
        if place not in _shared:
            _shared[place] = path.open("r+b", buffering=0), set()
        file, held = _shared[place]
        held.add(byte)
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB), 1, byte)
    except BaseException as error:
        _leave(place, byte)
        if isinstance(error, PermissionError):  # what some systems say of a lock that is taken
            raise BlockingIOError from None
        raise
    return functools.partial(_release_by_process, place, file, byte)


def _release_by_process(place: tuple[int, int], file: IO[bytes], byte: int) -> None:
    if not file.closed:  # as it is in a forked process
        fcntl.lockf(file, fcntl.LOCK_UN, 1, byte)
        _leave(place, byte)


def _leave(place: tuple[int, int], byte: int) -> None:
    """Let other threads have the byte, and close the file after the last."""
    with _released:
        file, held = _shared[place]
        held.discard(byte)
        if not held:
            file.close()
            del _shared[place]
        _released.notify_all()


# Forked processes


def _forget() -> None:
    """Let a forked process have none of the locks of the one that it comes from."""
    global _released
    for file in (*_open, *(file for file, _ in _shared.values())):
        file.close()
    _open.clear()
    _shared.clear()
    _released = threading.Condition()


os.register_at_fork(after_in_child=_forget)
