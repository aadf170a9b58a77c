"""Names of a package that are imported when they are first used, so that ``import trainonce`` takes no time."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def exports(package: str, places: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The functions ``__getattr__`` and ``__dir__`` of a package (PEP 562).

    :param package: Its name, whose modules are found as well as what ``places`` lists.
    :param places: Names of the package, each with the module it comes from. No name may be that of its module: the
        import of the module would hide it.
    """

    def find(name: str) -> Any:
        if name in places:
            value = getattr(importlib.import_module(f"{package}.{places[name]}"), name)
        elif not name.startswith("_") and importlib.util.find_spec(f"{package}.{name}") is not None:
            return importlib.import_module(f"{package}.{name}")  # which makes it an attribute
        else:
            text = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(text, name=name, obj=sys.modules[package])
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        module = sys.modules[package]
        return sorted({*vars(module), *places, *(found.name for found in pkgutil.iter_modules(module.__path__))})

    return find, names
