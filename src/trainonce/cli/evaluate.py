"""The command ``evaluate``: the network of a trial that kept it, on the task's sets, with pictures and predictions."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from trainonce.cli.problem import Problem
from trainonce.cli.settings_argument import with_settings
from trainonce.cli.task_argument import load_task
from trainonce.study import layout
from trainonce.text import display_width

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from trainonce.study import Record, Summary, Task


def evaluate(asked: argparse.Namespace) -> int:
    from trainonce.study import kept  # which imports torch

    summary, key = kept.study_of(asked.folder)
    task = _task(asked, summary)
    if task.evaluate is None:
        raise Problem(f"The task {task.name!r} cannot evaluate a kept network: its @task has no evaluate=.")
    if key is not None and (asked.plan, asked.seed, asked.choose) != (None, None, None):
        raise Problem(f"{asked.folder} is one trial: --plan, --seed and --choose are for the folder of a study.")
    if key is not None:
        record = kept.of_key(summary, key)
    else:
        from trainonce.study import plans

        name = None if asked.plan is None else plans.name_of(asked.plan)
        record = kept.choose(summary, name, asked.seed, asked.choose)
    trained = task.using(**kept.settings_of(summary, task))
    task = with_settings(trained, asked)
    folder = asked.folder if key is not None else asked.folder / layout.TRIALS / record.key
    if not (folder / layout.NETWORK).is_file():
        raise Problem(f"The trial {folder} has no {layout.NETWORK}. {kept.KEEP}")
    plan, label = record.rule.plan, record.rule.label
    rule = label if label.startswith(plan) else f"{plan}, {label}"
    print(f"{task.name}: {rule}, seed {record.seed}, {folder / layout.NETWORK}")
    if changed := _changes(trained, task):
        print(f"With other settings than in training: {changed}")
    with Progress() as progress:
        given = kept.KeptTrial(folder, record.seed, _device(asked.device), asked.pictures, asked.export, progress)
        assert task.evaluate is not None
        found = task.evaluate(given, **task.settings)
    _print(found, record, task)
    for what, where in (("Pictures", asked.pictures), ("Predictions", asked.export)):
        if where is not None:
            print(f"{what}: {where}")
    return 0


def _task(asked: argparse.Namespace, summary: Summary) -> Task:
    """The task of a study: a recipe by its name, or what ``--task`` names."""
    from trainonce.recipes import names

    wanted = summary.task.name
    if asked.task is None and wanted not in names():
        raise Problem(f"{asked.folder} is of the task {wanted!r}, which is no recipe: name its file with --task.")
    task = load_task(wanted if asked.task is None else asked.task)
    if task.name != wanted:
        raise Problem(f"{asked.folder} is of the task {wanted!r}; --task {asked.task} is {task.name!r}.")
    return task


def _device(name: str | None) -> Any:
    import torch

    return torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))


def _changes(trained: Task, asked: Task) -> str:
    """The settings that results depend on and that are not those of the training."""
    changed = {
        name: (value, asked.settings[name])
        for name, value in trained.settings.items()
        if name not in trained.incidental and asked.settings[name] != value
    }
    return ", ".join(f"{name}={new!r} for {old!r}" for name, (old, new) in changed.items())


def _print(found: Mapping[str, float], record: Record, task: Task) -> None:
    """The metrics, beside those that the training has recorded."""
    wide = 2 + max(20, *map(display_width, found))
    print(f"{'':{wide}}{'evaluated':>12}{'recorded':>12}")
    for name, value in found.items():
        unit = task.unit if name.rpartition("/")[2] == task.metric else ""
        before = f"{record.metrics[name]:.5g}" if name in record.metrics else ""
        print(f"{name}{' ' * (wide - display_width(name))}{value:>12.5g}{before:>12} {unit}".rstrip())


class Progress:
    """A line on a terminal that says how far something is, gone when it ends; elsewhere nothing."""

    def __init__(self) -> None:
        self._shown, self._wide, self._on = 0.0, 0, sys.stderr.isatty()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self._write("")

    def __call__(self, done: int, total: int, what: str) -> None:
        if self._on and time.monotonic() - self._shown > 0.2:
            self._shown = time.monotonic()
            self._write(f"  {what}: {done:,} of {total:,}")

    def _write(self, text: str) -> None:
        if self._wide or text:
            print(f"\r{text:{self._wide}}\r" + text, end="", file=sys.stderr, flush=True)
            self._wide = len(text)
