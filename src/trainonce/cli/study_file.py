"""A study file: what ``trainonce compare study.toml`` trains, for a repository or a paper to point to.

::

    task = "my_task.py"                                # a file beside this one, or as on the command line
    plans = ["yoto", "grid(0.1,1,10)", "uniform"]
    seeds = "0-4"                                      # or 5, or [10, 11, 12]
    margin = 0.5
    out = "results"                                    # beside this file

    [settings]
    steps = 500
    lr = 0.1

Every entry but the task may be left out, and options of the command line go before the file's.
"""

from __future__ import annotations

import argparse
import contextlib
import tomllib
from pathlib import Path
from typing import Any

from trainonce.cli.argument_types import seed_list
from trainonce.cli.problem import Problem
from trainonce.text import did_you_mean, is_positive

#: What a study file may hold, and how a value of it is described.
ENTRIES = {
    "task": "text, such as 'my_task.py'",
    "plans": "a list of texts, such as ['yoto', 'grid(0.1,1,10)']",
    "seeds": "how many, or which: 5, '0-4' or [10, 11, 12]",
    "margin": "a number above 0",
    "out": "text, the folder for the results",
    "preset": "text, the name of one of the task's presets",
    "settings": "a table, such as [settings] with lr = 0.1 below it",
}


def is_study_file(text: str) -> bool:
    return text.endswith(".toml")


def fill_in(asked: argparse.Namespace) -> None:
    """Take from the study file what the command line does not say."""
    path = Path(asked.task)
    content = read(path)
    asked.task = _beside(path, content["task"])
    asked.plans = asked.plans or content.get("plans")
    asked.seeds = content.get("seeds") if asked.seeds is None else asked.seeds
    asked.margin = content.get("margin") if asked.margin is None else asked.margin
    asked.out = path.parent / content["out"] if asked.out is None and "out" in content else asked.out
    asked.preset = content.get("preset") if asked.preset is None else asked.preset
    asked.file_settings = content.get("settings", {})


def read(path: Path) -> dict[str, Any]:
    """The entries of a study file, checked; a mistake is one sentence."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Problem(f"There is no file {path}.") from None
    except IsADirectoryError:
        raise Problem(f"{path} is a folder: name the study file in it, such as {path / 'study.toml'}.") from None
    except UnicodeDecodeError:
        raise Problem(f"The study file {path} cannot be read: it is not text in UTF-8.") from None
    except (OSError, tomllib.TOMLDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise Problem(f"The study file {path} cannot be read: {why}.") from None
    for key in content:
        if key not in ENTRIES:
            raise Problem(
                f"The study file {path} has an entry {key!r}; there are: {', '.join(ENTRIES)}."
                f"{did_you_mean(key, ENTRIES)}"
            )
    if "task" not in content:
        raise Problem(f"The study file {path} names no task: add task = 'my_task.py'.")
    return {key: _check(path, key, value) for key, value in content.items()}


def _check(path: Path, key: str, value: Any) -> Any:
    match key, value:
        case (("task" | "out" | "preset"), str()) if value.strip():
            return value
        case "plans", str():
            return [value]
        case "plans", [str(), *_] if all(isinstance(text, str) for text in value):
            return value
        case "margin", int() | float() if is_positive(value):
            return float(value)
        case "settings", dict():
            return value
        case "seeds", [_, *_] if all(type(seed) is int and seed >= 0 for seed in value) and _differ(value):
            return value
        case "seeds", int() | str():
            with contextlib.suppress(argparse.ArgumentTypeError):
                return seed_list(str(value))
    raise Problem(f"The entry {key!r} of the study file {path} is {ENTRIES[key]}; got {value!r}.")


def _differ(values: list[int]) -> bool:
    return len(set(values)) == len(values)


def _beside(path: Path, task: str) -> str:
    """The task of a file: a Python file is looked for beside it."""
    place, colon, name = task.partition(":")
    return f"{path.parent / place}{colon}{name}" if place.endswith(".py") else task
