"""What each command does that trains nothing: a function from the parsed arguments to the exit code."""

from __future__ import annotations

import shutil
import sys
import textwrap
from typing import TYPE_CHECKING

from trainonce.cli.problem import Problem
from trainonce.cli.task_argument import describe, load_task
from trainonce.recipes import BrokenRecipeError
from trainonce.study import layout

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from pathlib import Path

    from trainonce.study import Summary


def report(asked: argparse.Namespace) -> int:
    check_study(asked.study)
    if asked.drop:
        drop(asked.study, asked.drop)
    write_report(asked.study)
    return 0


def summary(asked: argparse.Namespace) -> int:
    check_study(asked.study)
    from trainonce.study import Summary

    if asked.table is not None and asked.table.suffix != ".csv":
        raise Problem(f"A table is written to a file that ends in .csv; got {asked.table}.")
    found = Summary.read(asked.study)
    if asked.table is None:
        print_summary(found)
        return 0
    found.to_csv(asked.table)
    print(f"{len(found.trials):,} trials: {asked.table}")
    return 0


def clean(asked: argparse.Namespace) -> int:
    check_study(asked.study)
    from trainonce.study.store import Store, workers

    store, count, size = Store(asked.study), 0, 0
    if workers.running(store.path / layout.WORKERS):
        raise Problem(f"The study in {asked.study} is running, and its paused trainings may go on: clean it later.")
    for key, record in store.read().items():
        path, trainer = (store.folder(key) / name for name in (layout.CHECKPOINT, layout.TRAINER))
        with store.claim(key) as free:
            if free and record.status == "paused" and path.is_file():
                files = [path, *(found for found in trainer.rglob("*") if found.is_file())]
                count, size = count + 1, size + sum(file.stat().st_size for file in files)
                path.unlink()
                shutil.rmtree(trainer, ignore_errors=True)
    found = f"{count} snapshot{'s' * (count != 1)} of paused trainings deleted, {size / 1e6:.1f} MB."
    print(found if count else "No paused training has a snapshot.")
    return 0


def print_summary(summary: Summary) -> None:
    """Print the table, the answer and the evidence for it."""
    from trainonce.report import text

    print(f"\n{text(summary)}\n")


def recipes(asked: argparse.Namespace) -> int:
    from trainonce.recipes import load, names

    if asked.name is not None:
        print(describe(load_task(asked.name)))
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


def list_plans(asked: argparse.Namespace) -> int:
    from trainonce.study import plans

    width = max(map(len, plans.PLANS)) + 2
    print(f"{'':<{width}}  trainings")
    for kind, title in plans.KINDS.items():
        print(title)
        for name, plan in plans.PLANS.items():
            if plan.kind == kind:
                print(_fill(f"{f'  {name}':<{width}}  {plan.trainings:>9}  {plans.description(plan)}", width + 13))
        print()
    print(_fill("Trainings are for each seed; a task has K+1 terms. Controls need a run of another seed besides."))
    print(
        _fill("A rule of your own is a plan, too: my_rules.py:GradNorm(alpha=1.5), a class derived from LossWeighting.")
    )
    print("Settings follow a colon: --plans yoto:init=1,decay=2 grid:0.1,1,10 tpe:trials=30")
    print("or stand in brackets:    --plans 'yoto(init=1,decay=2),grid(0.1,1,10),tpe(trials=30)'")
    return 0


def _fill(text: str, indent: int = 0) -> str:
    return textwrap.fill(text, 100, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)


def explain(asked: argparse.Namespace) -> int:
    from trainonce.cli import explain as topics

    if asked.topic is None:
        print(topics.overview())
        return 0
    topic = topics.find(asked.topic)
    if topic is None:
        print(topics.unknown_topic(asked.topic), file=sys.stderr)
        return 2
    topics.show(topic)
    return 0


def write_report(folder: Path, page: bool = True) -> None:
    """Write the files of a report, or only those that hold the numbers."""
    from trainonce.report import write, write_data

    if page:
        write(folder)
        print(f"Report: {folder / layout.REPORT}")
    else:
        write_data(folder)


def drop(folder: Path, texts: Sequence[str]) -> None:
    """Take plans out of the study in a folder."""
    from trainonce.study.store import Store
    from trainonce.study.study import drop_plans

    names = dropped_names(texts)
    drop_plans(Store(folder), names)
    print(f"Dropped from {folder}: {', '.join(names)}. Their trials are kept.")


def show_drop(folder: Path, texts: Sequence[str]) -> None:
    """What :func:`drop` would do: for a dry run."""
    from trainonce.study.store import Store
    from trainonce.study.study import plans_without

    store, names = Store(folder, writable=False), dropped_names(texts)
    count = len(plans_without(store.read_manifest() or {"plans": []}, names, store))
    print(f"{', '.join(names)} would be dropped from {folder}, which has {count} other plan{'s' * (count != 1)}.")


def dropped_names(texts: Sequence[str]) -> list[str]:
    from trainonce.study import plans

    return [plans.name_of(text) for argument in texts for text in plans.separate(argument)]


def check_study(folder: Path) -> None:
    if not (folder / layout.MANIFEST).is_file():
        raise Problem(f"There is no study in {folder}: give the folder that was --out of trainonce compare.")
