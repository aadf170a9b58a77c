"""The settings of a task on the command line: text, read as the type of the setting's default."""

from __future__ import annotations

import ast
import inspect
import math
from typing import TYPE_CHECKING, Any

from trainonce.cli.problem import Problem
from trainonce.study.executors.options import TAKES

if TYPE_CHECKING:
    import argparse

    from trainonce.study import Task

#: How people write a switch.
SWITCHES = {"yes": True, "on": True, "true": True, "1": True, "no": False, "off": False, "false": False, "0": False}
#: Values that people write in other ways than Python does, where the default says nothing of the type.
WORDS = {"true": True, "false": False, "none": None}


def with_settings(task: Task, asked: argparse.Namespace) -> Task:
    """The task with the preset and the settings that the command line names; settings go before the preset."""
    task = task if asked.preset is None else task.preset(asked.preset)
    settings = {key: _read_entry(task, key, value) for key, value in asked.file_settings.items()}
    for text in asked.set:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals:
            raise Problem(f"--set takes key=value; got {text!r}.")
        settings[key] = read_setting(task, key, value)
    if asked.steps is not None:
        settings["steps"] = asked.steps
    if asked.data_root is not None:
        far = asked.executor in TAKES  # where the working directory is another one
        settings["data_root"] = str(asked.data_root.absolute() if far else asked.data_root)
    return task.using(**settings)


def _read_entry(task: Task, name: str, value: Any) -> Any:
    """An entry of a study file, which has a type of its own, as the type of the default."""
    if isinstance(value, str) and isinstance(task.settings.get(name), bool | int | float | str):
        return read_setting(task, name, value)
    return _fit_setting(task, name, value, repr(value))


def read_setting(task: Task, name: str, text: str) -> Any:
    """What a text means for a setting: a switch, a number, text or a list where the default is one, else what it is.

    A text that is no such value is one sentence. A setting that the task lacks is left for the task to refuse.
    """
    default = task.settings.get(name)
    if text.lower() == "none" and (_may_be_none(task, name) or type(default) in SEQUENCES):
        return None
    if type(default) in SEQUENCES:
        return _fit_setting(task, name, _split(text, default), repr(text))
    if not isinstance(default, bool | int | float | str):
        return WORDS.get(text.lower(), _literal(text))
    return _fit_setting(task, name, text, repr(text))


def _fit_setting(task: Task, name: str, value: Any, shown: str) -> Any:
    default = task.settings.get(name)
    try:
        return _fit(value, default)
    except _UnfitError as error:
        raise Problem(
            f"The setting {name} of the task {task.name!r} {error}, by default {default}; got {shown}."
        ) from None


class _UnfitError(Exception):
    """A value is not of the default's type; the text says what it has to be."""


#: Types of settings with several values, which a command line and a study file write alike.
SEQUENCES = (tuple, list)


def _fit(value: Any, default: Any) -> Any:
    """A text, or a value of a study file, as the type of the default; raises if it is none."""
    if type(default) in SEQUENCES:
        if not isinstance(value, list | tuple):
            raise _UnfitError("is a list, such as [1,2] or [1]")
        kinds = {type(entry) for entry in default}
        example = default[0] if len(kinds) == 1 else None  # of which type all entries are
        try:
            return type(default)(entry if entry is None else _fit(entry, example) for entry in value)
        except _UnfitError as error:
            raise _UnfitError(f"is a list in which every entry {error}") from None
    if isinstance(default, bool | int | float | str) and not isinstance(value, bool | int | float | str):
        raise _UnfitError("is one value")
    match default:
        case bool():
            return _require(SWITCHES.get(str(value).lower()), "is yes or no")
        case int():
            return _require(_whole_number(str(value)), "is a whole number")
        case float():
            return _require(_number(str(value)), "is a number")
        case str():
            literal = _literal(str(value))
            return literal if isinstance(literal, str) else str(value)
    return value


def _require(value: Any, rule: str) -> Any:
    if value is None:
        raise _UnfitError(rule)
    return value


def _split(text: str, default: Any) -> Any:
    """The entries of a list that a text holds, as Python writes them; texts need no quotation marks, none is empty."""
    found = _literal(text) if text.strip() else []
    plain = isinstance(found, str) and "," in text and all(isinstance(entry, str) for entry in default)
    return [part.strip() for part in text.strip("[]()").split(",") if part.strip()] if plain else found


def _may_be_none(task: Task, name: str) -> bool:
    """Whether the function says of a setting that it may be None, by its default or its type."""
    if name in task.settings and task.settings[name] is None:
        return True
    parameter = inspect.signature(task.function).parameters.get(name)
    written = "" if parameter is None or parameter.annotation is parameter.empty else str(parameter.annotation)
    return "None" in written or "Optional" in written


def _whole_number(text: str) -> int | None:
    """1e2 is one, 1.5 is none."""
    number = _number(text)
    if number is None or not number.is_integer():
        return None
    try:
        return int(text)  # all digits of a large one
    except ValueError:
        return int(number)


def _number(text: str) -> float | None:
    """A number; nan is none."""
    try:
        return None if math.isnan(number := float(text)) else number
    except ValueError:
        return None


def _literal(text: str) -> Any:
    """What Python reads, or the text."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
