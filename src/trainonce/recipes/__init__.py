"""Complete systems to train, as tasks for studies: data, model, losses, metrics.

A recipe is found by name, in the built-in list :data:`RECIPES` or among the entry points that installed packages have
in the group ``trainonce.recipes``. To publish one of your own, name its task in your package's ``pyproject.toml``::

    [project.entry-points."trainonce.recipes"]
    my-recipe = "my_package.tasks:my_task"

The task has the same name, ``@task(name="my-recipe", ...)``: studies and their folders are called after it.

After ``pip install`` of that package, ``trainonce recipes`` lists it and ``trainonce compare my-recipe`` trains it. A
built-in recipe takes precedence over one of the same name, with a warning.

Nothing is imported before it is used: a recipe may need packages that others do not.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import warnings
from typing import TYPE_CHECKING, Any

from trainonce.errors import InputError
from trainonce.text import did_you_mean

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from trainonce.study import Task

#: The built-in recipes by name: where the task is.
RECIPES = {
    "digits": "trainonce.recipes.digits:digits",
    "burgers": "trainonce.recipes.burgers:burgers",
    "distillation": "trainonce.recipes.distillation:distillation",
    "streets": "trainonce.recipes.segmentation.tasks:streets",
    "camvid": "trainonce.recipes.segmentation.tasks:camvid",
    "ciss-paper": "trainonce.recipes.segmentation.tasks:ciss_paper",
    "rooms": "trainonce.recipes.depth.tasks:rooms",
    "nyu": "trainonce.recipes.depth.tasks:nyu",
    "unidepth-paper": "trainonce.recipes.depth.tasks:unidepth_paper",
}

#: The entry-point group in which other packages declare recipes.
GROUP = "trainonce.recipes"


class BrokenRecipeError(InputError):
    """The recipe of another package cannot be loaded."""


class UnknownRecipeError(InputError):
    """There is no recipe of that name."""


def names() -> list[str]:
    """The names of all recipes: the built-in ones, then those of other packages."""
    found = entry_points()
    for name in found.keys() & RECIPES.keys():
        _warn_of_built_in(found[name])
    return [*RECIPES, *sorted(found.keys() - RECIPES.keys())]


def load(name: str) -> Task:
    """The task of a recipe."""
    point = entry_points().get(name)
    if name in RECIPES:
        if point is not None:
            _warn_of_built_in(point)
        module, _, attribute = RECIPES[name].partition(":")
        task: Task = getattr(importlib.import_module(module), attribute)
        return task
    if point is None:
        known = names()
        raise UnknownRecipeError(
            f"There is no recipe {name!r}; there are: {', '.join(known)}.{did_you_mean(name, known)}"
        )
    return _load_entry_point(point)


def entry_points() -> dict[str, EntryPoint]:
    """The entry points of other packages' recipes by name; if two packages use one name, the first one found."""
    found: dict[str, EntryPoint] = {}
    for point in importlib.metadata.entry_points(group=GROUP):
        first = found.setdefault(point.name, point)
        if first is not point:
            used, unused = _package(first), _package(point)
            text = f"{used} and {unused} both have a recipe {point.name!r}: that of {used} is used."
            warnings.warn(text, stacklevel=1)
    return found


def _load_entry_point(point: EntryPoint) -> Task:
    from trainonce.study import Task

    recipe = f"The recipe {point.name!r} of {_package(point)}"
    try:
        found: Any = point.load()
    except Exception as error:
        reason = f"its entry point {point.value} raises {type(error).__name__}: {' '.join(str(error).split())}"
        raise BrokenRecipeError(f"{recipe} cannot be loaded: {reason}. Update or uninstall that package.") from error
    if not isinstance(found, Task):
        rule = f"{recipe} must be a function decorated with @trainonce.study.task"
        reason = f"its entry point {point.value} is of type {type(found).__name__}"
        raise BrokenRecipeError(f"{rule}; {reason}. Update or uninstall that package.")
    if found.name != point.name:
        rule = f"{recipe} must be a task of that name, by @task(name={point.name!r})"
        raise BrokenRecipeError(f"{rule}; it is called {found.name!r}. Update or uninstall that package.")
    return found


def _warn_of_built_in(point: EntryPoint) -> None:
    text = f"{_package(point)} has a recipe {point.name!r}, which is also built in: the built-in one is used."
    warnings.warn(text, stacklevel=1)


def _package(point: EntryPoint) -> str:
    return "an installed package" if point.dist is None else f"the package {point.dist.name}"
