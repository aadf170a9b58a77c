"""A task on its way to a worker process, and whether the same one arrives."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from trainonce.study.executors.task_location import MissingTaskError
from trainonce.study.identity import Describer, differences
from trainonce.text import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from trainonce.study.executors.task_location import TaskLocation
    from trainonce.study.task import Task


class OtherTaskError(Exception):
    """A worker does not find the task that the study has; the text is a sentence."""


@dataclasses.dataclass(frozen=True)
class SentTask:
    """Where a worker finds a task, with which settings, and what tells it from a changed one."""

    location: TaskLocation
    name: str
    settings: Mapping[str, Any]
    identity: str
    described: Mapping[str, Any]  # the settings as they count for the identity
    files: Mapping[str, str]

    @classmethod
    def of(cls, task: Task, location: TaskLocation) -> Self:
        described, files = _parts(task)
        return cls(location, task.name, dict(task.settings), task.identity, described, files)

    def load(self) -> Task:
        """The task in this process; raises :class:`OtherTaskError` if it is not the one that was sent."""
        changed = f"The task {self.name!r} was changed while the study was running"
        try:
            task = self.location.load()
        except (SyntaxError, MissingTaskError) as error:
            raise OtherTaskError(f"{changed}, and cannot be loaded any more: {error}. Start it again.") from None
        if gone := [key for key in self.settings if key not in task.settings]:
            raise OtherTaskError(f"{changed}, and has no setting {quoted(gone)} any more. Start it again.")
        task = task.using(**self.settings)
        if task.identity == self.identity:
            return task
        described, files = _parts(task)
        if names := differences(self.files, files):
            raise OtherTaskError(f"{changed}: {', '.join(names)}. Start it again.")
        if names := differences(self.described, described):
            raise OtherTaskError(
                f"The task {self.name!r} does not have the same setting {quoted(names)} in a worker process as in the "
                "study. If it was changed meanwhile, start again; else use a number, a string or a list of them."
            )
        raise OtherTaskError(
            f"{changed}, or a value that it was made with is another one in each process. Start it again, or use "
            "workers=0 to train in one process."
        )


def _parts(task: Task) -> tuple[dict[str, Any], dict[str, str]]:
    """What can be said to differ: the settings and the files that count."""
    return task.describe_settings(Describer()), task.info()["files"]
