"""What a Ray worker does: it trains a trial in a process of its own, and sends what that one has to say."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any, NamedTuple

from trainonce.extras import require
from trainonce.study.executors import trial_process
from trainonce.study.executors.trial_files import Batch, Died, Piece, log_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trainonce.study.executors.trial_files import Message
    from trainonce.study.executors.trial_process import Given

VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")  # Ray sets them for each task


class Meeting(NamedTuple):
    """Where the first process of a trial can be reached by the others."""

    host: str
    port: int

    @property
    def environment(self) -> dict[str, str]:
        return {"MASTER_ADDR": self.host, "MASTER_PORT": str(self.port)}


def train(given: Given, files: Sequence[Any]) -> Iterator[Message | Meeting]:
    """Ray sends what this yields. ``files`` are references to their pieces."""
    if "RANK" in given.environment:
        meeting = _meeting()
        yield meeting
        given = given._replace(environment={**given.environment, **meeting.environment})
    yield from trial_process.run(_here(given), _fetch(files))


def follow(given: Given, files: Sequence[Any]) -> str:
    """Train beside the first process of a trial; what went wrong, in a sentence, or nothing."""
    log, last = b"", None
    for message in trial_process.run(_here(given), _fetch(files)):
        if isinstance(message, Piece) and message.name == log_path(given.key):
            log = (log + message.content)[-4000:]
        elif isinstance(message, Batch):
            last = message.last
    if not isinstance(last, Died):
        return ""
    lines = log.decode(errors="replace").strip().splitlines()
    return f"{last.message} {lines[-1] if lines else ''}".strip()


def _here(given: Given) -> Given:
    """The same with what this machine has: the files of the task, and the devices that Ray has set aside."""
    place = None if given.origin is None else os.getcwd()  # where Ray has put the files
    devices = {name: os.environ[name] for name in VISIBLE if name in os.environ}
    return given._replace(place=place, environment={**devices, **given.environment})


def _fetch(files: Sequence[Any]) -> Iterator[Piece]:
    return map(require("ray", "Ray", "ray").get, files)


def _meeting() -> Meeting:
    """This machine's address, and a port that is free now."""
    host = require("ray", "Ray", "ray").util.get_node_ip_address()
    with socket.socket() as listener:
        listener.bind(("", 0))
        return Meeting(host, listener.getsockname()[1])
