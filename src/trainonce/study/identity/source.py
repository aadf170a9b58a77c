"""The source of a file as far as it computes: what two files that train alike have in common."""

from __future__ import annotations

import ast
import functools
import hashlib
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

#: What the decorator of tasks is called, written out.
DECORATOR = ("trainonce.study.task", "trainonce.study.task.task")


def normalise(tree: ast.AST, names: Mapping[str, str] | None = None) -> str:
    """A syntax tree as text: no comments, layout or docstrings, no ``@task(...)``, and no block that only scripts run.

    What ``@task`` was given either says nothing about the training or counts by itself. The block under
    ``if __name__ == "__main__":`` starts studies and does not train.

    :param names: What global names stand for, where the source does not say it: ``{"task": "trainonce.study.task"}``.
    """
    return json.dumps(_dump(tree, dict(names or {}) | imported_names(tree)))


def file_text(path: Path) -> str:
    """What a file computes; of one that cannot be parsed, its text."""
    tree = parse(path)
    try:
        return path.read_text(errors="replace") if tree is None else normalise(tree)
    except RecursionError:  # such as a long chain of elif
        return path.read_text(errors="replace")


def file_digest(path: Path) -> str:
    """A hash of what a file computes."""
    return hashlib.sha256(file_text(path).encode()).hexdigest()[:16]


def parse(path: Path) -> ast.Module | None:
    """The syntax tree of a file; None if it has none."""
    stat = path.stat()
    return _parse(path, stat.st_mtime_ns, stat.st_size)


@functools.lru_cache(maxsize=256)
def _parse(path: Path, *_: int) -> ast.Module | None:
    try:
        return ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return None


def imported_names(tree: ast.AST) -> dict[str, str]:
    """What the imports of a file call things: ``{"np": "numpy", "task": "trainonce.study.task"}``."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return found


def _dump(node: Any, names: Mapping[str, str]) -> Any:
    if isinstance(node, list):
        return [_dump(child, names) for child in node if not (_is_docstring(child) or _is_script_block(child))]
    if not isinstance(node, ast.AST):
        return repr(node)
    constant = isinstance(node, ast.Constant)
    fields = dict(ast.iter_fields(node))
    if isinstance(node, ast.JoinedStr):
        fields["values"] = _join_texts(node.values)
    if "decorator_list" in fields:
        fields["decorator_list"] = [each for each in fields["decorator_list"] if not _makes_task(each, names)]
    return [
        type(node).__name__,
        {
            name: _dump(value, names)
            for name, value in fields.items()
            if name != "kind" and (constant or (value is not None and value != []))
        },
    ]


def _join_texts(parts: list[ast.expr]) -> list[ast.expr]:
    """The parts of an f-string, each text between braces in one piece; Python 3.12 leaves some in several."""
    joined: list[ast.expr] = []
    for part in parts:
        if isinstance(part, ast.Constant) and joined and isinstance(joined[-1], ast.Constant):
            joined[-1] = ast.Constant(str(joined[-1].value) + str(part.value))
        elif not isinstance(part, ast.Constant) or part.value != "":
            joined.append(part)
    return joined


def _is_docstring(node: Any) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _is_script_block(node: Any) -> bool:
    if not isinstance(node, ast.If) or not isinstance(node.test, ast.Compare) or node.orelse:
        return False
    sides = [node.test.left, *node.test.comparators]
    is_equal = [type(each) for each in node.test.ops] == [ast.Eq]
    return is_equal and {ast.unparse(side) for side in sides} == {"__name__", "'__main__'"}


def _makes_task(decorator: ast.expr, names: Mapping[str, str]) -> bool:
    if not isinstance(decorator, ast.Call) or not isinstance(decorator.func, ast.Name | ast.Attribute):
        return False
    first, dot, rest = ast.unparse(decorator.func).partition(".")
    return names.get(first, first) + dot + rest in DECORATOR
