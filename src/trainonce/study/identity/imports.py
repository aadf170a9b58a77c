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
    link, path = path.absolute(), path.resolve()
    places = list(dict.fromkeys([*_places(link), *_places(path)]))
    tops = [place.folder for place in reversed(places)]
    found, waiting = {path: ""}, [path]
    new = _own_package(link) + _own_package(path)
    while waiting:
        for file in [*new, *_imports(waiting.pop(), places)]:
            if file not in found:
                names = [file.relative_to(top).as_posix() for top in tops if file.is_relative_to(top)]
                found[file] = names[0] if names else file.name
                waiting += [] if matches(found[file], ignored) else [file]
        new = []
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
    return path.is_relative_to(LIBRARY) and (not path.is_relative_to(RECIPES) or path == RECIPES / "__init__.py")


class _Place(NamedTuple):
    """A folder in which imports are looked up; of the folder that holds a package, only that package."""

    folder: Path
    package: str | None = None

    def find(self, parts: Sequence[str]) -> list[Path]:
        """The files that Python runs to import a dotted name: of the packages on the way, and of the module."""
        if self.package is not None and parts[:1] != [self.package]:
            return []
        where = self.folder.joinpath(*parts)
        candidates = ([where.with_name(f"{parts[-1]}.py")] if parts else []) + [where / "__init__.py"]
        module = [file for file in candidates if file.is_file()][:1]
        packages = [self.folder.joinpath(*parts[:n], "__init__.py") for n in range(1, len(parts))]
        return [file.resolve() for file in [*packages, *module] if module and file.is_file()]


def _places(path: Path) -> list[_Place]:
    """The file's own folder, and the one that holds its package."""
    folder = top = path.parent
    while (top / "__init__.py").is_file():
        top = top.parent
    own = [] if folder in _installed() else [_Place(folder)]
    return own if folder == top else [*own, _Place(top, folder.relative_to(top).parts[0])]


def _own_package(path: Path) -> list[Path]:
    """What Python runs before a file of a package."""
    found, folder = [], path.parent
    while (folder / "__init__.py").is_file():
        found.append((folder / "__init__.py").resolve())
        folder = folder.parent
    return [file for file in found if not _is_library(file)]


@functools.cache
def _installed() -> frozenset[Path]:
    """The folders of Python's library and of what pip installs."""
    named = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return frozenset(Path(folder).resolve() for folder in [*named, *site.getsitepackages(), site.getusersitepackages()])


def _imports(file: Path, places: Sequence[_Place]) -> Iterator[Path]:
    """The files beside it that one file imports itself."""
    for names, level in _import_statements(source.parse(file)):
        where = [_Place(file.parents[level - 1])] if level else places
        for parts in names:
            files = next(filter(None, (place.find(parts) for place in where)), [])
            yield from (found for found in files if not _is_library(found))


def _import_statements(tree: ast.AST | None) -> Iterator[tuple[list[list[str]], int]]:
    """For each thing that is imported, the modules that it may be or be a part of, and how relative they are."""
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
    hidden = node.body if isinstance(node, ast.If) and _is_type_checking(node.test) else []
    for child in ast.iter_child_nodes(node):
        if child not in hidden:
            yield from _walk(child)


def _is_type_checking(test: ast.expr) -> bool:
    return isinstance(test, ast.Name | ast.Attribute) and ast.unparse(test).endswith("TYPE_CHECKING")
