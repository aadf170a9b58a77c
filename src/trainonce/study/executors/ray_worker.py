"""What a Ray worker does: it trains a trial in a process of its own, and sends what that one has to say."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from trainonce.extras import require
from trainonce.study.executors.remote import trial_process

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trainonce.study.executors.remote.trial_process import Given, Message

VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")  # Ray sets them for each task


def train(given: Given, files: Sequence[Any]) -> Iterator[Message]:
    """Ray sends what this yields. ``files`` are references to their pieces."""
    place = None if given.origin is None else os.getcwd()  # where Ray has put the files of the task
    devices = {name: os.environ[name] for name in VISIBLE if name in os.environ}
    given = given._replace(place=place, environment={**devices, **given.environment})
    yield from trial_process.run(given, map(require("ray", "Ray", "ray").get, files))
