"""Errors of Ray's in one sentence."""

from __future__ import annotations

import re

from trainonce.errors import StoppedError

TOKEN = "A cluster that asks for a token needs RAY_AUTH_MODE=token here, too."  # of which Ray says nothing itself


def describe(error: BaseException) -> str:
    """What went wrong, in a sentence; of a worker's error, what it raised."""
    cause = getattr(error, "cause", None)
    return first_line(error) if cause is None else f"{type(cause).__name__}: {first_line(cause)}"


def first_line(error: BaseException) -> str:
    """The first line of an error's text, as a sentence; all of it where that line only announces the others."""
    text = str(error).strip() or type(error).__name__
    line = text.splitlines()[0].rstrip()
    line = " ".join(text.split()) if line.endswith(":") else line
    return line if line.endswith((".", "!", "?")) else f"{line}."


def refusal(address: str, error: Exception) -> StoppedError:
    """Why there is no connection to a cluster."""
    if len(versions := re.findall(r"Ray: (\S+)\s+Python: (\S+)", str(error))) == 2:
        (ray, python), (our_ray, our_python) = versions
        return StoppedError(
            f"The Ray cluster at {address!r} has Ray {ray} and Python {python}, and this process Ray {our_ray} and "
            f"Python {our_python}: install the same on all machines."
        )
    if isinstance(error, ValueError):  # of what was asked for, not of the cluster
        return StoppedError(f"Ray does not connect to {address!r}: {first_line(error)}")
    return StoppedError(f"No Ray cluster answers at {address!r}: {first_line(error)} {TOKEN}")
