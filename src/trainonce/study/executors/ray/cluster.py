"""The connection to a Ray cluster: to one that runs, or to one that is started on this machine."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainonce.errors import StoppedError
from trainonce.study.executors.ray.errors import first_line, refusal

if TYPE_CHECKING:
    from trainonce.study.executors.remote.task_folder import TaskFolder

STORE = 200 << 20  # bytes of the object store of a cluster that is started here: pieces of files pass through it

SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_OVERRIDE_JOB_RUNTIME_ENV": "1",  # in a job of 'ray job submit' the task's files travel, and not the job's
}


def connect(ray: Any, address: str, folder: TaskFolder | None) -> None:
    """Connect this process; the files of the task go to the workers."""
    if ray.is_initialized():
        raise ValueError(
            "Ray is connected already in this process, and the files of the task travel when it connects: call "
            "ray.shutdown() first, and name the cluster with address."
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
        with tempfile.TemporaryDirectory(prefix="trainonce-task-") as place:
            if folder is not None:
                folder.copy(Path(place))
                given["runtime_env"] = {"working_dir": place}
            _init(ray, given)
    except BaseException:
        ray.shutdown()
        raise


def _init(ray: Any, given: dict[str, Any]) -> None:
    try:
        ray.init(**given)
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
