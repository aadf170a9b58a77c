"""Run rules on tasks of the arena and keep one line a training; a command that was stopped goes on where it was.

python -m benchmarks.arena digits burgers --rules grid printed units --device cuda --graph --out arena.jsonl
python -m benchmarks.arena digits --explore variants.json --scale consistency=100 --out arena.jsonl
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from benchmarks.arena import points, records, searches
from benchmarks.arena.rules import Point
from benchmarks.arena.schedule import stacks_of
from benchmarks.arena.stack import Stack
from benchmarks.arena.variant import Variant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.arena.task import Task


def main(arguments: Sequence[str] | None = None) -> None:
    options = _read(arguments)
    for name in options.tasks:
        task = find(name, options.base)
        run(task, Variant(dict(options.scale), options.optimizer, options.lr, options.steps, task.base), options)


def find(name: str, base: str | None) -> Task:
    from benchmarks.arena import tasks

    return tasks.get(name, base)


def run(task: Task, variant: Variant, options: argparse.Namespace) -> None:
    """Everything that is asked of a task and has no record yet."""
    plain = [name for name in options.rules if name != "tpe"]
    wanted = [point for name in plain for point in points.named(name, len(task.terms) - 1)]
    wanted += [Point("units", settings) for settings in options.explore]
    done = {records.key(record) for record in records.read(options.out)}

    def missing(point: Point) -> tuple[int, ...]:
        return tuple(s for s in options.seeds if records.key(records.head(task.name, variant, point, s)) not in done)

    def make(some: Sequence[Point], seeds: Sequence[int]) -> Stack:
        return Stack(task, some, seeds, variant=variant, device=options.device, graph=options.graph)

    for some, seeds in stacks_of(wanted, missing, options.points):
        stack = make(some, seeds)
        result = stack.train(_say)
        records.append(options.out, records.of_stack(stack, result, variant))
        _say(f"{task.name}, {variant}: {len(some)} points, {len(seeds)} seeds in {result.seconds:.1f} s", end="\n")
        del stack
        gc.collect()  # a stack is part of reference cycles, and its memory is needed for the next
    if "tpe" in options.rules:
        seeds = missing(Point("tpe", {"trials": searches.TPE_TRIALS}))
        if seeds:
            records.append(options.out, searches.tpe(task, seeds, variant, lambda some: make(some, seeds)))
            _say(f"{task.name}, {variant}: tpe, {len(seeds)} seeds", end="\n")
    if "random" in options.rules:
        mine = [r for r in records.read(options.out) if (r["task"], r["variant"]) == (task.name, str(variant))]
        found = searches.from_random(mine, task.higher)
        records.append(options.out, [r for r in found if records.key(r) not in done])
    if "halving" in options.rules:
        mine = [r for r in records.read(options.out) if (r["task"], r["variant"]) == (task.name, str(variant))]
        for travel in points.HALVED:
            settings = {**searches.HALVING, "travel": travel}
            found = searches.from_units(mine, len(task.terms) - 1, task.higher, settings)
            records.append(options.out, [r for r in found if records.key(r) not in done])


def _read(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.arena", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tasks", nargs="+", metavar="TASK")
    parser.add_argument(
        "--rules", nargs="*", default=[], metavar="RULE", help=f"{', '.join(points.NAMES)}, tpe; or all"
    )
    parser.add_argument("--explore", type=_settings, default=[], metavar="FILE", help="settings of units, a JSON list")
    parser.add_argument("--seeds", type=_seeds, default=_seeds("0-4"), help="such as 0-4 or 0,3,5")
    parser.add_argument("--scale", type=_factor, nargs="*", default=[], metavar="TERM=FACTOR", help="multiply a loss")
    parser.add_argument("--optimizer", choices=["adam", "sgd"], default="adam")
    parser.add_argument("--lr", type=float, help="another learning rate than the task's")
    parser.add_argument("--steps", type=int, help="another length than the task's")
    parser.add_argument("--base", metavar="TERM", help="another base than the task's")
    parser.add_argument("--points", type=int, default=128, help="of a stack, at most (128)")
    parser.add_argument("--device", type=torch.device, default="cpu")
    parser.add_argument("--graph", action="store_true", help="run steps as CUDA graphs")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    options = parser.parse_args(arguments)
    if options.rules == ["all"]:
        options.rules = [*points.NAMES, "tpe"]
    return options


def _seeds(text: str) -> list[int]:
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def _factor(text: str) -> tuple[str, float]:
    term, _, factor = text.partition("=")
    return term, float(factor)


def _settings(path: str) -> list[dict[str, object]]:
    return list(json.loads(Path(path).read_text(encoding="utf-8")))


def _say(text: str, end: str = "") -> None:
    """Progress on one line of a terminal; elsewhere only what ends a line."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end=end, file=sys.stderr, flush=True)
    elif end:
        print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
