"""Removing what no job needs any more: attempts at trials that were recorded, and submitit's files of their jobs."""

from __future__ import annotations

import contextlib
import shutil
import time
from typing import TYPE_CHECKING

from trainonce.study.executors.slurm.attempt import END, Attempt

if TYPE_CHECKING:
    from pathlib import Path

    from trainonce.study.executors.slurm.engines import Engine
    from trainonce.study.store import Store

UNUSED_SECONDS = 60.0  # after which a folder without jobs is not that of a driver that has just started


def remove_leftovers(root: Path, store: Store, engine: Engine, own: str = "") -> None:
    """Remove what drivers that were killed have left, and cancel jobs for trials that were recorded meanwhile.

    :param root: The folder that is shared with jobs; removed, too, if nothing is left in it.
    :param own: The name of the folder of this driver's jobs, once it needs it no more.
    """
    records, used = store.read(), set()
    for key in [path.name for path in root.iterdir()] if root.is_dir() else ():
        if (attempt := Attempt.last(root, key)) is None:
            continue
        found = attempt.job() or {}
        with store.claim(key) as free:
            if free and key in records and records[key].status != "failed":
                if found.get("cluster") == engine.name and END not in attempt.names():
                    engine.cancel([found["job"]])
                attempt.remove()
            else:
                used.add(found.get("engine"))
    for folder in root.glob("jobs-*"):
        with contextlib.suppress(FileNotFoundError):
            old = folder.name == own or time.time() - folder.stat().st_mtime > UNUSED_SECONDS
            if old and folder.name not in used:
                shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        root.rmdir()
