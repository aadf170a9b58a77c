"""What each command does: a function from the parsed arguments to the exit code."""

from __future__ import annotations

import sys
import textwrap
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from trainonce.cli.problem import Problem
from trainonce.cli.settings_argument import with_settings
from trainonce.cli.task_argument import describe, load_task
from trainonce.extras import require
from trainonce.recipes import BrokenRecipeError
from trainonce.study import layout
from trainonce.text import display_width

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from trainonce.study import Study, Summary

#: The plans of a comparison that names none.
PLANS = ("one-shot", "grid", "uniform", "base", "final", "replay")


def compare(asked: argparse.Namespace) -> int:
    study = _study(asked, asked.plans or PLANS, asked.seeds)
    count = len({key for item in study.items() for key in item.keys})
    task, out = study.task, study.store.shown
    names = ", ".join(plan.name for plan in study.plans)
    print(f"{task.name}: {task.about}")
    print(textwrap.fill(f"{count} trials: {names}; {_seeds(study)}. Results go to {out}.", 100))
    if study.changes and study.store.read():
        what = ", ".join(study.changes)
        print(textwrap.fill(f"Changed since the last run: {what}. Earlier trials are kept, and not used.", 100))
    summary = study.run(workers=asked.workers, device=asked.device, report=False)
    _print_summary(summary)
    if warned := _warnings(study):
        print(warned)
    if not asked.no_report:
        _write_report(out, asked.interactive)
    return _failures(study)


def run(asked: argparse.Namespace) -> int:
    study = _study(asked, [asked.plan], [asked.seed], "-run")
    if len(study.plans) != 1 or len(study.plans[0].weightings) != 1:
        raise Problem(f"trainonce run trains once: {asked.plan!r} is more than one training. Use trainonce compare.")
    task = study.task
    print(f"{task.name}: {task.about}")
    study.run(workers=asked.workers, device=asked.device, report=False)
    from trainonce.study import sentences
    from trainonce.study.schedule import left_out

    (key,) = study.items()[-1].keys
    records = study.store.read()
    if (why := left_out(study.items(), records).get(key)) is not None:
        raise Problem(f"The plan {asked.plan!r} cannot be trained: {why}.")
    record = records.get(key)
    if record is not None and record.status != "failed":
        for name, value in record.metrics.items():
            unit = task.unit if name.rpartition("/")[2] == task.metric else ""
            print(f"{name}{' ' * (24 - display_width(name))} {value:.5g} {unit}".rstrip())
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

    width = max(map(len, plans.PLANS)) + 4
    for kind, title in plans.KINDS.items():
        print(title)
        for name, plan in plans.PLANS.items():
            if plan.kind == kind:
                print(textwrap.fill(f"{f'  {name}':<{width}}{plan.about}", 100, subsequent_indent=" " * width))
        print()
    print("Settings follow a colon: --plans one-shot:init=1,decay=2 grid:0.1,1,10 tpe:trials=30")
    print("or stand in brackets:    --plans 'one-shot(init=1,decay=2),grid(0.1,1,10),tpe(trials=30)'")
    return 0


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


# Parts of them


def _study(asked: argparse.Namespace, given: Sequence[str], seeds: int | list[int], suffix: str = "") -> Study:
    from trainonce.study import plans

    texts = [text for argument in given for text in plans.separate(argument)]
    if not texts:
        raise Problem(f"There is no plan to compare: name some, such as --plans {' '.join(PLANS[:3])}.")
    plans.check_names(texts)
    task = with_settings(load_task(asked.task), asked)
    if not getattr(asked, "no_report", True):
        _check_report(asked)
    plans.check_different([plans.parse(text, task) for text in texts])  # before a folder is made
    from trainonce.study import Study  # it imports torch: not for a mistake that can be found without

    study = Study(task, asked.out or Path("out") / f"{layout.default_folder(task.name)}{suffix}", seeds=seeds)
    if getattr(asked, "margin", None) is not None:
        study.margin = asked.margin
    for text in texts:
        study.add(text)
    return study


def _print_summary(summary: Summary) -> None:
    from trainonce.study import sentences

    print(f"\n{sentences.text_table(summary)}\n")
    texts = (sentences.sentence(summary), sentences.evidence(summary), sentences.details(summary))
    for text in filter(None, texts):
        print(textwrap.fill(text, 100) + "\n")


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
    require("matplotlib.figure", "matplotlib", "study")
    if asked.interactive:
        require("plotly", "plotly", "interactive")


def _warnings(study: Study) -> str:
    """What trials warned of, in a line, with how many did."""
    from trainonce.study.sentences import warning_kind

    keys = {key for item in study.items() for key in item.keys}
    warnings = [record.warnings for record in study.store.read().values() if record.key in keys]
    kinds = Counter(kind for texts in warnings for kind in {warning_kind(text) or text for text in texts})
    listed = ", ".join(f"{kind} ({count})" for kind, count in kinds.most_common())
    return textwrap.fill(f"Trials warned of: {listed}.", 100) + "\n" if listed else ""


def _failures(study: Study) -> int:
    from trainonce.study.schedule import left_out

    everything, records = study.items(), study.store.read()
    never = left_out(everything, records)
    labels = {key: item.label(key) for item in everything for key in item.keys if key not in never}
    failed = [r for r in records.values() if r.key in labels and r.status == "failed"]
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
