"""Finding recipes: built in, and as entry points of other packages."""

import importlib
import sys
import textwrap
import warnings
from pathlib import Path

import pytest

from trainonce import cli, recipes
from trainonce.recipes.digits import digits
from trainonce.study import Task

TASK = """
import torch
from trainonce.study import task

@task(terms=("fit", "smooth"), metric="error", direction="minimize")
def waves(trial, *, steps=3):
    '''Waves from another package; fit, smoothness.'''
    criterion = trial.criterion()
    height = torch.ones((), requires_grad=True)
    optimizer = torch.optim.SGD([height], lr=0.1)
    trial.attach(optimizer)
    for _ in range(steps):
        optimizer.zero_grad()
        criterion(fit=(height - 2) ** 2, smooth=height**2).backward()
        optimizer.step()
    return {"validation/error": 1.0, "test/error": float(steps)}

number = 3
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Make a distribution with entry points and put it on the path."""

    def add(name, module=TASK, **points):
        folder = tmp_path / name
        info = folder / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        listed = "".join(f"{key} = {value}\n" for key, value in points.items())
        (info / "entry_points.txt").write_text(f"[trainonce.recipes]\n{listed}")
        (folder / f"{name}.py").write_text(module)
        monkeypatch.syspath_prepend(folder)
        monkeypatch.delitem(sys.modules, name, raising=False)  # of an earlier test
        importlib.invalidate_caches()

    return add


def listing(capsys):
    """What ``trainonce recipes`` prints, by recipe, with lines joined, and what it warns of."""
    assert cli.main(["recipes"]) == 0
    printed = capsys.readouterr()
    blocks = {}
    for line in printed.out.splitlines():
        if line and not line.startswith((" ", "'")):
            blocks[line] = []
        elif line.startswith(" "):
            blocks[list(blocks)[-1]].append(line.strip())
    return {name: " ".join(lines) for name, lines in blocks.items()}, printed.err


@pytest.mark.parametrize("name", recipes.RECIPES)
def test_every_built_in_recipe_loads(name):
    assert isinstance(recipes.load(name), Task)


def test_every_built_in_recipe_is_on_the_page_about_comparing():
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "compare.md").read_text(encoding="utf-8")
    assert not [name for name in recipes.RECIPES if f"`{name}`" not in page]


def test_a_recipe_of_another_package_is_loaded_and_listed(install, capsys):
    install("ocean", waves="ocean:waves")
    assert recipes.names() == [*recipes.RECIPES, "waves"]
    assert recipes.load("waves").terms == ("fit", "smooth")
    listed, warned = listing(capsys)
    assert list(listed) == recipes.names()
    assert listed["waves"] == "Waves from another package; fit, smoothness. terms fit, smooth"
    assert warned == ""


def test_its_settings_are_shown_and_it_runs(install, capsys, tmp_path):
    install("ocean", waves="ocean:waves")
    assert cli.main(["recipes", "waves"]) == 0
    assert "steps  3" in capsys.readouterr().out
    given = ["--steps", "7", "--device", "cpu", "--workers", "0", "--out", str(tmp_path / "out")]
    assert cli.main(["run", "waves", *given]) == 0
    assert "test/error               7" in capsys.readouterr().out


BROKEN = {
    "missing:waves": "raises ModuleNotFoundError: No module named 'missing'.",
    "ocean:gone": "raises AttributeError: module 'ocean' has no attribute 'gone'.",
    "ocean:number": "must be a function decorated with @trainonce.study.task; its entry point ocean:number is of type "
    "int.",
    "ocean:waves": "must be a task of that name, by @task(name='broken'); it is called 'waves'.",
}


@pytest.mark.parametrize("value", BROKEN)
def test_a_broken_one_is_one_sentence_and_the_others_are_listed(install, capsys, value):
    install("ocean", broken=value, waves="ocean:waves")
    listed, _ = listing(capsys)
    assert list(listed) == [*recipes.RECIPES, "broken", "waves"]
    assert listed["broken"].startswith("The recipe 'broken' of the package ocean ")
    assert BROKEN[value] in listed["broken"]
    assert listed["broken"].endswith("Update or uninstall that package.")
    assert "terms" in listed["waves"]
    assert cli.main(["run", "broken"]) == 1
    error = capsys.readouterr().err
    assert " ".join(error.split()) == listed["broken"]


def test_a_package_that_fails_while_it_is_imported_is_named(install):
    install("ocean", "raise RuntimeError('no\\nwater')", waves="ocean:waves")
    with pytest.raises(recipes.BrokenRecipeError, match=r"of the package ocean .* RuntimeError: no water\. Update"):
        recipes.load("waves")


def test_a_built_in_name_wins_with_a_warning(install, capsys):
    install("ocean", digits="ocean:waves")
    said = "the package ocean has a recipe 'digits', which is also built in: the built-in one is used."
    with pytest.warns(UserWarning, match=said):
        assert recipes.load("digits") is digits
    with pytest.warns(UserWarning, match=said):
        assert recipes.names() == list(recipes.RECIPES)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        recipes.load("burgers")  # no word where it does not matter
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        _, warned = listing(capsys)
    assert warned == f"Warning: {said}\n"


def test_of_two_packages_with_one_name_the_first_is_used_with_a_warning(install):
    install("ocean", waves="ocean:waves")
    install("lake", waves="lake:waves")
    with pytest.warns(UserWarning, match="the package lake and the package ocean both have a recipe 'waves'"):
        assert recipes.load("waves").function.__module__ == "lake"


def test_an_unknown_name_lists_those_of_other_packages_too(install, capsys):
    install("ocean", waves="ocean:waves")
    with pytest.raises(
        recipes.UnknownRecipeError, match=r"There is no recipe 'wave'; .*, waves\. Did you mean 'waves'\?"
    ):
        recipes.load("wave")
    assert cli.main(["run", "wave"]) == 1
    assert "A task of your own is written file.py or file.py:name." in capsys.readouterr().err


def test_the_docstring_shows_the_group():
    assert f'[project.entry-points."{recipes.GROUP}"]' in textwrap.dedent(recipes.__doc__)
