"""Processes that end with the one that started them, however that one ends."""

from __future__ import annotations

import os
import threading
from multiprocessing import parent_process
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def end_with_parent(*_: object, last: Callable[[], object] | None = None) -> None:
    """Let this process end as soon as the one that started it is gone, after a last call if there is one.

    To the system the parent of a process made by a fork server is the server, which stays as long as any that it made:
    neither would ever end. Python knows the true parent.
    """
    threading.Thread(target=_watch, args=(last,), daemon=True).start()


def _watch(last: Callable[[], object] | None) -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        if last is not None:
            last()
        os._exit(1)
