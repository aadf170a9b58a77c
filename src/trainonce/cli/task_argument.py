"""The task of a command line: finding it, and a description of it."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
import textwrap
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainonce.cli.problem import Problem
from trainonce.recipes import RECIPES, UnknownRecipeError, load
from trainonce.text import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trainonce.study import Task


PACKAGE = Path(__file__).parents[1]


def load_task(text: str) -> Task:
    """The task that a text names: a recipe, ``file.py``, ``file.py:name`` or ``package.module:name``."""
    from trainonce.study import Task

    if text in RECIPES:
        return load(text)
    place, _, name = text.partition(":")
    if place.endswith(".py"):
        if not Path(place).is_file():
            raise Problem(f"There is no file {place}.")
        module = _import(text, lambda: _load_file(place))
    elif name:
        sys.path.insert(0, os.getcwd())
        module = _import(text, lambda: importlib.import_module(place))
    elif place.endswith(".toml"):
        raise Problem(f"{place} is a study file, which has several trainings. Use trainonce compare {place}.")
    else:
        try:
            return load(text)
        except UnknownRecipeError as error:
            raise Problem(f"{error} A task of your own is written file.py or file.py:name.") from None
    tasks = {key: value for key, value in vars(module).items() if isinstance(value, Task)}
    if name:
        if name not in tasks:
            known = ", ".join(tasks) or "none"
            raise Problem(f"{place} has no task {name!r}; its tasks are: {known}.{did_you_mean(name, tasks)}")
        return tasks[name]
    if len(tasks) != 1:
        found = f"it has {', '.join(tasks)}: write {place}:{next(iter(tasks))}" if tasks else "it has none"
        raise Problem(f"{place} must have one function decorated with @trainonce.study.task; {found}.")
    return next(iter(tasks.values()))


def _load_file(place: str) -> Any:
    from trainonce.study.executors.task_location import load_file  # it imports torch: not before the file is found

    return load_file(Path(place))


def _import(text: str, load: Callable[[], Any]) -> Any:
    try:
        return load()
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        theirs = [frame for frame in frames if not Path(frame.filename).is_relative_to(PACKAGE)]
        if isinstance(error, (TypeError, ValueError)) and theirs[-1] is not frames[-1]:  # we say what is wrong with it
            raise Problem(f"{text} cannot be loaded. In line {theirs[-1].lineno}: {error}") from None
        lines = traceback.format_exc().splitlines()
        raise Problem("\n".join([*lines, "", f"{text} cannot be loaded: {type(error).__name__}: {error}"])) from None


def describe(task: Task) -> str:
    """A task with its settings: their defaults and, where its function documents them, what they mean."""
    from trainonce.study import plans

    text = inspect.getdoc(task.function) or ""
    documented = {name: " ".join(about.replace("``", "").split()) for name, about in re.findall(PARAMETER, text)}
    lines = [textwrap.fill(f"{task.name}: {task.about}", 100)]
    lines += [f"terms {', '.join(task.terms)}; {task.direction} {task.metric}"]
    lines += [f"yoto: {plans.parse('yoto', task).rules[0].label}", ""]
    shown = {name: repr(value) for name, value in task.settings.items()}
    wide = [2 + max(map(len, column), default=0) for column in (shown, shown.values())]
    for name, value in shown.items():
        line = f"{name:<{wide[0]}}{value:<{wide[1]}}{documented.get(name, '')}".rstrip()
        lines.append(textwrap.fill(line, 100, subsequent_indent=" " * sum(wide)))
    for name, preset in task.presets.items():
        parts = [_listed(preset.settings), f"yoto: {_listed(preset.yoto)}" if preset.yoto else ""]
        lines += ["", textwrap.fill(f"--preset {name}: {preset.about}: {'; '.join(filter(None, parts))}", 100)]
    return "\n".join(lines)


def _listed(settings: Mapping[str, Any]) -> str:
    shown = {key: f"{value:g}" if isinstance(value, float) else value for key, value in settings.items()}
    return ", ".join(f"{key}={value}" for key, value in shown.items())


#: A parameter in a docstring: up to the next one, or to an empty line.
PARAMETER = re.compile(r":param (\w+): (.*?)(?=\n:param|\n\n|\Z)", re.DOTALL)
