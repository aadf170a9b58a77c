"""Complete small systems to train: data, model, losses, metrics. They need the extra ``demo``."""

from __future__ import annotations

import importlib
from typing import Any

INSTALL = 'pip install "trainonce[demo]"'


def require(module: str, package: str) -> Any:
    """The module of an optional package, or one sentence that says how to get it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        raise ImportError(f"This needs {package}, which is not installed: {INSTALL}", name=module) from None
