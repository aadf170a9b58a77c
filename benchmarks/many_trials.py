"""What the commands of a study cost when it holds very many trials: 5,000 of them, with 1,000 history rows each.

    python benchmarks/many_trials.py                      # make three such folders, run each command, print a table
    python benchmarks/many_trials.py --shape grid --keep DIR

Nothing is trained: records and histories are written through the library's own store and ``History``. Then
``trainonce compare``, which finds nothing to do, ``trainonce summary`` and ``trainonce report`` run as a user calls
them, each in a process of its own, with a warm file cache. On a machine that does something else, too, the CPU time is
what to compare. Memory is the process's peak; Linux counts this process's own, some 300 MB, as the least.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import torch

import trainonce
from trainonce.cli import load_task
from trainonce.history import column_names
from trainonce.study import Record, Study, layout, schedule
from trainonce.study.record import versions

TERMS = ("ce", "smooth", "edge", "norm")
VARIANTS = 100  # different histories; each trial has a copy of one
TASK = f'''"""A task that is never trained: its results are in the folder."""

from trainonce.study import task


@task(terms={TERMS}, metric="accuracy", direction="maximize", margin=0.5)
def many(trial, *, steps=1000, lr=0.1):
    """Nothing."""
    raise RuntimeError("Everything was to be in the folder.")
'''


class Shape(NamedTuple):
    """The plans of a study, and how many seeds each has."""

    plans: list[str]
    seeds: int


def shapes(trials: int) -> dict[str, Shape]:
    """Return studies of about so many trials: many plans, a large grid, and the paper's rule with its controls."""
    seeds = max(2, trials // 40)
    fixed = [f"fixed(1,{0.1 * i:.1f},1,{0.2 * i:.1f})" for i in range(1, 34)]
    learned = [f"yoto(init={init:g})" for init in (0.02, 0.5, 1.0)]
    side = max(2, round((trials / 5) ** (1 / 3)))
    axis = ",".join(f"{10 ** (4 * i / (side - 1) - 2):.4g}" for i in range(side))
    inits, decays, rates = (
        (",".join(f"{f * 1.4**i:.3g}" for i in range(n))) for f, n in ((0.01, 13), (0.03, 12), (0.001, 12))
    )
    return {
        "plans": Shape(["yoto", *learned, "grid(0.5)", "uniform", "base", *fixed], seeds),
        "grid": Shape(["yoto", f"grid({axis})"], 5),
        "yoto": Shape(
            ["yoto", f"sweep-init({inits})", f"sweep-decay({decays})", f"sweep-lr({rates})", "replay", "final"],
            seeds,
        ),
    }


def make(folder: Path, shape: Shape, rows: int) -> int:
    """Write a complete study into a folder and return how many trials it has."""
    folder.mkdir(parents=True)
    (folder / "task.py").write_text(TASK)
    plans = ", ".join(f"'{plan}'" for plan in shape.plans)
    (folder / "study.toml").write_text(f"task = 'task.py'\nplans = [{plans}]\nseeds = {shape.seeds}\nout = 'study'\n")
    study = Study(load_task(str(folder / "task.py")), folder / "study", seeds=shape.seeds)
    for plan in shape.plans:
        study.add(plan)
    study.store.write_manifest(study._manifest())
    variants = {kind: write_histories(folder / f"{kind}-histories", kind, rows) for kind in ("yoto", "fixed")}
    everything = {key: item for item in study.items() for key in item.keys}
    for number, (key, item) in enumerate(everything.items()):
        kind = "yoto" if item.rule is not None and item.rule.trains else "fixed"
        home = study.store.folder(key)
        home.mkdir(parents=True)
        shutil.copyfile(variants[kind][number % VARIANTS], home / layout.HISTORY)
        study.store.append(record(key, item, number, rows))
    for paths in variants.values():
        shutil.rmtree(paths[0].parent)
    return len(everything)


def write_histories(folder: Path, kind: str, rows: int) -> list[Path]:
    """Write some histories, with losses that fall and, of the paper's rule, exponents that move."""
    found = []
    for variant in range(VARIANTS):
        generator = torch.Generator().manual_seed(variant)
        steps = torch.arange(rows, dtype=torch.float32)[:, None] / rows
        criterion = trainonce.CompositeLoss(TERMS) if kind == "yoto" else trainonce.FixedLoss(dict.fromkeys(TERMS, 1.0))
        history = trainonce.History(folder / f"{variant}.jsonl", block=rows)
        history.begin(criterion.terms, column_names(criterion))
        speed = 1 + 4 * torch.rand(1, len(TERMS), generator=generator)
        losses = torch.exp(-speed * steps) * (1 + 0.1 * torch.randn(rows, len(TERMS), generator=generator)).abs()
        moved = steps * torch.randn(1, len(TERMS) - 1, generator=generator) * (kind == "yoto")
        weights = torch.softmax(torch.cat([torch.zeros(rows, 1), moved], 1), 1)
        drives = 0.001 * torch.randn(rows, 2 * (len(TERMS) - 1), generator=generator)
        trained = [moved, drives, torch.full((rows, 1), 0.1)] if kind == "yoto" else []
        history.extend(torch.cat([losses, weights, *trained, torch.zeros(rows, 1)], 1))
        found.append(folder / f"{variant}.jsonl")
    return found


def record(key: str, item: schedule.Item, number: int, rows: int) -> Record:
    """The record of a trial that is complete."""
    assert item.rule is not None
    noise = math.sin(12.9898 * number) % 1
    share = item.rule.coefficients or (0.4, 0.3, 0.2, 0.1)
    quality = 90 - 3 * abs(math.log(0.01 + share[0])) + noise
    reports = [
        (step, {"accuracy": quality * (1 - math.exp(-5 * step / rows))})
        for step in range(rows // 10, rows + 1, rows // 10)
    ]
    return Record(
        key,
        "many",
        item.rule,
        item.seed,
        "done",
        {"validation/accuracy": quality + noise, "test/accuracy": quality},
        reports,
        share,
        seconds=12.3,
        ended=1.7e9 + number,
        versions=versions(),
    )


class Cost(NamedTuple):
    """What a command took."""

    seconds: float
    cpu: float
    megabytes: float


def measure(arguments: list[str], folder: Path) -> Cost:
    """Run the command in a process of its own; raises if it fails."""
    start = time.perf_counter()
    with (folder / "output.txt").open("ab") as output:
        process = subprocess.Popen([sys.executable, "-m", "trainonce", *arguments], stdout=output, stderr=output)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"trainonce {' '.join(arguments)} failed:\n{(folder / 'output.txt').read_text()[-2000:]}")
    return Cost(time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, default=5000)
    parser.add_argument("--rows", type=int, default=1000, help="of each history")
    parser.add_argument("--shape", action="append", choices=list(shapes(5000)), help="(default: all)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the folders, and use those that are there")
    asked = parser.parse_args()
    root = Path(tempfile.mkdtemp()) if asked.keep is None else asked.keep
    print("| study | trials | command | seconds | of CPU | peak memory, MB | page, MB |\n|---|---|---|---|---|---|---|")
    try:
        for name in asked.shape or shapes(asked.trials):
            folder = root / name
            if not folder.is_dir():
                make(folder, shapes(asked.trials)[name], asked.rows)
            out = folder / "study"
            count = len((out / layout.RECORDS).read_bytes().splitlines())
            commands = {
                "compare": ["compare", str(folder / "study.toml"), "--yes", "--no-report"],
                "compare, with the report": ["compare", str(folder / "study.toml"), "--yes"],
                "summary": ["summary", str(out)],
                "report": ["report", str(out)],
            }
            for title, arguments in commands.items():
                cost = measure(arguments, folder)
                page = f"{(out / layout.REPORT).stat().st_size / 1e6:.1f}" if "report" in title else ""
                numbers = f"{cost.seconds:.1f} | {cost.cpu:.1f} | {cost.megabytes:.0f}"
                print(f"| {name} | {count:,} | {title} | {numbers} | {page} |", flush=True)
    finally:
        if asked.keep is None:
            shutil.rmtree(root)


if __name__ == "__main__":
    main()
