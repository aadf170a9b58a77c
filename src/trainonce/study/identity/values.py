"""A value as JSON that is the same in every process, and different for values that train differently."""

from __future__ import annotations

import ast
import contextlib
import copyreg
import ctypes
import enum
import functools
import hashlib
import inspect
import json
import textwrap
from collections.abc import Iterator
from pathlib import Path, PurePath
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

from trainonce.study.identity import imports, source

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch import Tensor

#: What of a class says nothing about what it does.
NOT_OF_A_CLASS = ("__module__", "__doc__", "__dict__", "__weakref__", "__firstlineno__")


class UnstableError(TypeError):
    """A value cannot be described so that every process describes it alike."""


class Describer:
    """Describes values as JSON. Of functions and classes the code counts, of tensors every number, of sets no order.

    Objects count by what pickle would keep of them. ``files`` collects where the functions and classes come from that
    are somebody's own; of those that are installed only the name counts.

    >>> import torch
    >>> Describer().describe({"rate": 0.1, "kinds": {"b", "a"}, "where": torch.device("cpu")})
    {'rate': 0.1, 'kinds': {'set': ['a', 'b']}, 'where': "device(type='cpu')"}
    """

    def __init__(self) -> None:
        self.files: set[Path] = set()
        self._known: dict[int, tuple[int, Any]] = {}  # the number of what was described, and itself, to keep its id

    def describe(self, value: Any) -> Any:
        """The value as JSON; raises :class:`UnstableError` for what cannot be described."""
        match value:
            case _ if isinstance(value, _printed_types()):
                return repr(value)
            case enum.Enum():
                return {"enum": [type(value).__qualname__, value.name]}
            case None | bool() | int() | float() | str():
                return value
            case bytes() | bytearray():
                return {"bytes": digest(bytes(value))}
            case _ if type(value) in (list, tuple):
                return [self.describe(each) for each in value]
            case _ if type(value) is dict and all(type(key) is str for key in value):
                return {key: self.describe(each) for key, each in value.items()}
            case _ if type(value) is dict:
                return {"dict": _sorted([self.describe(key), self.describe(each)] for key, each in value.items())}
            case _ if type(value) in (set, frozenset):
                return {"set": _sorted(self._copy().describe(each) for each in value)}
            case _ if _is_tensor(value):
                return {"tensor": [str(value.dtype), list(value.shape), _tensor_digest(value)]}
            case ModuleType():
                self._note_file(value)
                return value.__name__
            case BuiltinFunctionType() if isinstance(value.__self__, ModuleType | type | None):
                return _full_name(value)
        if id(value) in self._known:
            return {"again": self._known[id(value)][0]}
        self._known[id(value)] = len(self._known), value
        match value:
            case functools.partial():
                return {"partial": self.describe([value.func, value.args, value.keywords])}
            case MethodType():
                return {"method": self.describe([value.__self__, value.__func__])}
            case FunctionType():
                return self._function(value)
            case type():
                return self._class(value)
            case _ if hasattr(value, "__wrapped__"):  # a decorator's object, such as functools.cache's
                parts = {name: part for name, part in vars(value).items() if not name.startswith("__")}
                return {"wrapper": self.describe([type(value), value.__wrapped__, parts])}
        return {"object": self.describe(_reduce(value))}

    def _note_file(self, code: Any) -> bool:
        """Collect the file of a module, function or class; whether it is somebody's own."""
        path = file_of(code)
        if path is None or not imports.is_local(path):
            return False
        self.files.add(path)
        return True

    def _copy(self) -> Describer:
        """Another that knows as much: what one element of a set adds must not count for the next, in whatever order."""
        copy = Describer()
        copy.files, copy._known = self.files, dict(self._known)
        return copy

    def closure(self, function: FunctionType, *left_out: object) -> dict[str, Any]:
        """The values of enclosing functions that a function uses, by their names."""
        found = {}
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                content = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
            if any(content is each for each in left_out):
                continue
            try:
                found[name] = self.describe(content)
            except UnstableError as error:
                raise UnstableError(f"{name} = {error}") from None
        return found

    def _function(self, function: FunctionType) -> Any:
        parts = {
            "closure": self.closure(function),
            "defaults": self.describe([function.__defaults__ or (), function.__kwdefaults__ or {}]),
        }
        if self._note_file(function):
            return {"function": function.__qualname__, "source": source_of(function), **parts}
        if file_of(function) is not None:
            return {"function": _full_name(function)} | {name: part for name, part in parts.items() if any(part)}
        own = [source_of(function), self.globals_of(function)]
        return {"function": function.__qualname__, "source": own, **parts}

    def _class(self, kind: type) -> Any:
        members = dict(sorted(vars(kind).items()))
        own = self._note_file(kind) or (file_of(kind) is None and any(map(inspect.isfunction, members.values())))
        if not own:
            return {"class": _full_name(kind)}
        found = self._what_can_be({n: _inner(m) for n, m in members.items() if n not in NOT_OF_A_CLASS})
        return {"class": kind.__qualname__, "bases": self.describe(kind.__bases__), "members": found}

    def globals_of(self, function: FunctionType) -> dict[str, Any]:
        """What a function of a notebook takes from other cells; what cannot be described does not count."""
        names = sorted(set(_names(function.__code__)) & function.__globals__.keys())
        return self._what_can_be({name: function.__globals__[name] for name in names})

    def _what_can_be(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Those of the values that can be described."""
        found = {}
        for name, value in values.items():
            with contextlib.suppress(UnstableError):
                found[name] = self.describe(value)
        return found


def digest(content: bytes) -> str:
    """A short name for some bytes."""
    return hashlib.sha256(content).hexdigest()[:16]


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The names of what is not the same in both, or only in one.

    >>> differences({"a": 1, "b": 2, "c": None}, {"a": 1, "b": 3})
    ['b', 'c']
    """
    missing = object()
    return sorted(name for name in {**one, **other} if one.get(name, missing) != other.get(name, missing))


# Code


def file_of(code: Any) -> Path | None:
    """The file in which a function or a class is written, if there is one."""
    try:
        path = inspect.getsourcefile(code)
    except TypeError:
        return None
    return Path(path) if path is not None and path.endswith(".py") and Path(path).is_file() else None


def source_of(function: FunctionType) -> str:
    """A function's own source as far as it computes; its compiled code where there is no source, or no single one."""
    code = function.__code__
    try:
        if (path := file_of(function)) is not None:
            tree, first = source.parse(path), code.co_firstlineno
        else:
            tree, first = ast.parse(textwrap.dedent(inspect.getsource(function))), 1
    except (OSError, TypeError, SyntaxError, ValueError):
        return _compiled(code)
    nodes = ast.walk(tree) if tree is not None else ()
    found = [node for node in nodes if _first_line(node) == first and _name(node) == code.co_name]
    return source.normalise(found[0], global_names(function)) if len(found) == 1 else _compiled(code)


def _first_line(node: ast.AST) -> int | None:
    decorators = getattr(node, "decorator_list", None) or [node]
    return getattr(decorators[0], "lineno", None)


def _name(node: ast.AST) -> str | None:
    return "<lambda>" if isinstance(node, ast.Lambda) else getattr(node, "name", None)


def global_names(function: FunctionType) -> dict[str, str]:
    """What a function's global names stand for, of modules and functions."""
    values = function.__globals__.items()
    return {name: _full_name(value) for name, value in values if inspect.ismodule(value) or inspect.isfunction(value)}


def _compiled(code: CodeType) -> str:
    constants = [
        _compiled(c) if inspect.iscode(c) else sorted(map(repr, c)) if isinstance(c, frozenset) else repr(c)
        for c in code.co_consts
    ]
    return repr((code.co_code, code.co_names, constants))


def _names(code: CodeType) -> Iterator[str]:
    """All names that a function and those inside it use."""
    yield from code.co_names
    for constant in code.co_consts:
        if inspect.iscode(constant):
            yield from _names(constant)


def _full_name(value: Any) -> str:
    if inspect.ismodule(value):
        return value.__name__
    return f"{getattr(value, '__module__', None) or 'builtins'}.{value.__qualname__}"


# Values


def _inner(member: Any) -> Any:
    """The functions behind a method of any kind."""
    if isinstance(member, property):
        return [member.fget, member.fset, member.fdel]
    return member.__func__ if isinstance(member, classmethod | staticmethod) else member


def _is_tensor(value: Any) -> bool:
    from torch import Tensor  # here: see trainonce.lazy

    return isinstance(value, Tensor)


@functools.cache
def _printed_types() -> tuple[type, ...]:
    """The types of values that Python prints in full."""
    from torch import device, dtype

    return PurePath, complex, range, dtype, device


def _sorted(parts: Any) -> list[Any]:
    return sorted(parts, key=json.dumps)


def _tensor_digest(value: Tensor) -> str:
    from torch import strided
    from torch.nn.parameter import is_lazy

    if value.layout is not strided or value.is_quantized or value.is_meta or is_lazy(value):
        raise UnstableError(f"a tensor of another kind than usual, {type(value).__name__} of layout {value.layout}")
    flat = value.cpu().resolve_conj().resolve_neg().contiguous()
    return digest(ctypes.string_at(flat.data_ptr(), flat.numel() * flat.element_size()))


def _reduce(value: Any) -> list[Any]:
    """What pickle would keep of an object."""
    try:
        if type(value) is object:
            raise TypeError
        reduce = copyreg.dispatch_table.get(type(value))
        kept = reduce(value) if reduce is not None else value.__reduce_ex__(4)
    except Exception:  # whatever an object says that is not meant to be kept
        raise UnstableError(repr(value)) from None
    if isinstance(kept, str):
        if "<" in kept:  # a name within a function, which several values have
            raise UnstableError(repr(value))
        return [_full_name(type(value)), kept]
    parts: Iterable[Any] = kept
    return [list(part) if isinstance(part, Iterator) else part for part in parts]
