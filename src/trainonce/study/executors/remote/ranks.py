"""One of several processes that train a trial together, each on its machine: the first leads, the others follow."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from trainonce.study import torchrun
from trainonce.study.executors.base import Event
from trainonce.study.executors.remote import assignment as one

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trainonce.study.executors.remote.assignment import Assignment


def train(assignment: Assignment, folder: Path, source: Path | None, send: Callable[[Event], None]) -> Event | None:
    """Train in this process, with others where torchrun's variables are set; returns the last event of the first.

    The process group is left as it is: the process ends, and one that has failed would wait for the others.
    """
    group = torchrun.process_group(assignment.device)
    device = group.__enter__()
    if device is not None:
        assignment = dataclasses.replace(assignment, device=device)
    if not torchrun.is_first():
        torchrun.follow(assignment.sent.load(), assignment.device, source)
        return None
    event = one.train(assignment, folder, source, notify=lambda *progress: send(Event("beat", progress)))
    torchrun.dismiss()
    return event
