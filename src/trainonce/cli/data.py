"""The commands ``data make`` and ``data check``: made-up data in the layouts a task reads, and a look at one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainonce.cli.evaluate import Progress
from trainonce.cli.problem import Problem
from trainonce.cli.settings_argument import with_settings
from trainonce.cli.task_argument import load_task
from trainonce.text import did_you_mean, quoted

if TYPE_CHECKING:
    import argparse


def make(asked: argparse.Namespace) -> int:
    task = load_task(asked.task)
    if not task.make_data:
        raise Problem(f"The task {task.name!r} makes no data: its @task has no make_data=.")
    layout = asked.layout or next(iter(task.make_data))
    if layout not in task.make_data:
        known = f"{task.name} reads the layouts {quoted(list(task.make_data))}"
        raise Problem(f"{known}; got {layout!r}.{did_you_mean(layout, task.make_data)}")
    folder = asked.folder
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Problem(f"Made-up data goes to a new or empty folder; {folder} is neither. Name another.")
    folder.mkdir(parents=True, exist_ok=True)
    options = task.make_data[layout](folder, asked.size)
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    count = f"{len(sizes):,} file{'s' * (len(sizes) != 1)}"
    print(f"{task.name}, layout {layout}: {count}, {sum(sizes) / 1e6:.3g} MB, in {folder}.")
    if task.check_data is not None:
        print(f"Next: trainonce data check {asked.task} --data-root {folder}{f' {options}' if options else ''}")
    return 0


def check(asked: argparse.Namespace) -> int:
    task = with_settings(load_task(asked.task), asked)
    if task.check_data is None:
        raise Problem(f"The task {task.name!r} has no data to check: its @task has no check_data=.")
    with Progress() as progress:
        found = task.check_data(progress, **task.settings)
    wide = 2 + max(map(len, found), default=0)
    for name, text in found.items():
        print(f"{name:<{wide}}{text}")
    return 0
