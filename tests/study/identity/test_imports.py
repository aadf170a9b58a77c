"""Which imported files are the task's own."""

import os
from pathlib import Path

import pytest
import torch

import trainonce
from trainonce.study.identity.imports import is_local, neighbours


def write(folder, files):
    """Write files by the names of their modules; gives the path of the first."""
    paths = [folder / f"{name.replace('.', '/')}.py" for name in files]
    for path, text in zip(paths, files.values(), strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return paths[0]


@pytest.mark.parametrize(
    "statement",
    [
        "import model",
        "import model as m",
        "import json, model",
        "from model import Net",
        "from model import *",
        "def f():\n    from model import Net",
        "try:\n    import model\nexcept ImportError:\n    pass",
        "from TYPES import TYPE_CHECKING\nif TYPE_CHECKING:\n    pass\nelse:\n    import model",
    ],
)
def test_a_module_in_the_same_folder_counts(tmp_path, statement):
    file = write(tmp_path, {"task": statement, "model": "class Net: ...", "other": ""})
    assert neighbours(file) == {"model.py": tmp_path / "model.py"}


def test_what_an_imported_file_imports_counts_and_circles_end(tmp_path):
    file = write(tmp_path, {"task": "import a", "a": "import b", "b": "import a, task, c", "c": ""})
    assert sorted(neighbours(file)) == ["a.py", "b.py", "c.py"]


def test_folders_beside_the_task_count_with_or_without_an_init(tmp_path):
    files = {"task": "import nets.small\nfrom parts import blocks, VERSION", "nets.small": "", "nets.large": ""}
    parts = {"parts.__init__": "VERSION = 1", "parts.blocks": "from . import layers", "parts.unused": ""}
    file = write(tmp_path, files | parts | {"parts.layers": "from ..nets import large"})
    names = ["nets/large.py", "nets/small.py", "parts/__init__.py", "parts/blocks.py", "parts/layers.py"]
    assert sorted(neighbours(file)) == names


def test_a_task_in_a_package_follows_the_package_and_not_its_siblings(tmp_path):
    files = {
        "mine.tasks.one": "from mine.model import Net\nfrom ..losses import l1\nimport beside\nimport sibling",
        "mine.tasks.__init__": "",
        "mine.model": "",
        "mine.losses": "from mine import VERSION",
        "mine.tasks.beside": "",
        "mine.__init__": "from mine import unused\nVERSION = 1",
        "mine.unused": "",
        "sibling": "",
    }
    file = write(tmp_path, files)
    on_the_way = ["mine/__init__.py", "mine/tasks/__init__.py", "mine/unused.py"]
    found = [*on_the_way, "mine/losses.py", "mine/model.py", "mine/tasks/beside.py"]
    assert sorted(neighbours(file)) == sorted(found)


def test_a_sibling_of_the_package_does_not_count_whatever_it_is_called(tmp_path):
    files = {"mine.one": "import other.mine\nfrom other import mine", "mine.__init__": "", "other.mine": ""}
    assert list(neighbours(write(tmp_path, files))) == ["mine/__init__.py"]


def test_a_name_from_the_packages_own_file_counts_as_that_file(tmp_path):
    files = {"mine.one": "from . import VERSION", "mine.__init__": "VERSION = 1"}
    assert list(neighbours(write(tmp_path, files))) == ["mine/__init__.py"]


def test_what_only_type_checkers_import_does_not_count(tmp_path):
    guarded = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import model"
    assert neighbours(write(tmp_path, {"task": guarded, "model": ""})) == {}


def test_installed_packages_pythons_library_and_trainonce_do_not_count(tmp_path):
    file = write(tmp_path, {"task": "import torch, json, trainonce, pytest\nfrom trainonce.study import task"})
    assert neighbours(file) == {}
    assert not is_local(Path(torch.__file__))
    assert not is_local(Path(os.__file__))
    assert not is_local(Path(trainonce.__file__))
    assert is_local(file)


def test_a_recipe_counts_with_the_recipes_that_it_imports():
    recipes = Path(trainonce.__file__).parent / "recipes"
    assert list(neighbours(recipes / "distillation.py")) == ["trainonce/recipes/digits.py"]
    assert is_local(recipes / "digits.py")


def test_a_module_among_the_installed_packages_counts_alone(tmp_path, monkeypatch):
    import trainonce.study.identity.imports as module

    installed = tmp_path / "site-packages"
    monkeypatch.setattr(module, "_installed", lambda: frozenset([installed]))
    assert neighbours(write(installed, {"task": "import model", "model": ""})) == {}
    package = {"pkg.task": "from pkg import net\nimport model", "pkg.__init__": "", "pkg.net": ""}
    assert list(neighbours(write(installed, package))) == ["pkg/__init__.py", "pkg/net.py"]


def test_an_ignored_file_hides_what_only_it_imports(tmp_path):
    file = write(
        tmp_path, {"task": "import model, plots", "plots": "import colours, model", "model": "", "colours": ""}
    )
    assert list(neighbours(file, ["plots.py"])) == ["model.py", "plots.py"]


def test_a_broken_neighbour_counts_and_is_not_followed(tmp_path):
    files = {"task": "import model", "model": "import other\nx = (", "other": ""}
    assert list(neighbours(write(tmp_path, files))) == ["model.py"]


def test_links_to_folders_do_not_matter(tmp_path):
    write(tmp_path / "real", {"task": "import model", "model": ""})
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert list(neighbours(tmp_path / "link/task.py")) == ["model.py"]


def test_a_link_to_a_file_elsewhere_counts_by_the_name_of_that_file(tmp_path):
    elsewhere = write(tmp_path / "elsewhere", {"shared": "import deeper", "deeper": ""})
    file = write(tmp_path / "here", {"task": "import model"})
    (tmp_path / "here" / "model.py").symlink_to(elsewhere)
    assert neighbours(file) == {"shared.py": elsewhere}


def test_a_name_may_be_the_packages_or_a_modules_and_both_count(tmp_path):
    files = {"task": "from pkg import loss\nimport deep.er.net", "pkg.__init__": "from pkg.loss import loss"}
    files |= {"pkg.loss": "", "deep.__init__": "", "deep.er.__init__": "", "deep.er.net": ""}
    names = ["deep/__init__.py", "deep/er/__init__.py", "deep/er/net.py", "pkg/__init__.py", "pkg/loss.py"]
    assert sorted(neighbours(write(tmp_path, files))) == names


def test_what_type_checkers_do_not_see_counts(tmp_path):
    files = {"task": "from typing import TYPE_CHECKING\nif not TYPE_CHECKING:\n    import model", "model": ""}
    assert list(neighbours(write(tmp_path, files))) == ["model.py"]


def test_the_neighbours_of_a_link_count_as_well_as_those_of_its_file(tmp_path):
    """Python looks beside the link, an editor shows the file."""
    write(tmp_path / "real", {"task": "import model, other", "other": ""})
    write(tmp_path / "here", {"model": ""})
    (tmp_path / "here/task.py").symlink_to(tmp_path / "real/task.py")
    assert sorted(neighbours(tmp_path / "here/task.py")) == ["model.py", "other.py"]
