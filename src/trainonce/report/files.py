"""Write several files atomically: all under temporary names first, then all renamed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path


def replace_all(folder: Path, contents: Mapping[str, bytes], gone: Iterable[str] = ()) -> None:
    """Write the files, by their paths within the folder, and remove those that are ``gone``.

    Raises an error, with nothing changed, if the folder cannot be written.
    """
    partial: dict[Path, Path] = {}
    new_folders: list[Path] = []
    try:
        for name, content in contents.items():
            target = folder / name
            if not target.parent.is_dir():
                target.parent.mkdir()
                new_folders.append(target.parent)
            if target.is_dir():
                raise IsADirectoryError(21, "it is a folder", str(target))
            beside = target.with_name(f"{target.name}.part{os.getpid()}")
            partial[target] = beside
            beside.write_bytes(content)
    except OSError as error:
        for beside in partial.values():
            beside.unlink(missing_ok=True)
        for empty in new_folders:
            empty.rmdir()
        where = error.filename or folder
        raise OSError(
            f"The report cannot be written into {folder}: {where}: {error.strerror}. Nothing was changed; make the "
            "folder writable, or copy it and report on the copy."
        ) from None
    for target, beside in partial.items():
        beside.replace(target)
    for name in gone:
        (folder / name).unlink(missing_ok=True)
