"""A task on its way to a worker process, and whether the same one arrives."""

from __future__ import annotations

import dataclasses
import pickle
from typing import TYPE_CHECKING, Any

from trainonce.study import identity
from trainonce.study.executors.task_location import MissingTaskError, TaskLocation
from trainonce.study.task import settings_of
from trainonce.text import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from trainonce.study.task import Task


class OtherTaskError(Exception):
    """A worker does not find the task that the study has; the text is a sentence."""


@dataclasses.dataclass(frozen=True)
class SentTask:
    """Where a worker finds a task, with which settings, and what its results depend on."""

    location: TaskLocation
    name: str
    settings: bytes  # those that are not the file's own; they may need the file before they can be unpickled
    parts: Mapping[str, Any]
    known: Mapping[str, Any]  # of files, so that a worker parses only those that were changed

    @classmethod
    def of(cls, task: Task) -> Self:
        """Return the task to send; it must be in a file or a module."""
        location = TaskLocation.of(task)
        assert location is not None
        return cls(location, task.name, _pickle_settings(task), task.parts, dict(identity.KNOWN))

    @property
    def identity(self) -> str:
        """The identity of the task that was sent."""
        return identity.digest(self.parts)

    def load(self) -> Task:
        """Return the task in this process; raise :class:`OtherTaskError` if it is not the one that was sent."""
        changed = f"The task {self.name!r} was changed while the study was running"
        identity.KNOWN.update(self.known)
        try:
            task = self.location.load()
        except (SyntaxError, MissingTaskError) as error:
            raise OtherTaskError(f"{changed}, and cannot be loaded any more: {error}. Start it again.") from None
        try:
            task = task.using(**pickle.loads(self.settings))
        except (ValueError, AttributeError) as error:
            raise OtherTaskError(f"{changed}: {error} Start it again.") from None
        if files := identity.differences(self.parts["files"], task.parts["files"]):
            raise OtherTaskError(f"{changed}: {', '.join(files)}. Start it again.")
        if settings := identity.differences(self.parts["settings"], task.parts["settings"]):
            raise OtherTaskError(
                f"The task {self.name!r} does not have the same setting {quoted(settings)} in a worker process as in "
                "the study: it is made anew in each. Give it a fixed value with --set, or train with 0 workers."
            )
        if task.identity != self.identity:
            raise OtherTaskError(
                f"{changed}, or a value that it was made with is another one in each process. Start it again, or "
                "train in one process, with 0 workers."
            )
        return task


def _pickle_settings(task: Task) -> bytes:
    """Return the settings that are not the defaults of the task's function; what cannot be sent is one sentence."""
    own = settings_of(task.function)
    changed = {key: value for key, value in task.settings.items() if value is not own[key]}
    for key, value in changed.items():
        try:
            pickle.dumps(value)
        except Exception:
            raise ValueError(
                f"The setting {key!r} of the task {task.name!r} cannot be sent to a worker process: {value!r}. Use "
                "what is defined at the top of a file, or workers=0 to train in this process."
            ) from None
    return pickle.dumps(changed)
