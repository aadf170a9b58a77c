"""One driver at a time, for a file system without locks: a file says which process it is.

On a cluster nobody but drivers writes to the store, so one driver needs no locks. Others are refused while the file is
there. It goes with the driver; after a kill, the next one on the same machine sees that the process is gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
import uuid
from typing import TYPE_CHECKING, Any

from trainonce.study.store import locks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextlib.contextmanager
def hold(file: Path, claims: Path) -> Iterator[None]:
    """Have the folder during the block without locks, where it has none; do nothing where it has.

    :param file: Which says who has it.
    :param claims: What is locked elsewhere.
    """
    if locks.are_there(claims):
        yield
        return
    while not _make(file):
        _remove_stale(file)
    try:
        with locks.do_without(claims):
            yield
    finally:
        file.unlink(missing_ok=True)


def _make(file: Path) -> bool:
    """Write the file in one move unless it is there."""
    beside = file.with_name(f"{file.name}.{uuid.uuid4().hex}")
    own = {"host": socket.gethostname(), "process": os.getpid(), "time": time.strftime("%Y-%m-%d %H:%M:%S")}
    beside.write_text(json.dumps(own), encoding="utf-8")
    try:
        os.link(beside, file)
    except FileExistsError:
        return False
    finally:
        beside.unlink(missing_ok=True)
    return True


def _remove_stale(file: Path) -> None:
    """Remove the file of a process that is gone; one sentence if it may be there."""
    holder = _read(file)
    if holder is None:
        return
    if holder["host"] != socket.gethostname() or _is_alive(holder["process"]):
        raise OSError(
            f"Process {holder['process']} on {holder['host']} has had this study since {holder['time']}, and on a file "
            f"system without locks only one may: wait for it, or, if it is gone, delete {file}."
        )
    aside = file.with_name(f"{file.name}.{uuid.uuid4().hex}")
    with contextlib.suppress(FileNotFoundError):
        file.rename(aside)
        if _read(aside) != holder:  # another driver was quicker, and this is its file
            with contextlib.suppress(FileExistsError):
                os.link(aside, file)
        aside.unlink()


def _read(file: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(file.read_bytes())
    except FileNotFoundError:
        return None
    return found


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        pass
    return True
