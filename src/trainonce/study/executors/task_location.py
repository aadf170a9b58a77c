"""Where another process finds a task, and how it loads it."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from trainonce.study.task import Task


class MissingTaskError(Exception):
    """A task is no longer where it was found."""


@dataclasses.dataclass(frozen=True)
class TaskLocation:
    """The file or the module of a task, and its name there."""

    file: str | None
    module: str
    name: str

    @classmethod
    def of(cls, task: Task) -> TaskLocation | None:
        """None if no other process can find it: it was defined in a notebook or inside a function."""
        function = task.function
        module = sys.modules.get(function.__module__)
        found = vars(module).items() if module else ()
        names = [key for key, value in found if isinstance(value, Task) and value.function is function]
        if not names:
            return None
        name = names[0]
        file = getattr(module, "__file__", None)
        if function.__module__ == "__main__" or getattr(module, "__trainonce_file__", False):
            return cls(file, function.__module__, name) if file and os.path.isfile(file) else None
        return cls(None, function.__module__, name)

    def load(self) -> Task:
        """The task, loaded into this process."""
        module = load_file(Path(self.file)) if self.file else importlib.import_module(self.module)
        task = getattr(module, self.name, None)
        if not isinstance(task, Task):
            raise MissingTaskError(f"there is no task {self.name!r} in {self.file or self.module}")
        return task


def load_file(path: Path) -> Any:
    """The module in a file, which may import its neighbours as if it were run."""
    path = path.absolute()  # workers may be started from another directory
    name = f"trainonce_task_{path.stem}"
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    if name in sys.modules and getattr(sys.modules[name], "__file__", None) == str(path):
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    module.__trainonce_file__ = True  # type: ignore[attr-defined]
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
