"""What counts of a task's function: its file and those beside it that it imports, and the values it was made with."""

from __future__ import annotations

import json
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from trainonce.study.identity import imports, source, values
from trainonce.text import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from trainonce.study.identity.values import Describer


def code_of(function: Callable[..., Any], describer: Describer, ignored: Sequence[str] = ()) -> list[Any]:
    """The function's code as JSON: its file, what it was made with, and the files beside it that they import.

    :param describer: The one that has described the settings: their functions' files count, too.
    :param ignored: Files that do not count, as paths or patterns; nor does what only they import.
    """
    chain = list(_unwrap(function))
    inner = chain[-1]
    path = values.file_of(inner)
    if path is None:  # a notebook's
        own: Any = [values.source_of(inner), describer.globals_of(inner)]
    else:
        own = source.file_text(path)
    made_with = [found for each in chain if (found := _made_with(each, chain, describer))]
    if isinstance(function, MethodType):
        made_with.append(describer.describe(function.__self__))
    files = _other_files(path, describer.files, ignored)
    return [own, made_with, *([sorted(map(list, files.items()))] if files else [])]


def hash_of_file(path: Path) -> str:
    """Return a hash of what a file computes, with the files beside it that it imports."""
    others = {name: source.file_digest(file) for name, file in imports.neighbours(path).items()}
    return values.digest(json.dumps([source.file_text(path), sorted(others.items())]).encode())


def files_of(function: Callable[..., Any], ignored: Sequence[str] = ()) -> dict[str, str]:
    """The function's file and those beside it that it imports, by name, each with a hash of its source."""
    *_, inner = _unwrap(function)
    path = values.file_of(inner)
    return {} if path is None else {path.name: source.file_digest(path), **_other_files(path, (), ignored)}


def bytes_of(function: Callable[..., Any], ignored: Sequence[str] = ()) -> dict[str, str]:
    """The paths of the same files, each with a hash of its bytes: quick to compare, where nothing has changed."""
    *_, inner = _unwrap(function)
    path = values.file_of(inner)
    paths = [] if path is None else [path, *imports.neighbours(path, ignored).values()]
    return {str(path): hash_of(path) for path in paths}


def hash_of(path: Path) -> str:
    """A hash of a file's bytes; nothing for a file that is gone."""
    return values.digest(path.read_bytes()) if path.is_file() else ""


def _made_with(part: Any, chain: Sequence[Any], describer: Describer) -> Any:
    """What a task's function, or what a decorator has put around it, has from elsewhere."""
    if not isinstance(part, FunctionType):
        return describer.describe(part)
    defaults = [part.__defaults__ or (), part.__kwdefaults__ or {}] if part is not chain[-1] else []
    found = describer.closure(part, *chain)
    return [found, describer.describe(defaults)] if any(defaults) else found


def _unwrap(function: Any) -> Iterable[Any]:
    """The function and those that its decorators have wrapped, the innermost last."""
    while True:
        yield getattr(function, "__func__", function)
        if not hasattr(function, "__wrapped__"):
            return
        function = function.__wrapped__


def _other_files(own: Path | None, others: Iterable[Path], ignored: Sequence[str]) -> dict[str, str]:
    """The files that count besides the task's own, by name, each with a hash of its source."""
    found = imports.neighbours(own, ignored) if own is not None else {}
    for path in sorted({path for path in others if path != own}):
        imports.add(found, path.name, path)
        for name, file in imports.neighbours(path, ignored).items():
            imports.add(found, name, file)
    for pattern in ignored:
        if not any(imports.matches(name, [pattern]) for name in found):
            raise ValueError(
                f"ignore_files names files beside the task that it imports; {pattern!r} is none of them. It imports: "
                f"{quoted(found) or 'none'}."
            )
    return {name: source.file_digest(path) for name, path in found.items() if not imports.matches(name, ignored)}
