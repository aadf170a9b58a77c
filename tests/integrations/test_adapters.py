"""Every adapter through every check."""

from __future__ import annotations

import importlib

import pytest
from _tester import CHECKS

MODULES = ("_torch", "_lightning", "_transformers", "_accelerate")


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("module", MODULES)
def test_adapter(module, check, tmp_path):
    adapter = importlib.import_module(module).ADAPTER
    if check.__name__ == "a_missing_package_gets_the_pip_line" and not adapter.packages:
        pytest.skip("needs no package")
    check(adapter, tmp_path)
