"""Optional packages."""

import sys

import pytest

from trainonce import extras


def test_an_absent_package_is_one_sentence_with_the_pip_line():
    with pytest.raises(
        ImportError, match=r'^This needs Nothing, which is not installed: pip install "trainonce\[x\]"$'
    ):
        extras.require("nothing_of_that_name", "Nothing", "x")


def test_something_that_a_package_lacks_is_not_blamed_on_it(tmp_path, monkeypatch):
    (tmp_path / "halved_package.py").write_text("import something_else_that_is_absent\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="something_else_that_is_absent"):
        extras.require("halved_package", "Halved", "x")
    sys.modules.pop("halved_package", None)
