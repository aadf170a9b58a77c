"""Optional packages: imported where they are used; one that is absent raises an error with the pip line."""

from __future__ import annotations

import importlib
from typing import Any


def require(module: str, package: str, extra: str | None = None) -> Any:
    """The module of an optional package, or an error with the line that installs it: an extra of ours, or itself."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or module).partition(".")[0] != module.partition(".")[0]:
            raise  # the package is there; something that it needs is not
        install = f"pip install {package}" if extra is None else f'pip install "trainonce[{extra}]"'
        raise ImportError(f"This needs {package}, which is not installed: {install}", name=module) from None
