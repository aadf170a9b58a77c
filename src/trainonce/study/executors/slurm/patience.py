"""Errors of a network file system that pass by themselves: what was asked is asked again, and only later given up."""

from __future__ import annotations

import errno
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

T = TypeVar("T")

PATIENCE_SECONDS = 600.0  # until such an error ends a study
PAUSE_SECONDS = 1.0  # between two attempts at the same

#: What is said while a server is busy, restarts, or has replaced a file under way.
PASSING = {
    errno.EAGAIN,
    errno.EBUSY,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.EINTR,
    errno.EIO,
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.ESTALE,
    errno.ETIMEDOUT,
}


def is_passing(error: OSError) -> bool:
    """Whether a later attempt may succeed."""
    return error.errno in PASSING


def insist(act: Callable[[], T], seconds: float) -> T:
    """Do it, and again after errors that pass, for at most so long."""
    end = time.monotonic() + seconds
    while True:
        try:
            return act()
        except OSError as error:
            if not is_passing(error) or time.monotonic() >= end:
                raise
            time.sleep(PAUSE_SECONDS)


class Patience:
    """Since when a file system has answered with errors alone."""

    def __init__(self) -> None:
        self._since: float | None = None

    def forget(self) -> None:
        """It has answered."""
        self._since = None

    def explain(self, error: OSError, folder: Path) -> str | None:
        """None for an error that may pass, a sentence once it has lasted too long; other errors are raised."""
        if not is_passing(error):
            raise error
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if now - self._since < PATIENCE_SECONDS:
            return None
        return (
            f"{folder} could not be read for {PATIENCE_SECONDS / 60:.0f} minutes: {error.strerror}. The same command "
            "goes on once its file system answers again."
        )
