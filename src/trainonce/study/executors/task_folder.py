"""The files of a task that travel to other machines: its own and those beside it, without data and results."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from trainonce.study import layout
from trainonce.study.identity import is_own

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainonce.study.executors.task_location import TaskLocation

LARGEST = 10 << 20  # bytes of a file that is not Python
MOST = 100 << 20  # bytes of all together


class TaskFolder(NamedTuple):
    """A folder, and which of the files in it travel."""

    origin: Path
    names: tuple[str, ...]

    def copy(self, target: Path) -> None:
        """Copy the files that travel, with their paths."""
        for name in self.names:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.origin / name, target / name)


def task_folder(location: TaskLocation) -> TaskFolder | None:
    """What travels with a task: Python files below its folder, or of its package, and others of up to 10 MB.

    Hidden files, environments and studies stay, as does a task of an installed package, which workers have themselves.
    """
    file = location.file or getattr(sys.modules.get(location.module), "__file__", None)
    if file is None or not is_own(Path(file)):
        return None
    origin = Path(file).absolute().parent
    package = origin
    while (origin / "__init__.py").is_file():
        package, origin = origin, origin.parent
    names = tuple(sorted(path.relative_to(origin).as_posix() for path in _files(package)))
    size = sum((origin / name).stat().st_size for name in names)
    if size > MOST:
        raise ValueError(
            f"The files beside the task in {package} travel to the workers, at most {MOST >> 20} MB in all; found "
            f"{size / (1 << 20):.0f} MB in {len(names)} files. Put the task into a folder of its own, and name the "
            "data with --data-root."
        )
    return TaskFolder(origin, names)


def _files(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        here = Path(place)
        folders[:] = [name for name in folders if not _stays(here / name)]
        for path in (here / name for name in names if not name.startswith(".")):
            if path.is_file() and (path.suffix == ".py" or path.stat().st_size <= LARGEST):
                yield path


def _stays(folder: Path) -> bool:
    """Whether a folder is hidden, a cache, a Python environment or a study."""
    if folder.name.startswith(".") or folder.name == "__pycache__":
        return True
    return (folder / "pyvenv.cfg").is_file() or (folder / layout.CLAIMS).is_file()
