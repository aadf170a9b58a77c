"""``import trainonce`` imports nothing else; its names are there all the same."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import trainonce
import trainonce.study

HEAVY = ("torch", "numpy", "matplotlib", "optuna", "torchjd", "rich")
PACKAGES = [trainonce, trainonce.study]


def imported_by(code):
    """The heavy packages that a new Python has loaded after some code."""
    check = f"import sys; {code}; print(*(name for name in {HEAVY} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.splitlines()[-1].split()


def test_heavy_packages_are_noticed():
    assert "torch" in imported_by("import trainonce.composite")


@pytest.mark.parametrize(
    "code", ["import trainonce", "import trainonce.study.plans, trainonce.recipes, trainonce.health, trainonce.cli"]
)
def test_importing_takes_no_torch(code):
    assert imported_by(code) == []


def test_names_are_found_on_first_use_and_from_then_on_without_a_search():
    code = "import trainonce; a = trainonce.CompositeLoss; assert vars(trainonce)['CompositeLoss'] is a"
    assert "torch" in imported_by(code)


def test_study_and_report_are_found_after_importing_trainonce_alone():
    code = "import trainonce; trainonce.study.Study, trainonce.report.write, trainonce.functional.weights"
    assert "torch" in imported_by(code)


def test_the_decorator_is_not_hidden_by_the_module_of_its_name():
    code = "import trainonce.study.plans, trainonce.study.study; from trainonce.study import task; task.__call__"
    code += "; import trainonce.study.task; assert not hasattr(trainonce.study.task, 'Task')"
    assert "torch" in imported_by(code)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_every_name_of_all_resolves_and_is_listed(package):
    assert set(package.__all__) <= set(dir(package))
    star = {}
    exec(f"from {package.__name__} import *", star)
    assert all(star[name] is getattr(package, name) for name in package.__all__)


def _for_type_checkers(package):
    """The names that a package imports under TYPE_CHECKING, and where from."""
    (block,) = (
        node
        for node in ast.parse(Path(package.__file__).read_text()).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    return [(node.module, alias.name) for node in block.body for alias in node.names]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_type_checkers_see_the_same_objects(package):
    names = _for_type_checkers(package)
    assert len(names) >= 5
    for module, name in names:
        found = getattr(importlib.import_module(module), name)
        assert getattr(package, name) is found
    at_once = {name for name in vars(package) if name in ("InputError", "Preset", "Task", "task", "user_errors")}
    assert set(package.__all__) - at_once <= {name for _, name in names}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_a_name_that_is_not_there_is_python_s_own_error(package):
    with pytest.raises(AttributeError, match=rf"module '{package.__name__}' has no attribute 'Compositeloss'"):
        _ = package.Compositeloss
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        exec(f"from {package.__name__} import nothing")


def test_the_fork_server_loads_the_core():
    """Or else every trial would."""
    from trainonce.study.runner import CORE

    places = {getattr(trainonce, name).__module__ for name in trainonce.__all__ if name[0].isupper()}
    assert places <= {*CORE, "trainonce.composite"}
    assert "trainonce.composite" in sys.modules
