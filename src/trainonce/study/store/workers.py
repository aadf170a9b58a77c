"""The workers of a study: a file for each, which it has locked while it runs. It shows whether locks are seen.

A worker that finds the file of another machine locked knows that this file system has locks across machines, so those
that it finds unlocked were left by workers that were killed. Where all are unlocked it watches them: a worker touches
its file now and then, and one that is touched belongs to a worker whose lock is not seen. No clocks are compared.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import threading
import time
from typing import TYPE_CHECKING

from trainonce.study.store import locks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

TOUCH = 3.0  # seconds between two touches of a worker's file
WATCH = 20.0  # seconds without a touch after which an unlocked file belongs to nobody
LOOK = 1.0  # seconds between two looks


def host() -> str:
    """Return the name of this machine."""
    return socket.gethostname()


@contextlib.contextmanager
def join(
    folder: Path, turn: Callable[[], contextlib.AbstractContextManager[object]], tell: Callable[[str], None]
) -> Iterator[str]:
    """Be a worker of the study during the block; raise if one on another machine is not kept out by its locks.

    Gives the name of this worker's file.

    :param folder: Of the workers' files.
    :param turn: Locks the folder. Who tries a lock holds it for a moment, and must not be taken for a worker.
    :param tell: Shows a sentence to the user.
    """
    folder.mkdir(exist_ok=True)
    name = f"{host()}-{os.getpid()}-{secrets.token_hex(2)}"
    with contextlib.ExitStack() as stack:
        with turn():
            file = stack.enter_context(_locked_file(folder, name))
        stack.enter_context(_touched(file))
        _check_others(folder, name, turn, tell)
        yield name


@contextlib.contextmanager
def _locked_file(folder: Path, name: str) -> Iterator[Path]:
    """Have a file that is locked before it gets its name, and gone before its lock is."""
    hidden, file = folder / f".{name}", folder / name
    hidden.touch()
    with locks.lock(hidden, 0, wait=True):
        hidden.rename(file)
        try:
            yield file
        finally:
            file.unlink(missing_ok=True)


@contextlib.contextmanager
def _touched(file: Path) -> Iterator[None]:
    """Touch the file now and then. It is not opened for that: closing it could end its lock."""
    over = threading.Event()

    def touch() -> None:
        while not over.wait(TOUCH):
            with contextlib.suppress(OSError):
                os.utime(file)

    threading.Thread(target=touch, daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _check_others(
    folder: Path,
    own: str,
    turn: Callable[[], contextlib.AbstractContextManager[object]],
    tell: Callable[[str], None],
) -> None:
    """Remove the files that killed workers have left; raise if a worker runs whose lock is not seen here."""
    first: dict[str, tuple[int, float]] = {}  # when each unlocked file had been touched when it was found, and found
    while True:
        unclear = []
        with turn():
            held, free = _look(folder, own)
            are_seen, now = any(_host_of(name) != host() for name in held), time.monotonic()
            for name, touched in free.items():
                before, found = first.setdefault(name, (touched, now))
                if touched != before and not are_seen and _host_of(name) != host():
                    raise OSError(
                        f"A worker on {_host_of(name)} has locked {folder / name}, and {host()} does not see the lock: "
                        "this file system has no locks across machines. Use one machine for this study, or a folder "
                        "on one that has, such as NFS."
                    )
                if are_seen or _host_of(name) == host() or now - found >= WATCH:
                    (folder / name).unlink(missing_ok=True)
                else:
                    unclear.append(name)
        if not unclear:
            return
        if all(first[name][1] == now for name in unclear):
            hosts = ", ".join(sorted({_host_of(name) for name in unclear}))
            tell(f"Checking for {WATCH:.0f} s whether workers on {hosts}, which hold no locks here, were killed.")
        time.sleep(LOOK)


def running(folder: Path) -> list[str]:
    """Return the workers that are at work now, by the names of their files."""
    return _look(folder, "")[0] if folder.is_dir() else []


def _look(folder: Path, own: str) -> tuple[list[str], dict[str, int]]:
    """Return the files of other workers that are locked, and those that are not with when they were touched."""
    held, free = [], {}
    for name in os.listdir(folder):
        if name == own or (name.startswith(".") and _host_of(name) != host()):  # which its worker is about to lock
            continue
        with contextlib.suppress(FileNotFoundError), locks.lock(folder / name, 0, wait=False) as mine:
            if mine:
                free[name] = (folder / name).stat().st_mtime_ns
            else:
                held.append(name)
    return held, free


def _host_of(name: str) -> str:
    return name.removeprefix(".").rsplit("-", 2)[0]
