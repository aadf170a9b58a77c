"""A task on its way to a worker process, and whether the same one arrives."""

from __future__ import annotations

import dataclasses
import os
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainonce.study.executors.task_location import MissingTaskError
from trainonce.study.identity import Describer, bytes_of, code_of, differences, hash_of
from trainonce.study.task import settings_of
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
    settings: bytes  # those that are not the file's own; they may need the file before they can be unpickled
    identity: str
    described: Mapping[str, Any]  # all settings as they count for the identity
    files: Mapping[str, str]
    unchanged: Mapping[str, str]  # the bytes of the files; empty where they do not say all

    @classmethod
    def of(cls, task: Task, location: TaskLocation) -> Self:
        described, files = _parts(task)
        plain = task.version is not None or not code_of(task.function, Describer(), task.ignore_files)[1]
        unchanged = bytes_of(task.function, task.ignore_files) if plain else {}
        if dataclasses.replace(task).identity != task.identity:  # edited since the study began: let a worker say what
            unchanged = {}
        return cls(location, task.name, _pickle_settings(task), task.identity, described, files, unchanged)

    def move(self, origin: Path, place: Path) -> SentTask:
        """The same for a machine where the files of the folder ``origin`` lie in ``place``."""

        def there(path: str) -> str:
            found = Path(path)
            return str(place / found.relative_to(origin)) if found.is_relative_to(origin) else path

        file = None if self.location.file is None else there(os.path.abspath(self.location.file))
        location = dataclasses.replace(self.location, file=file)
        unchanged = {there(path): digest for path, digest in self.unchanged.items()}
        return dataclasses.replace(self, location=location, unchanged=unchanged)

    def load(self) -> Task:
        """The task in this process; raises :class:`OtherTaskError` if it is not the one that was sent."""
        changed = f"The task {self.name!r} was changed while the study was running"
        try:
            task = self.location.load()
        except (SyntaxError, MissingTaskError) as error:
            raise OtherTaskError(f"{changed}, and cannot be loaded any more: {error}. Start it again.") from None
        if gone := [key for key in self.described if key not in task.settings]:
            raise OtherTaskError(f"{changed}, and has no setting {quoted(gone)} any more. Start it again.")
        task = task.using(**pickle.loads(self.settings))
        same_files = all(hash_of(Path(path)) == found for path, found in self.unchanged.items())
        if self.unchanged and same_files and task.describe_settings(Describer()) == self.described:
            vars(task)["identity"] = self.identity  # without parsing the files in every worker
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
            f"{changed}, or a value that it was made with is another one in each process. Start it again, or "
            "train in one process, with 0 workers."
        )


def _pickle_settings(task: Task) -> bytes:
    """The settings that are not the defaults of the task's function; what cannot be sent is one sentence."""
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


def _parts(task: Task) -> tuple[dict[str, Any], dict[str, str]]:
    """What can be said to differ: the settings and the files that count."""
    return task.describe_settings(Describer()), task.info()["files"]
