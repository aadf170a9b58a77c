"""Processes that end with the one that started them, however that one ends."""

from __future__ import annotations

import os
import threading
from multiprocessing import parent_process


def end_with_parent(*_: object) -> None:
    """Let this process end as soon as the one that started it is gone.

    To the system the parent of a process made by a fork server is the server, which stays as long as any that it made:
    neither would ever end. Python knows the true parent.
    """
    threading.Thread(target=_watch, daemon=True).start()


def _watch() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
