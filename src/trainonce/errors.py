"""Errors that the user can fix, as opposed to errors in the code."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class InputError(ValueError):
    """A mistake in what the user provides, such as a missing file: the command shows its message without a traceback.

    Raised in a trial it stops the study, since the other trials would fail in the same way.
    """


class StoppedError(RuntimeError):
    """A study cannot go on: a finished trial could not be recorded, or the task was changed meanwhile."""


class TerminatedError(BaseException):
    """This process was asked to end by SIGTERM: like a KeyboardInterrupt it is no error of the task."""


class SameFailureError(StoppedError):
    """The first trials of a study all failed in the same way, so the others would, too."""


@contextlib.contextmanager
def user_errors() -> Iterator[None]:
    """Raise an :class:`InputError` for wrong settings, missing packages and unusable files in the ``with`` block."""
    try:
        yield
    except (ValueError, OSError, ImportError) as error:
        raise InputError(str(error)) from error
