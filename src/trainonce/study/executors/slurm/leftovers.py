"""What drivers that were killed have left: attempts at trials that nobody needs any more, and their jobs."""

from __future__ import annotations

import contextlib
import shutil
from typing import TYPE_CHECKING, Any

from trainonce.study.executors.slurm.attempt import END, Attempt

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from trainonce.study.executors.sent_task import SentTask
    from trainonce.study.executors.slurm.engines import Engine
    from trainonce.study.store import Store


def remove_leftovers(root: Path, store: Store, engine: Engine, task: SentTask) -> list[str]:
    """Remove what no job needs any more, and return what to say of it.

    Jobs for trials that were recorded meanwhile are cancelled, and those for another version of the task. Its trials
    keep their checkpoints, and those that have ended stay until that version is run again.

    :param root: The folder that is shared with jobs; removed, too, if nothing is left in it.
    """
    records, used, cancelled = store.read(), set(), 0
    for key in [path.name for path in root.iterdir()] if root.is_dir() else ():
        if (attempt := Attempt.last(root, key)) is None:
            continue
        found, has_ended = attempt.job() or {}, END in attempt.names()
        same_engine = found.get("cluster", engine.name) == engine.name
        with store.claim(key) as free:
            if free and key in records and records[key].status != "failed":
                if same_engine and not has_ended:
                    _cancel(found, engine)
                attempt.remove()
            elif free and same_engine and not has_ended and attempt.task() not in ("", task.identity):
                attempt.give_up()
                cancelled += _cancel(found, engine)
                attempt.bring_back(store.folder(key), store.log(key))
                attempt.remove()
            else:
                used.add(found.get("engine"))
    for folder in root.glob("jobs-*"):
        with store.claim(folder.name.rpartition("-")[2]) as free:  # which its driver holds
            if free and folder.name not in used:
                shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        root.rmdir()
    if not cancelled:
        return []
    jobs = "A job was" if cancelled == 1 else f"{cancelled} jobs were"
    note = (
        f"{jobs} cancelled that an earlier driver had left for another version of the task {task.name!r}, or for other "
        "settings of it. Checkpoints are kept."
    )
    return [note]


def _cancel(found: Mapping[str, Any], engine: Engine) -> bool:
    """Cancel a job unless it has ended; whether there was one."""
    job = found.get("job", "")
    if not job or job in engine.ended([job]):
        return False
    engine.cancel([job])
    return True
