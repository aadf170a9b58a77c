"""The settings of a task on the command line: text, read as the type of the setting's default."""

from __future__ import annotations

import ast
import inspect
from typing import TYPE_CHECKING, Any

from trainonce.cli.problem import Problem

if TYPE_CHECKING:
    import argparse

    from trainonce.study import Task

#: How people write a switch.
SWITCHES = {"yes": True, "on": True, "true": True, "1": True, "no": False, "off": False, "false": False, "0": False}
#: Values that people write in other ways than Python does, where the default says nothing of the type.
WORDS = {"true": True, "false": False, "none": None}


def with_settings(task: Task, asked: argparse.Namespace) -> Task:
    """The task with the settings that the command line names."""
    settings = {key: _read_entry(task, key, value) for key, value in asked.file_settings.items()}
    for text in asked.set:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals:
            raise Problem(f"--set takes key=value; got {text!r}.")
        settings[key] = read_setting(task, key, value)
    if asked.steps is not None:
        settings["steps"] = asked.steps
    if asked.data_root is not None:
        settings["data_root"] = str(asked.data_root)
    return task.using(**settings)


def _read_entry(task: Task, name: str, value: Any) -> Any:
    """An entry of a study file, which has a type of its own, as the type of the default."""
    default = task.settings.get(name)
    if isinstance(default, bool | int | float | str) and isinstance(value, bool | int | float | str):
        return read_setting(task, name, str(value))
    return tuple(value) if isinstance(default, tuple) and isinstance(value, list) else value


def read_setting(task: Task, name: str, text: str) -> Any:
    """What a text means for a setting: a switch, a number or text where the default is one, else what it looks like.

    A text that is no such value is one sentence. A setting that the task lacks is left for the task to refuse.
    """
    default = task.settings.get(name)
    if text.lower() == "none" and _may_be_none(task, name):
        return None
    match default:
        case bool():
            value: Any = SWITCHES.get(text.lower())
            rule = "is yes or no"
        case int():
            value = _whole_number(text)
            rule = "is a whole number"
        case float():
            value = _number(text)
            rule = "is a number"
        case str():
            literal = _literal(text)
            return literal if isinstance(literal, str) else text
        case _:
            return WORDS.get(text.lower(), _literal(text))
    if value is None:
        raise Problem(f"The setting {name} of the task {task.name!r} {rule}, by default {default}; got {text!r}.")
    return value


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
    try:
        return float(text)
    except ValueError:
        return None


def _literal(text: str) -> Any:
    """What Python reads, or the text."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
