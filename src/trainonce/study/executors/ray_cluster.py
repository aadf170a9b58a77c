"""The connection to a Ray cluster, one that runs or one that is started on this machine; its errors in a sentence."""

from __future__ import annotations

import os
import re
import signal
import socket
from typing import Any

from trainonce.errors import StoppedError
from trainonce.study.signals import in_main_thread

TOKEN = "A cluster that asks for a token needs RAY_AUTH_MODE=token here, too."  # of which Ray says nothing itself
STORE = 100 << 20  # bytes of the object store of a cluster that is started here

SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


def connect(ray: Any, address: str) -> None:
    """Connect this process."""
    if ray.is_initialized():
        raise ValueError(
            "Ray is connected already in this process, and disconnects when the study ends: call ray.shutdown() first, "
            "and name the cluster with address."
        )
    if address.startswith("ray://"):
        raise ValueError(
            f"The address {address!r} is one of Ray Client, which streams no results: start the study on a machine "
            "of the cluster with the address 'auto', or with 'ray job submit'."
        )
    _check_answer(address)
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    given: dict[str, Any] = {"address": address, "log_to_driver": False, "logging_level": "ERROR"}
    if address == "local":
        from trainonce.study.executors.tools import cores  # which imports the executors

        given |= {"num_cpus": cores(), "object_store_memory": STORE, "include_dashboard": False}
    try:
        _init(ray, given)
    except BaseException:
        ray.shutdown()
        raise


def _init(ray: Any, given: dict[str, Any]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(**given)
        if in_main_thread() and before is not None:
            signal.signal(signal.SIGTERM, before)  # Ray has a handler of its own, which ends this process at once
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise refusal(given["address"], error) from None


def _check_answer(address: str) -> None:
    """Raise if nothing listens at an address; Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal():
        try:
            socket.create_connection((host, int(port)), timeout=10).close()
        except (OSError, OverflowError) as error:
            raise StoppedError(f"No Ray cluster answers at {address!r}: {first_line(error)}") from None


# Errors


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
