"""The arguments of each command, and the types they are read as."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

import trainonce
from trainonce.cli import commands, data, evaluate, training
from trainonce.cli.argument_types import count, image_size, option_type, positive, seed_list, whole
from trainonce.cli.request import PLANS
from trainonce.recipes import RECIPES
from trainonce.study import layout
from trainonce.study.cost import LIMIT
from trainonce.study.executors.options import OPTIONS, TAKES

if TYPE_CHECKING:
    from collections.abc import Sequence


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="trainonce",
        description="Learn loss weights in one training run, and see how that compares with searching for them.",
    )
    parser.add_argument("--version", action="version", version=f"trainonce {trainonce.__version__}")
    subparsers = parser.add_subparsers(metavar="COMMAND")
    parser.set_defaults(command=lambda asked: _print_help(parser))
    one = subparsers.add_parser(
        "compare",
        help="train a task under several plans and seeds, and report",
        description="Train a task under several plans and seeds, summarise, and write a report. Stopped or killed, the "
        "same command goes on where it was. Given again beside it, on any machine that sees the folder, it shares the "
        "work.",
    )
    _task_arguments(one, ", or a study file: study.toml")
    default = f"(default: {' '.join(PLANS)})"
    one.add_argument(
        "--plans",
        action="extend",
        nargs="+",
        metavar="PLAN",
        help="such as yoto grid:0.1,1,10, or separated by commas; or my_rules.py:GradNorm; see 'trainonce plans' "
        + default,
    )
    one.add_argument("--seeds", type=seed_list, help="how many, or which: 5, or 0-4, or 10,11,12 (default: 3)")
    one.add_argument(
        "--margin", type=positive, help="acceptable loss in the metric, for the verdict (default: the task's)"
    )
    one.add_argument("--dry-run", action="store_true", help="show the trials and what they cost, and do nothing")
    one.add_argument("--yes", action="store_true", help=f"do not ask before more than {LIMIT:,} trials or a day")
    one.add_argument(
        "--keep-going", action="store_true", help="go on where the first trials have all failed in the same way"
    )
    one.add_argument(
        "--no-wait",
        action="store_true",
        help="end when nothing is left to take, and let other workers of the study end what they train",
    )
    _drop_argument(one)
    one.add_argument("--no-report", action="store_true", help=f"no {layout.REPORT} at the end")
    one.set_defaults(command=training.compare)

    two = subparsers.add_parser("run", help="train a task once", description="Train a task once under one plan.")
    _task_arguments(two)
    two.add_argument("--plan", default="yoto", help="how the coefficients come about (default: yoto)")
    two.add_argument("--seed", type=whole, default=0, help="the seed of the training (default: 0)")
    two.set_defaults(command=training.run)

    kept = subparsers.add_parser(
        "evaluate",
        help="evaluate a network that a training kept, and predict with it",
        description=f"Load the {layout.NETWORK} of a trial, print the metrics of the task's sets beside those of its "
        "training, and write pictures and predictions where they are asked for.",
    )
    kept.add_argument("folder", type=Path, metavar="DIR", help="the folder of a study, or of one of its trials")
    kept.add_argument("--plan", help="whose training, of a study with several; of a grid the point that is reported")
    which = kept.add_mutually_exclusive_group()
    which.add_argument("--seed", type=whole, help="of which training, where several seeds were kept")
    which.add_argument("--choose", choices=("median", "worst", "best"), help="that seed, by the metric that selects")
    kept.add_argument("--task", help="the task, where it is no recipe: file.py or file.py:name")
    kept.add_argument("--pictures", type=Path, metavar="OUT", help="write pictures of predictions to this folder")
    kept.add_argument("--export", type=Path, metavar="OUT", help="write predictions as files to this folder")
    kept.add_argument("--device", help="such as cpu or cuda:0 (default: the first GPU, or the CPU)")
    _setting_arguments(kept)
    kept.set_defaults(command=evaluate.evaluate)

    files = subparsers.add_parser(
        "data",
        help="check the data of a task, or make some up",
        description="Check the data of a task or make some up.",
    )
    files.set_defaults(command=lambda asked: _print_help(files))
    actions = files.add_subparsers(metavar="ACTION")
    make = actions.add_parser(
        "make",
        help="write made-up data in a layout that a task reads",
        description="Write a little made-up data in a layout that a task reads, to try its commands with.",
    )
    make.add_argument("task", metavar="TASK", help="a recipe, or a file as for 'run'")
    make.add_argument("folder", type=Path, metavar="DIR", help="a new or empty folder")
    make.add_argument("--layout", metavar="NAME", help="such as hdf5 or folder (default: the task's first)")
    make.add_argument("--size", type=image_size, metavar="H,W", help="of the images, in pixels (default: tiny)")
    make.set_defaults(command=data.make)
    check = actions.add_parser(
        "check",
        help="read the data of a task as training would, and say what is there",
        description="Read the data of a task as the check before a training does. Print a line for each set, or what "
        "is wrong.",
    )
    check.add_argument("task", metavar="TASK", help="a recipe, or a file as for 'run'")
    _setting_arguments(check)
    check.set_defaults(command=data.check)

    summary = subparsers.add_parser(
        "summary",
        help="print the table of a study, or write it to a file",
        description="Print the table of a study and what it says, as at the end of compare.",
    )
    summary.add_argument("study", type=Path, metavar="DIR", help="the folder that was --out of trainonce compare")
    summary.add_argument("--table", type=Path, metavar="FILE", help="write a row for each trial instead, to FILE.csv")
    summary.set_defaults(command=commands.summary)

    three = subparsers.add_parser(
        "report", help="write the report of a study", description=f"Write DIR/{layout.REPORT}."
    )
    three.add_argument("study", type=Path, metavar="DIR", help="the folder that was --out of trainonce compare")
    _drop_argument(three)
    three.set_defaults(command=commands.report)

    old = subparsers.add_parser(
        "clean",
        help="delete the snapshots of paused trainings",
        description="Delete the snapshots of trainings that a plan has paused and that nobody trains now. Their "
        "results stay; asked for again, they begin anew.",
    )
    old.add_argument("study", type=Path, metavar="DIR", help="the folder that was --out of trainonce compare")
    old.set_defaults(command=commands.clean)

    four = subparsers.add_parser(
        "recipes",
        help="list ready-made tasks, or the settings of one",
        description="List ready-made tasks, built-in and of installed packages, or the settings of one.",
    )
    four.add_argument("name", nargs="?", metavar="NAME", help="a recipe, or a file as for 'run'")
    four.set_defaults(command=commands.recipes)
    five = subparsers.add_parser("plans", help="list the ways to choose weights, with their papers and what they cost")
    five.set_defaults(command=commands.list_plans)
    six = subparsers.add_parser(
        "explain",
        help="explain a warning and how to fix it, or list all warnings",
        description="Print what a warning means and how to fix it. Without a topic: list all warnings.",
    )
    six.add_argument("topic", nargs="?", metavar="TOPIC", help="as a warning names it: not-attached, or NotAttached")
    six.set_defaults(command=commands.explain)
    return parser


def _drop_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--drop",
        action="append",
        default=[],
        metavar="PLAN",
        help="take a plan out of the study; its trials stay in the folder",
    )


def put_task_first(arguments: Sequence[str]) -> list[str]:
    """The arguments with a task that ends a list of ``--plans`` before it, where argparse takes it for one more plan.

    >>> put_task_first(["compare", "--plans", "yoto", "digits", "--seeds", "2"])
    ['compare', 'digits', '--plans', 'yoto', '--seeds', '2']
    """
    found = list(arguments)
    if found[:1] != ["compare"] or not found[1:2] or not found[1].startswith("-"):
        return found
    for start in (i + 1 for i, option in enumerate(found) if len(option) > 2 and "--plans".startswith(option)):
        end = next((i for i in range(start, len(found)) if found[i].startswith("--")), len(found))
        if end - start > 1 and _looks_like_a_task(found[end - 1]):
            return ["compare", found[end - 1], *found[1 : end - 1], *found[end:]]
    return found


def _looks_like_a_task(text: str) -> bool:
    return text in RECIPES or re.search(r"\.(py|toml)$|\.\w+:[a-z_]\w*$", text) is not None  # rules are classes


def _print_help(parser: argparse.ArgumentParser) -> int:
    parser.print_help()
    return 0


def _task_arguments(parser: argparse.ArgumentParser, more: str = "") -> None:
    parser.add_argument("task", metavar="TASK", help=f"a recipe, file.py, file.py:name or package.module:name{more}")
    _setting_arguments(parser)
    parser.add_argument("--steps", type=count, help="optimizer steps of a training (default: the task's)")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="the study's folder (default: out/TASK or out/TASK-run)"
    )
    parser.add_argument(
        "--workers",
        type=whole,
        help="trainings at a time, 0 for in this process (default: one per GPU, or one per core and at most 8)",
    )
    parser.add_argument("--device", help="such as cpu or cuda:0 (default: all GPUs, or the CPU)")
    _executor_arguments(parser)


def _setting_arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(file_settings={}, steps=None, executor=None)  # what only some commands set
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="another setting of the task, such as lr=0.1 or augment=no",
    )
    parser.add_argument(
        "--preset",
        metavar="NAME",
        help="settings that belong together, of which --set may change some; see 'trainonce recipes NAME'",
    )
    parser.add_argument("--data-root", type=Path, metavar="DIR", help="where the data is, for tasks that read data")


def _executor_arguments(parser: argparse.ArgumentParser) -> None:
    known = ", ".join(["processes", "stacked", *TAKES])
    parser.add_argument("--executor", metavar="NAME", help=f"what runs the trainings: {known} (default: processes)")
    group = parser.add_argument_group("on a Ray cluster")
    group.add_argument("--ranks", type=count, default=1, help="processes of one training (default: 1)")
    for name, option in OPTIONS.items():
        group.add_argument(_spelling(name), type=option_type(name), help=option.about)


def _spelling(name: str) -> str:
    return "--" + name.replace("_", "-")
