"""Removing what no job needs any more: attempts at trials that were recorded, and submitit's files of their jobs."""

from __future__ import annotations

import contextlib
import shutil
from typing import TYPE_CHECKING

from trainonce.study.executors.slurm.attempt import END, Attempt

if TYPE_CHECKING:
    from pathlib import Path

    from trainonce.study.executors.slurm.engines import Engine
    from trainonce.study.store import Store


def remove_leftovers(root: Path, store: Store, engine: Engine) -> None:
    """Remove what drivers that were killed have left, and cancel jobs for trials that were recorded meanwhile.

    :param root: The folder that is shared with jobs; removed, too, if nothing is left in it.
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
        with store.claim(folder.name.rpartition("-")[2]) as free:  # which its driver holds
            if free and folder.name not in used:
                shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        root.rmdir()
