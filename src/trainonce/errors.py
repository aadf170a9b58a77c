"""Errors that the user can fix, told apart from errors in the code."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class InputError(ValueError):
    """Something a person can mend, such as a missing file: shown as its sentence alone, without a traceback.

    Raised in a trial it stops the study: the others would fail alike.
    """


@contextlib.contextmanager
def user_errors() -> Iterator[None]:
    """What goes wrong in here is a person's to mend: wrong settings, missing packages, files that cannot be used."""
    try:
        yield
    except (ValueError, OSError, ImportError) as error:
        raise InputError(str(error)) from error
