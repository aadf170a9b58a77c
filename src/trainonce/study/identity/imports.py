"""Which files a task's file imports, of those that lie beside it: in its own folder or its own package."""

from __future__ import annotations

import ast
import fnmatch
import functools
import itertools
import site
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from trainonce.study.identity import source

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LIBRARY = Path(__file__).resolve().parents[2]  # trainonce itself
RECIPES = LIBRARY / "recipes"


def neighbours(path: Path, ignored: Sequence[str] = ()) -> dict[str, Path]:
    """The files beside ``path`` that it imports, directly or through others, by their path from its folder or package.

    An import inside a function counts, one under ``if TYPE_CHECKING:`` does not. What is installed, Python's own
    library and trainonce without its recipes do not count. What an ignored file imports is not looked for.
    """
    path = path.resolve()
    places = _places(path)
    top = places[-1].folder if places else path.parent
    found, waiting = {path: ""}, [path]
    while waiting:
        for file in _imports(waiting.pop(), places):
            if file not in found:
                found[file] = file.relative_to(top).as_posix() if file.is_relative_to(top) else file.name
                waiting += [] if matches(found[file], ignored) else [file]
    del found[path]
    named: dict[str, Path] = {}
    for file, name in found.items():
        add(named, name, file)
    return named


def add(files: dict[str, Path], name: str, file: Path) -> None:
    """Add a file under its name, or, where another file has that name, under a name of its own."""
    free = (f"{name} {number}" for number in itertools.count(2))
    while files.setdefault(name, file) != file:
        name = next(free)


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether a file is one of those that are named by their path or by a pattern such as ``plots/*``."""
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


def is_local(path: Path) -> bool:
    """Whether a file is somebody's own: not installed, not Python's, not trainonce's."""
    path = path.resolve()
    return not _is_library(path) and not any(path.is_relative_to(folder) for folder in _installed())


def _is_library(path: Path) -> bool:
    return path.is_relative_to(LIBRARY) and not path.is_relative_to(RECIPES)


class _Place(NamedTuple):
    """A folder in which imports are looked up; of the folder that holds a package, only that package."""

    folder: Path
    package: str | None = None

    def find(self, parts: Sequence[str]) -> Path | None:
        """The file of the module that a dotted name stands for."""
        if self.package is not None and parts[:1] != [self.package]:
            return None
        where = self.folder.joinpath(*parts)
        candidates = ([where.with_name(f"{parts[-1]}.py")] if parts else []) + [where / "__init__.py"]
        return next((file.resolve() for file in candidates if file.is_file()), None)


def _places(path: Path) -> list[_Place]:
    """The file's own folder, and the one that holds its package."""
    folder = top = path.parent
    while (top / "__init__.py").is_file():
        top = top.parent
    own = [] if folder in _installed() else [_Place(folder)]
    return own if folder == top else [*own, _Place(top, folder.relative_to(top).parts[0])]


@functools.cache
def _installed() -> frozenset[Path]:
    """The folders of Python's library and of what pip installs."""
    named = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return frozenset(Path(folder).resolve() for folder in [*named, *site.getsitepackages(), site.getusersitepackages()])


def _imports(file: Path, places: Sequence[_Place]) -> Iterator[Path]:
    """The files beside it that one file imports itself."""
    for names, level in _import_statements(source.parse(file)):
        where = [_Place(file.parents[level - 1])] if level else places
        found = (place.find(parts) for parts in names for place in where)
        first = next((module for module in found if module is not None), None)
        if first is not None and not _is_library(first):
            yield first


def _import_statements(tree: ast.AST | None) -> Iterator[tuple[list[list[str]], int]]:
    """For each thing that is imported, what it may be the name of, the likelier first, and how relative it is."""
    for node in _walk(tree) if tree is not None else ():
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield [alias.name.split(".")], 0
        elif isinstance(node, ast.ImportFrom):
            module = node.module.split(".") if node.module else []
            for alias in node.names:
                yield [[*module, alias.name], module], node.level


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those that only type checkers see."""
    yield node
    hidden = node.body if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING") else []
    for child in ast.iter_child_nodes(node):
        if child not in hidden:
            yield from _walk(child)
