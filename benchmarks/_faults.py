"""The small faults of ``mutants.py``: every edit of a source file that a test should notice.

Left alone: texts, annotations, f-strings, what is raised, asserted or only shown (``__repr__``).
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import re
from collections import Counter
from pathlib import Path
from typing import Any

#: What each operator becomes, by its class in ``ast``.
SWAPS = {"Lt": "< <=", "LtE": "<= <", "Gt": "> >=", "GtE": ">= >", "Eq": "== !=", "NotEq": "!= =="}
SWAPS |= {
    "Is": "is is_not",
    "IsNot": "is_not is",
    "In": "in not_in",
    "NotIn": "not_in in",
    "And": "and or",
    "Or": "or and",
}
SWAPS |= {"Add": "+ -", "Sub": "- +", "Mult": "* /", "Div": "/ *", "FloorDiv": "// *", "Pow": "** *", "Mod": "% *"}
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "amin": "amax", "amax": "amin", "mean": "sum"}
NAMES |= {"floor": "ceil", "ceil": "floor", "no_grad": "enable_grad", "sorted": "list"}
UNSEEN_KEYWORDS = {
    "help",
    "metavar",
    "encoding",
    "strict",
    "slots",
}  # left out, they change texts or only what is refused


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One fault: the bytes ``start:end`` of a file become ``text``."""

    path: str
    line: int
    code: str  # the line as it is
    operator: str
    ordinal: int  # among equal edits of equal lines of the file
    start: int
    end: int
    text: str

    @property
    def id(self) -> str:
        """The same as long as the line is the same, wherever it moves."""
        return f"{self.path} | {self.code} | {self.operator} | {self.ordinal}"

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.text.encode() + source[self.end :]


def find_mutants(path: str) -> list[Mutant]:
    """All faults of a file, in the order of its lines."""
    source = Path(path).read_bytes()
    finder = Finder(source)
    tree = ast.parse(source)
    finder.visit(tree)
    lines = source.decode().splitlines()
    original, seen, found = ast.dump(tree), Counter[tuple[str, str]](), []
    for line, operator, start, end, text in sorted(finder.edits):
        code = lines[line - 1].strip()
        mutant = Mutant(path, line, code, operator, seen[code, operator], start, end, text)
        with contextlib.suppress(SyntaxError):
            if ast.dump(ast.parse(mutant.apply(source))) != original:
                found.append(mutant)
                seen[code, operator] += 1
    return found


class Finder(ast.NodeVisitor):
    """Collects edits: line, operator, first byte, byte after the last, new text."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.starts = [0]
        for line in source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.edits: set[tuple[int, str, int, int, str]] = set()

    def span(self, node: Any) -> tuple[int, int]:
        first, last = self.starts[node.lineno - 1], self.starts[node.end_lineno - 1]
        return first + node.col_offset, last + node.end_col_offset

    def add(self, operator: str, start: int, end: int, text: str) -> None:
        self.edits.add((self.source.count(b"\n", 0, start) + 1, operator, start, end, text))

    def replace(self, node: Any, text: str, operator: str | None = None) -> None:
        start, end = self.span(node)
        old = " ".join(self.source[start:end].decode().split())
        self.add(operator or f"{old} -> {text}", start, end, text)

    def swap(self, left: Any, operator: ast.AST, right: Any) -> None:
        """Change the operator that stands between two operands."""
        if type(operator).__name__ not in SWAPS:
            return
        old, new = (word.replace("_", " ") for word in SWAPS[type(operator).__name__].split())
        start, end = self.span(left)[1], self.span(right)[0]
        place = re.search(re.escape(old).replace(r"\ ", r"\s+").encode(), self.source[start:end])
        if place:
            self.add(f"{old} -> {new}", start + place.start(), start + place.end(), new)

    # What is left alone.

    def visit_Raise(self, node: ast.Raise) -> None: ...
    def visit_JoinedStr(self, node: ast.JoinedStr) -> None: ...
    def visit_Assert(self, node: ast.Assert) -> None: ...

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        overload = any(isinstance(mark, ast.Name) and mark.id == "overload" for mark in node.decorator_list)
        if node.name in ("__repr__", "extra_repr", "__str__") or overload:
            return
        for mark in node.decorator_list:
            if isinstance(mark, ast.Call) and isinstance(mark.func, ast.Attribute):
                self.visit(mark.func)  # torch.no_grad
        for part in [*node.args.defaults, *filter(None, node.args.kw_defaults), *node.body]:
            self.visit(part)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for part in node.body:
            self.visit(part)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value:
            self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        if not any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets):
            self.generic_visit(node)

    # What is changed.

    def visit_Compare(self, node: ast.Compare) -> None:
        sides = [node.left, *node.comparators]
        for left, operator, right in zip(sides, node.ops, sides[1:], strict=False):
            self.swap(left, operator, right)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if not is_text(node.left) and not is_text(node.right):
            self.swap(node.left, node.op, node.right)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for left, right in zip(node.values, node.values[1:], strict=False):
            self.swap(left, node.op, right)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        sign = {ast.Not: "not ", ast.USub: "-"}.get(type(node.op))
        if sign:
            start = self.span(node)[0]
            self.add(f"without {sign.strip()}", start, start + len(sign), "")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self.replace(node, str(not node.value))
        elif isinstance(node.value, int | float):
            self.replace(node, repr(node.value + 1))

    def visit_If(self, node: ast.If | ast.IfExp) -> None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        self.replace(node.test, "True", "condition -> True")
        self.replace(node.test, "False", "condition -> False")
        self.generic_visit(node)

    visit_IfExp = visit_If  # noqa: N815

    def visit_While(self, node: ast.While) -> None:
        if not isinstance(node.test, ast.Constant):
            self.replace(node.test, "False", "condition -> False")
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for condition in node.ifs:
            self.replace(condition, "True", "condition -> True")
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is None:
            self.replace(node, "pass")
        elif not isinstance(node.value, ast.Constant):
            self.replace(node.value, "None", "return None")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self.replace(node, "pass", "statement -> pass")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.replace(node, "pass", "statement -> pass")
        self.swap(node.target, node.op, node.value)
        self.generic_visit(node)

    def visit_Break(self, node: ast.Break) -> None:
        self.replace(node, "continue")

    def visit_Continue(self, node: ast.Continue) -> None:
        self.replace(node, "break")

    def visit_Slice(self, node: ast.Slice) -> None:
        for bound in (node.lower, node.upper):
            if bound and not isinstance(bound, ast.Constant | ast.UnaryOp):
                end = self.span(bound)[1]
                self.add(f"{ast.unparse(bound)} -> + 1", end, end, " + 1")
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in NAMES and isinstance(node.ctx, ast.Load):
            self.replace(node, NAMES[node.id])

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr in NAMES:
            end = self.span(node)[1]
            self.add(f"{node.attr} -> {NAMES[node.attr]}", end - len(node.attr), end, NAMES[node.attr])
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("detach", "clone") and not node.args:
            start, end = self.span(node.func.value)[1], self.span(node)[1]
            self.add(f"without {node.func.attr}()", start, end, "")
        if isinstance(node.func, ast.Name) and node.func.id in ("cast", "TypeVar", "ParamSpec"):
            return
        parts = sorted([*node.args, *node.keywords], key=lambda part: self.span(part))
        for before, part, after in zip([None, *parts], parts, [*parts[1:], None], strict=False):
            if isinstance(part, ast.keyword) and part.arg and part.arg not in UNSEEN_KEYWORDS:
                start = self.span(before)[1] if before and not after else self.span(part)[0]
                end = self.span(after)[0] if after else self.span(part)[1]
                self.add(f"without {part.arg}=", start, end, "")
        for part in [node.func, *node.args, *(key.value for key in node.keywords if key.arg not in UNSEEN_KEYWORDS)]:
            self.visit(part)


def is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
