"""The identity of a task: everything that its results depend on, as JSON.

The code counts as the task's file and the files beside it that it imports, without comments, docstrings, layout, the
arguments of ``@task``, and the block under ``if __name__ == "__main__":``. A version stands for the code.
"""

from __future__ import annotations

import ast
import contextlib
import fnmatch
import hashlib
import inspect
import json
import os
from itertools import groupby, takewhile
from pathlib import Path
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from trainonce.text import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainonce.study.task import Task

LIBRARY = Path(__file__).resolve().parents[1]
RECIPES = LIBRARY / "recipes"
PACKAGES = ("site-packages", "dist-packages")
#: What the files of a task in a notebook are called in :func:`parts_of`.
NOTEBOOK = "a cell of a notebook"
#: The hash of a file's code and what it imports, by the hash of its bytes: reading is quick, parsing is not.
KNOWN: dict[str, tuple[str, list[tuple[int, str]]]] = {}


def parts_of(task: Task) -> dict[str, Any]:
    """Return what the results of a task depend on, as JSON; raise for a value that a later run could not recognise."""
    from trainonce.study import torchrun  # here, like all that imports torch: see trainonce.lazy

    files: list[Path] = []  # of the functions among the values
    parts = {
        "name": task.name,
        "terms": list(task.terms),
        "metric": [task.metric, task.direction, task.select, task.report],
        "ranks": max(torchrun.world_size(), task.ranks),  # each has a batch of its own
        "settings": {
            key: _plain(value, files, f"The setting {key!r} of the task {task.name!r}", "make it in the function")
            for key, value in task.settings.items()
            if key not in task.incidental
        },
    }
    if task.version is not None:
        return parts | {"version": task.version, "files": {}}
    path = file_of(task.function)
    if path is None:
        return parts | {"files": {NOTEBOOK: repr(task.made)}}
    parts["enclosed"] = [
        _plain(value, files, f"{name!r}, which the task {task.name!r} was made with,", "give the task a version=")
        for name, value in _enclosed(task.function)
    ]
    return parts | {"files": hashes_of(path, files, task.ignore_files)}


def digest(content: Any) -> str:
    """Return a short hash of JSON data."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return the names of what is not the same in both, or only in one.

    >>> differences({"a": 1, "b": 2, "c": None}, {"a": 1, "b": 3})
    ['b', 'c']
    """
    missing = object()
    return sorted(name for name in {**one, **other} if one.get(name, missing) != other.get(name, missing))


# Values


def _plain(value: Any, files: list[Path], what: str, fix: str) -> Any:
    """Return a value as JSON; functions and classes of a file by their names, with their files added to ``files``."""

    def name_of(found: Any) -> str:
        if not isinstance(found, FunctionType | type) or "<" in found.__qualname__ or (path := file_of(found)) is None:
            raise TypeError
        if not is_own(path):
            return f"{found.__module__}.{found.__qualname__}"
        files.append(path)
        return f"{path.name}:{found.__qualname__}"

    try:
        return json.loads(json.dumps(value, default=name_of, sort_keys=True))
    except (TypeError, ValueError, RecursionError):
        shown = f"a {type(value).__name__}" if isinstance(value, dict | list) else repr(value)
        raise ValueError(
            f"{what} cannot be told apart from another in a later run: {shown}. Use numbers, texts, lists (not sets), "
            f"or functions from the top of a file, or {fix}."
        ) from None


def _enclosed(function: Any) -> list[tuple[str, Any]]:
    """Return what a function, and its decorators in files of one's own, have from the functions around them."""
    chain, found = [function], []
    while hasattr(chain[-1], "__wrapped__"):
        chain.append(chain[-1].__wrapped__)
    for part in chain:
        plain = getattr(part, "__func__", part)
        found += [("self", part.__self__)] if isinstance(part, MethodType) else []
        if isinstance(plain, FunctionType) and is_own(Path(plain.__code__.co_filename)):
            for name, cell in zip(plain.__code__.co_freevars, plain.__closure__ or (), strict=True):
                with contextlib.suppress(ValueError):  # not assigned yet
                    found.append((name, cell.cell_contents))
    return [(name, value) for name, value in found if not any(value is part for part in chain)]


# Files


def file_of(code: Any) -> Path | None:
    """Return the file in which a function or a class is written, if there is one."""
    with contextlib.suppress(TypeError):
        path = Path(inspect.getsourcefile(inspect.unwrap(code)) or "").absolute()
        return path if path.suffix == ".py" and path.is_file() else None
    return None


def is_own(path: Path) -> bool:
    """Return whether a file is somebody's own: not installed, not Python's, not of trainonce besides its recipes."""
    path = path.resolve()
    installed = path.is_relative_to(Path(os.__file__).resolve().parent) or any(part in PACKAGES for part in path.parts)
    return not installed and not _is_library(path)


def _is_library(path: Path) -> bool:
    return path.is_relative_to(LIBRARY) and (not path.is_relative_to(RECIPES) or path == RECIPES / "__init__.py")


def files_of(path: Path, more: Sequence[Path] = (), ignored: Sequence[str] = ()) -> dict[str, Path]:
    """Return a file, and those of its folder or package that it imports, directly or through others, by their names.

    :param more: Other files to begin with.
    :param ignored: Names or patterns of files that do not count, nor does what only they import.
    """
    top = next(folder for folder in path.parents if not _is_package(folder))
    places = [place for first in (path, *more) for place in _places(first)]
    found: dict[str, Path] = {}
    waiting = [path, *more]
    while waiting:
        file = waiting.pop()
        name = (file.relative_to(top) if file.is_relative_to(top) else Path(*file.parts[-2:])).as_posix()
        if name not in found and file.is_file() and not _is_library(file.resolve()):
            found[name] = file
            if file == path or not any(fnmatch.fnmatch(name, pattern) for pattern in ignored):
                waiting += _imported(file, places)
    others = [name for name, file in found.items() if file != path]
    left_out = {pattern: fnmatch.filter(others, pattern) for pattern in ignored}
    if unknown := [pattern for pattern, names in left_out.items() if not names]:
        raise ValueError(
            f"ignore_files names files beside the task that it imports; {quoted(unknown)} is none of them. It imports: "
            f"{quoted(others) or 'none'}."
        )
    return {name: file for name, file in found.items() if not any(name in names for names in left_out.values())}


def hashes_of(path: Path, more: Sequence[Path] = (), ignored: Sequence[str] = ()) -> dict[str, str]:
    """Return the same files, each with a hash of what it computes."""
    return {name: read(file)[0] for name, file in files_of(path, more, ignored).items()}


def _is_package(folder: Path) -> bool:
    return (folder / "__init__.py").is_file()


def _places(first: Path) -> list[tuple[Path, str]]:
    """Return the folders in which a file's imports are looked up: its own, and that of its package for it alone."""
    own = [] if first.parent.name in PACKAGES else [(first.parent, "")]
    packages = list(takewhile(_is_package, first.parents))
    return [*own, *((folder.parent, folder.name) for folder in packages[-1:])]


def _imported(file: Path, places: Sequence[tuple[Path, str]]) -> list[Path]:
    """Return where the modules that a file imports may lie, and the packages that they and the file are in."""
    found = [folder / "__init__.py" for folder in takewhile(_is_package, file.parents)]
    for level, name in read(file)[1]:
        parts = name.split(".")
        starts = [folder for folder, package in places if package in ("", parts[0])]
        for start in file.parents[level - 1 : level] if level else starts:
            for n in range(1, len(parts) + 1):
                here = start.joinpath(*parts[:n])
                found += [here / "__init__.py", here.with_name(f"{here.name}.py")]
    return found


def read(file: Path) -> tuple[str, list[tuple[int, str]]]:
    """Return a hash of what a file computes, and the dotted names that it imports, each with how relative it is."""
    content = file.read_bytes()
    key = hashlib.sha256(content).hexdigest()[:16]
    if key not in KNOWN:
        try:
            tree = ast.parse(content)
            KNOWN[key] = digest(_dump(tree)), [name for node in ast.walk(tree) for name in _imports(node)]
        except (SyntaxError, ValueError, RecursionError, MemoryError):  # what cannot be parsed counts by its bytes
            KNOWN[key] = key, []
    return KNOWN[key]


def _imports(node: ast.AST) -> list[tuple[int, str]]:
    match node:
        case ast.Import():
            return [(0, alias.name) for alias in node.names]
        case ast.ImportFrom():
            return [(node.level, f"{node.module or ''}.{alias.name}".lstrip(".")) for alias in node.names]
    return []


def _dump(node: Any) -> Any:
    """Return a syntax tree as JSON that is the same in each version of Python, with only what computes."""
    if isinstance(node, list):
        return [_dump(each) for each in node if _computes(each)]
    if not isinstance(node, ast.AST):
        return repr(node)
    if isinstance(node, ast.JoinedStr):  # whose texts Python 3.12 leaves in pieces
        pieces = [part.value if isinstance(part, ast.Constant) else _dump(part) for part in node.values]
        groups = groupby(filter(None, pieces), key=lambda piece: isinstance(piece, str))
        return ["JoinedStr", *("".join(group) if is_text else list(group) for is_text, group in groups)]
    fields = [(name, value) for name, value in ast.iter_fields(node) if name != "kind"]
    kept = [(name, value) for name, value in fields if isinstance(node, ast.Constant) or value not in (None, [])]
    return [type(node).__name__, {name: _dump(value) for name, value in kept}]


def _computes(node: Any) -> bool:
    """Return False for docstrings, the block that only scripts run, and ``task(terms=..., metric=..., ...)``."""
    match node:
        case ast.Expr(value=ast.Constant(value=str())):
            return False
        case ast.If(test=test, orelse=[]):
            return ast.unparse(test) != "__name__ == '__main__'"
        case ast.Call(keywords=keywords):
            return not {"terms", "metric", "direction"} <= {keyword.arg for keyword in keywords}
    return True
