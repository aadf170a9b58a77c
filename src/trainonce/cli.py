"""The command ``trainonce``: compare, run, report, recipes, plans, explain."""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import math
import os
import re
import sys
import textwrap
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainonce.extras import require
from trainonce.recipes import RECIPES, BrokenRecipeError, UnknownRecipeError
from trainonce.study import layout, torchrun
from trainonce.study.runner import StoppedError
from trainonce.text import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trainonce.study import Study, Task

#: The plans of a comparison that names none.
PLANS = "one-shot,grid,uniform,base,final,replay"


class Problem(Exception):  # noqa: N818 the user's, not the program's
    """A mistake in the command line or the task, in one sentence."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    asked = _parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = asked.command
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: print(f"Warning: {message}", file=sys.stderr)
            return _together(command, asked) if command in (compare, run) else command(asked)
    except BrokenPipeError:  # the reader of our output has gone
        return 1
    except (Problem, StoppedError, ImportError, ValueError, OSError) as error:
        print(_in_words(error), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped. Finished trials are kept: the same command goes on from there.", file=sys.stderr)
        return 130


def _together(command: Callable[[argparse.Namespace], int], asked: argparse.Namespace) -> int:
    """The command; under torchrun its trials are trained by all processes together, and the first does the rest."""
    with torchrun.process_group(asked.device) as device:
        if device is None:
            return command(asked)
        if not torchrun.is_first():
            try:
                task = load_task(asked.task).using(**_settings(asked))
            except (Problem, ImportError, ValueError, OSError):
                task = None  # the first process meets the same error and reports it
            return torchrun.follow(task, device)
        asked.workers, asked.device = 0, device
        try:
            return command(asked)
        finally:
            torchrun.dismiss()


def _in_words(error: Exception) -> str:
    if isinstance(error, ImportError):
        return str(error)  # ends with the line to type
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text if text.endswith((".", "?")) else f"{text}."


# The commands


def compare(asked: argparse.Namespace) -> int:
    from trainonce.study import sentences

    _check_report(asked)
    study = _study(asked, asked.plans, asked.seeds)
    count = len({key for item in study.items() for key in item.keys})
    task, out = study.task, study.store.shown
    names = ", ".join(plan.name for plan in study.plans)
    print(f"{task.name}: {task.about}")
    print(textwrap.fill(f"{count} trials: {names}; {_seeds(study)}. Results go to {out}.", 100))
    if study.changed and study.store.read():
        print("The task or its settings have changed: earlier trials in this folder are kept, and not used.")
    summary = study.run(workers=asked.workers, device=asked.device)
    print(f"\n{sentences.text_table(summary)}\n")
    texts = (sentences.sentence(summary), sentences.evidence(summary), sentences.search_cost(summary))
    for text in filter(None, texts):
        print(textwrap.fill(text, 100) + "\n")
    if told := _warnings(study):
        print(told)
    if not asked.no_report:
        _write_report(out, asked.interactive)
    return _failures(study)


def run(asked: argparse.Namespace) -> int:
    from trainonce.study import sentences

    study = _study(asked, asked.plan, [asked.seed], "-run")
    if len(study.plans) != 1 or len(study.plans[0].weightings) != 1:
        raise Problem(f"trainonce run trains once: {asked.plan!r} is more than one training. Use trainonce compare.")
    task = study.task
    print(f"{task.name}: {task.about}")
    study.run(workers=asked.workers, device=asked.device)
    record = study.store.read()[study.items()[-1].keys[0]]
    if record.status != "failed":
        for name, value in record.metrics.items():
            unit = task.unit if name.rpartition("/")[2] == task.metric else ""
            print(f"{name:<24} {value:.5g} {unit}".rstrip())
        print(sentences.weights_line(record.weights, task.terms))
        for text in record.warnings[:WARNINGS]:
            print(textwrap.fill(f"It warned: {text}", 100))
        if len(record.warnings) > WARNINGS:
            print(f"and {len(record.warnings) - WARNINGS} more, in its record")
        print(f"Recorded in {study.store.shown / layout.TRIALS / record.key}")
    return _failures(study)


WARNINGS = 3  # that are shown of a run


def report(asked: argparse.Namespace) -> int:
    if not (asked.study / layout.MANIFEST).is_file():
        raise Problem(f"There is no study in {asked.study}: give the folder that was --out of trainonce compare.")
    _write_report(asked.study, asked.interactive)
    return 0


def recipes(asked: argparse.Namespace) -> int:
    from trainonce.recipes import load, names

    if asked.name is not None:
        print(_describe(load_task(asked.name)))
        return 0
    for name in names():
        try:
            task = load(name)
        except BrokenRecipeError as error:
            print(f"{name}\n{textwrap.indent(textwrap.fill(str(error), 76), '    ')}")
            continue
        cost = "" if task.seconds is None else f" One training takes about {task.seconds:g} s on one CPU core."
        print(f"{name}\n{textwrap.indent(textwrap.fill(task.about + cost, 76), '    ')}")
        print(f"    terms {', '.join(task.terms)}")
    print("\n'trainonce recipes NAME' lists the settings of one.")
    return 0


def _describe(task: Task) -> str:
    """A task with its settings: their defaults and, where its function documents them, what they mean."""
    from trainonce.study.weightings import Learned

    text = inspect.getdoc(task.function) or ""
    said = {name: " ".join(about.replace("``", "").split()) for name, about in re.findall(PARAMETER, text)}
    lines = [textwrap.fill(f"{task.name}: {task.about}", 100)]
    lines += [f"terms {', '.join(task.terms)}; {task.direction} {task.metric}"]
    lines += [f"one-shot: {Learned(**task.one_shot).label}", ""]
    shown = {name: repr(value) for name, value in task.settings.items()}
    wide = [2 + max(map(len, column), default=0) for column in (shown, shown.values())]
    for name, value in shown.items():
        line = f"{name:<{wide[0]}}{value:<{wide[1]}}{said.get(name, '')}".rstrip()
        lines.append(textwrap.fill(line, 100, subsequent_indent=" " * sum(wide)))
    return "\n".join(lines)


#: A parameter in a docstring: up to the next one, or to an empty line.
PARAMETER = re.compile(r":param (\w+): (.*?)(?=\n:param|\n\n|\Z)", re.DOTALL)


def plans_list(asked: argparse.Namespace) -> int:
    from trainonce.study.plans import ABOUT

    width = max(map(len, ABOUT))
    for name, about in ABOUT.items():
        print(textwrap.fill(f"{name:<{width}}  {about}", 100, subsequent_indent=" " * (width + 2)))
    print("\nSettings go in brackets: --plans 'one-shot(init=1,decay=2),grid(0.1,1,10),tpe(trials=30)'")
    return 0


def explain(asked: argparse.Namespace) -> int:
    from trainonce import explain as topics

    if asked.topic is None:
        print(topics.overview())
        return 0
    topic = topics.find(asked.topic)
    if topic is None:
        print(topics.unknown(asked.topic), file=sys.stderr)
        return 2
    topics.show(topic)
    return 0


# Parts of them


def _study(asked: argparse.Namespace, plan_texts: str, seeds: int | list[int], suffix: str = "") -> Study:
    from trainonce.study import Study, plans

    task = load_task(asked.task).using(**_settings(asked))
    texts = plans.split(plan_texts)
    for text in texts:
        plans.parse(text, task)  # before a folder is made
    study = Study(task, asked.out or Path("out") / f"{task.name}{suffix}", seeds=seeds)
    if getattr(asked, "margin", None) is not None:
        study.margin = asked.margin
    for text in texts:
        study.add(text)
    return study


def load_task(text: str) -> Task:
    """The task that a text names: a recipe, ``file.py``, ``file.py:name`` or ``package.module:name``."""
    from trainonce.recipes import load
    from trainonce.study import Task
    from trainonce.study.executors.task_location import load_file

    if text in RECIPES:
        return load(text)
    place, _, name = text.partition(":")
    if place.endswith(".py"):
        if not Path(place).is_file():
            raise Problem(f"There is no file {place}.")
        module = _import(text, lambda: load_file(Path(place)))
    elif name:
        sys.path.insert(0, os.getcwd())
        module = _import(text, lambda: importlib.import_module(place))
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


def _import(text: str, load: Callable[[], Any]) -> Any:
    try:
        return load()
    except Exception as error:
        lines = traceback.format_exc().splitlines()
        raise Problem("\n".join([*lines, "", f"{text} cannot be loaded: {type(error).__name__}: {error}"])) from None


def _settings(asked: argparse.Namespace) -> dict[str, Any]:
    settings = {}
    for text in asked.set:
        key, equals, value = text.partition("=")
        if not equals:
            raise Problem(f"--set takes key=value; got {text!r}.")
        try:
            settings[key.strip()] = ast.literal_eval(value.strip())
        except (ValueError, SyntaxError):
            settings[key.strip()] = WORDS.get(value.strip().lower(), value.strip())
    if asked.steps is not None:
        settings["steps"] = asked.steps
    if asked.data_root is not None:
        settings["data_root"] = str(asked.data_root)
    return settings


#: Settings that people write in other ways than Python does.
WORDS = {"true": True, "false": False, "none": None}


def _seeds(study: Study) -> str:
    seeds = study.seeds
    together = seeds == list(range(seeds[0], seeds[-1] + 1))
    shown = f"{seeds[0]} to {seeds[-1]}" if together and len(seeds) > 1 else ", ".join(map(str, seeds))
    return f"seed{'s' * (len(seeds) > 1)} {shown}"


def _write_report(folder: Path, interactive: bool) -> None:
    from trainonce.report import write

    print(f"Report: {write(folder, interactive=interactive)}")


def _check_report(asked: argparse.Namespace) -> None:
    """What the report will need, before hours of training."""
    if not asked.no_report:
        require("matplotlib.figure", "matplotlib", "study")
        if asked.interactive:
            require("plotly", "plotly", "interactive")


def _warnings(study: Study) -> str:
    """What trials warned of, in a line, with how many did."""
    from trainonce.study.sentences import kind_of

    keys = {key for item in study.items() for key in item.keys}
    said = [record.warnings for record in study.store.read().values() if record.key in keys]
    kinds = Counter(kind for texts in said for kind in {kind_of(text) or text for text in texts})
    told = ", ".join(f"{kind} ({count})" for kind, count in kinds.most_common())
    return textwrap.fill(f"Trials warned of: {told}.", 100) + "\n" if told else ""


def _failures(study: Study) -> int:
    labels = {key: item.label(key) for item in study.items() for key in item.keys}
    failed = [r for r in study.store.read().values() if r.key in labels and r.status == "failed"]
    if not failed:
        return 0
    error = failed[0].error or {"type": "?", "message": "?", "traceback": ""}
    lines = error["traceback"].strip().splitlines()[-12:]
    last = f"{error['type']}: {error['message']}"
    lines += [] if lines and lines[-1] == last else ["", last] if lines else [last]
    count = f"{len(failed)} trial{'s' * (len(failed) > 1)} failed"
    print(f"\n{count}. The first, {labels[failed[0].key]}, seed {failed[0].seed}:\n", file=sys.stderr)
    print(textwrap.indent("\n".join(lines), "    "), file=sys.stderr)
    print(
        f"\nThe same command runs failed trials again; logs are in {study.store.shown / layout.LOGS}.", file=sys.stderr
    )
    return 1


# The arguments


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="trainonce",
        description="Learn loss weights in one training run, and see how that compares with searching for them.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    one = commands.add_parser(
        "compare",
        help="train a task under several plans and seeds, and report",
        description="Train a task under several plans and seeds, summarise, and write a report. Stopped or killed, the "
        "same command goes on where it was.",
    )
    _task_arguments(one)
    one.add_argument("--plans", default=PLANS, metavar="LIST", help=f"plans, see 'trainonce plans' ({PLANS})")
    one.add_argument("--seeds", type=_seed_list, default=3, help="how many, or which: 5, or 10,11,12 (3)")
    one.add_argument("--margin", type=_positive, help="acceptable loss in the metric, for the verdict (the task's own)")
    one.add_argument("--no-report", action="store_true", help=f"no {layout.REPORT} at the end")
    one.add_argument("--interactive", action="store_true", help="a report with plotly figures")
    one.set_defaults(command=compare)

    two = commands.add_parser("run", help="train a task once", description="Train a task once under one plan.")
    _task_arguments(two)
    two.add_argument("--plan", default="one-shot", help="how the weights are chosen (one-shot)")
    two.add_argument("--seed", type=_whole, default=0, help="(0)")
    two.set_defaults(command=run)

    three = commands.add_parser("report", help="write the report of a study", description=f"Write DIR/{layout.REPORT}.")
    three.add_argument("study", type=Path, metavar="DIR", help="the folder that was --out of trainonce compare")
    three.add_argument("--interactive", action="store_true", help="with plotly figures")
    three.set_defaults(command=report)

    four = commands.add_parser(
        "recipes", help="list the recipes, built-in and of installed packages, or the settings of one"
    )
    four.add_argument("name", nargs="?", metavar="NAME", help="a recipe, or a file as for 'run'")
    four.set_defaults(command=recipes)
    five = commands.add_parser("plans", help="list the ways to choose weights")
    five.set_defaults(command=plans_list)
    six = commands.add_parser("explain", help="say what a warning means and how to fix it, or list all warnings")
    six.add_argument("topic", nargs="?", metavar="TOPIC", help="as a warning names it: not-moving, or NotMoving")
    six.set_defaults(command=explain)
    return parser


def _task_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", metavar="TASK", help="a recipe, file.py, file.py:name or package.module:name")
    parser.add_argument("--steps", type=_count, help="optimizer steps of a training (the task's own)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="another setting of the task")
    parser.add_argument("--data-root", type=Path, metavar="DIR", help="where the data is, for tasks that read data")
    parser.add_argument("--out", type=Path, metavar="DIR", help="the study's folder (out/TASK, or out/TASK-run)")
    parser.add_argument(
        "--workers", type=_whole, help="trainings at a time; 0: in this process (one a core, at most 8, or one a GPU)"
    )
    parser.add_argument("--device", help="such as cpu or cuda:0 (all GPUs, or the CPU)")


def _seed_list(text: str) -> int | list[int]:
    return [_whole(part) for part in text.split(",")] if "," in text else _count(text)


def _count(text: str) -> int:
    value = _whole(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1; got {value}")
    return value


def _whole(text: str) -> int:
    if not text.strip().isdecimal():
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 0; got {text!r}")
    return int(text)


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number above 0; got {text!r}")
    return value


if __name__ == "__main__":
    sys.exit(main())
