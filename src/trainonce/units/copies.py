"""Copies of a module that leave what it refers to as it is."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

    Module = TypeVar("Module", bound=nn.Module)


def copy_but(module: Module, kept: Sequence[object], memo: dict[int, Any]) -> Module:
    """A deep copy of a module, for its ``__deepcopy__``, that refers to the same ``kept`` objects."""
    memo |= {id(one): one for one in kept}
    twin = type(module).__new__(type(module))
    memo[id(module)] = twin
    twin.__setstate__(copy.deepcopy(module.__getstate__(), memo))  # type: ignore[no-untyped-call]
    for one in kept:
        del memo[id(one)]  # or a model that comes next in a tuple would share them with its copy
    return twin
