"""The commands that train: ``compare`` and ``run``."""

from __future__ import annotations

import re
import sys
import textwrap
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainonce.cli import cost_check
from trainonce.cli.commands import check_study, drop, dropped_names, print_summary, show_drop, write_report
from trainonce.cli.problem import Problem
from trainonce.cli.request import folder, read_request
from trainonce.cli.settings_argument import with_settings
from trainonce.cli.task_argument import load_task
from trainonce.errors import SameFailureError
from trainonce.extras import require
from trainonce.study import layout
from trainonce.study.executors.options import OPTIONS
from trainonce.text import display_width

if TYPE_CHECKING:
    import argparse

    from trainonce.cli.request import Request
    from trainonce.study import Study, Task


def compare(asked: argparse.Namespace) -> int:
    if asked.drop and not asked.plans:
        return _show_without(asked)
    seeds = list(range(asked.seeds or SEEDS)) if not isinstance(asked.seeds, list) else asked.seeds
    request = read_request(asked, asked.plans or None, seeds)
    _check_drop(asked, request)
    if not asked.no_report and not asked.dry_run:
        require("matplotlib.figure", "matplotlib", "study")  # before hours of training
    task, out = request.task, request.out
    workers = _workers(asked, task)
    if asked.dry_run:
        print(request.introduction)
        if asked.drop:
            show_drop(out, asked.drop)
        cost_check.show(request, workers)
        return 0
    if not asked.yes and not cost_check.confirm(request, workers):
        return 1
    study = request.open(asked.margin)
    if asked.drop:
        drop(out, asked.drop)
    count = len({key for item in study.items() for key in item.keys})
    names = ", ".join(plan.name for plan in study.plans)
    print(request.introduction)
    text = f"{count} trial{'s' if count != 1 else ''}: {names}; {request.described_seeds}. Results go to {out}."
    print(textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False))
    if study.changes and study.store.read():
        what = ", ".join(study.changes)
        print(textwrap.fill(f"Changed since the last run: {what}. Earlier trials are kept, and not used.", 100))
    try:
        summary = study.run(**_tools(asked), limit=None, keep_going=asked.keep_going, wait=not asked.no_wait)
    except SameFailureError:
        return _failures(study, HOPELESS)
    if study.elsewhere:
        return _failures(study)
    print_summary(summary)
    if warned := _warnings(study):
        print(warned)
    with study.store.lock_report():
        write_report(out, page=not asked.no_report)
    return _failures(study)


SEEDS = 3  # of a comparison that names none
HOPELESS = "All failed in the same way, so the study has stopped; --keep-going runs the other trials, too."


def run(asked: argparse.Namespace) -> int:
    request = read_request(asked, [asked.plan], [asked.seed], "-run")
    if len(request.plans) != 1 or len(request.plans[0].rules) != 1:
        raise Problem(f"trainonce run trains once: {asked.plan!r} is more than one training. Use trainonce compare.")
    task, study = request.task, request.open()
    print(request.introduction)
    study.run(**_tools(asked), limit=None)  # one training was asked for
    write_report(study.store.path, page=False)
    from trainonce.report.table import name_ratios
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
        print(f"ratios: {name_ratios(record.ratios, task.terms)}")
        for text in record.warnings[:WARNINGS]:
            print(textwrap.fill(f"It warned: {text}", 100))
        if len(record.warnings) > WARNINGS:
            print(f"and {len(record.warnings) - WARNINGS} more, in its record")
        print(f"Recorded in {study.store.shown / layout.TRIALS / record.key}")
    return _failures(study)


WARNINGS = 3  # that are shown of a run


def _show_without(asked: argparse.Namespace) -> int:
    """Drop plans from a study and show what is left of it, without any training."""
    from trainonce.study import Summary
    from trainonce.study.store import Store
    from trainonce.study.study import check_task

    task = with_settings(load_task(asked.task), asked)
    out = folder(asked, task)
    check_study(out)
    store = Store(out, writable=False)
    check_task(store.read_manifest() or {}, task, store)
    if asked.dry_run:
        show_drop(out, asked.drop)
        print("Nothing was trained or written.")
        return 0
    drop(out, asked.drop)
    print_summary(Summary.read(out))
    write_report(out, page=not asked.no_report)
    return 0


def _check_drop(asked: argparse.Namespace, request: Request) -> None:
    """Raise if there is nothing to drop plans from, or one of them is to be compared, too."""
    if not asked.drop:
        return
    check_study(request.out)
    dropped = dropped_names(asked.drop)
    if both := next((plan.name for plan in request.plans if plan.name in dropped), None):
        raise Problem(f"The plan {both!r} is both to be dropped and to be compared: leave one of them out.")


def _workers(asked: argparse.Namespace, task: Task) -> int:
    """How many trainings will run at a time."""
    from trainonce.study.executors.tools import Tools

    return Tools.choose(task, **_tools(asked)).workers


def _tools(asked: argparse.Namespace) -> dict[str, Any]:
    """What runs the trials, as the command line says it."""
    given = {name: value for name in OPTIONS if (value := getattr(asked, name)) is not None}
    return {"workers": asked.workers, "device": asked.device, "executor": asked.executor, "options": given}


def _warnings(study: Study) -> str:
    """What trials warned of, a line for each kind, with the plans and how many of their trials did."""
    from trainonce.report.trials import warning_kind

    plans = {key: item.plan for item in reversed(study.items()) for key in item.keys}
    records = [record for record in study.store.read().values() if record.key in plans]
    kinds = [(plans[r.key], kind) for r in records for kind in {warning_kind(text) or text for text in r.warnings}]
    counts = Counter(kinds).most_common()
    lines = [f"{n} trial{'s' * (n > 1)} of {plan} warned: {kind.rstrip('.')}." for (plan, kind), n in counts]
    return "".join(textwrap.fill(line, 100) + "\n" for line in lines)


def _failures(study: Study, more: str = "") -> int:
    from trainonce.study.schedule import left_out

    everything, records = study.items(), study.store.read()
    never = left_out(everything, records)
    labels = {key: item.label(key) for item in everything for key in item.keys if key not in never}
    failed = [r for r in records.values() if r.key in labels and r.status == "failed"]
    if not failed:
        return 0
    error = failed[0].error or {"type": "?", "message": "?", "traceback": ""}
    lines = _own_frames(error["traceback"])[-12:]
    last = f"{error['type']}: {error['message']}"
    lines += [] if lines and lines[-1] == last else ["", last] if lines else [last]
    count = f"{len(failed)} trial{'s' * (len(failed) > 1)} failed"
    print(f"\n{count}. The first, {labels[failed[0].key]}, seed {failed[0].seed}:\n", file=sys.stderr)
    print(textwrap.indent("\n".join(lines), "    "), file=sys.stderr)
    again = f"The same command runs failed trials again; logs are in {study.store.shown / layout.LOGS}."
    print("\n" + "\n".join(filter(None, (more, again))), file=sys.stderr)
    return 1


def _own_frames(traceback: str) -> list[str]:
    """The lines of a traceback without frames of installed files between the user's, but for the last one."""
    from trainonce.study.identity import is_own

    parts = re.split(r'^(?=  File ")', traceback.strip(), flags=re.MULTILINE)
    found = [re.match(r'  File "([^"\n]+)"', part) for part in parts]
    kept = [p for p, m in zip(parts[:-1], found, strict=False) if m is None or is_own(Path(m[1]))]
    return "".join([*kept, parts[-1]]).splitlines()
