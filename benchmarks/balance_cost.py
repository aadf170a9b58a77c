"""Measure what gradient balance costs: a step that measures, and one that does not, over a plain weighted sum.

    python benchmarks/balance_cost.py                                  # small MLP and ResNet-18 on one CPU thread
    python benchmarks/balance_cost.py --device cuda --models vit,mlp,resnet18

Steps that measure become rare: 140 of the first 10,000 with the default settings. So the cost of a run is that of its
steps without a measurement, plus what a measurement adds times how many there are. All methods of a cell run
interleaved, as in ``overhead.py``.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from _methods import NEVER, attached, names_of, static, training_step
from _models import MODELS, Problem, make
from _timing import Clock, Entry, paired, peak_of_step, run_rounds

import trainonce
from trainonce.balance import arithmetic

if TYPE_CHECKING:
    from collections.abc import Callable

    Step = Callable[[], None]

STEPS = (300, 1_000, 10_000, 100_000)
WARM_UP = 20


def balance(problem: Problem, *, at: str, measured: bool) -> Step:
    """Return the training step with a balance that every step measures, or none after the first."""
    criterion = trainonce.BalancedLoss(names_of(problem), at=at)  # type: ignore[arg-type]
    optimizer, weigh = attached(problem, criterion=criterion)

    def weigh_at_due(losses: list[torch.Tensor]) -> torch.Tensor:
        if criterion.step > 0:
            criterion.next = 0 if measured else NEVER
        return weigh(losses)

    return training_step(problem, optimizer, weigh_at_due)


METHODS: dict[str, Callable[[Problem], Step]] = {
    "static sum": static,
    "static sum again": static,
    "balance": lambda problem: balance(problem, at="all", measured=False),
    "balance, measured": lambda problem: balance(problem, at="all", measured=True),
    "balance, measured at last": lambda problem: balance(problem, at="last", measured=True),
}


def measurements(steps: int) -> int:
    """Return how many steps of a run measure."""
    count, step = 0, 0
    while step < steps:
        count, step = count + 1, arithmetic.next_measurement(step)
    return count


def measure_cell(model: str, losses: int, options: argparse.Namespace, clock: Clock) -> dict[str, Any]:
    problem = make(model, losses, clock.device, options.seed)
    entries = []
    for name, method in METHODS.items():
        entry = Entry(name, method(problem.fresh()))
        for _ in range(WARM_UP):
            entry.step()
        entry.peak = peak_of_step(entry.step, clock)
        entries.append(entry)
    run_rounds(entries, clock, options.seconds, random.Random(options.seed))
    base = entries[0]
    cell: dict[str, Any] = {"model": model, "losses": losses, "device": str(clock.device)}
    cell["ms"] = statistics.median(base.times.values()) * 1e3
    for entry in entries[1:]:
        ratio = paired(entry, base, lambda t, b: t / b)
        cell[entry.name] = [round(value, 4) for value in ratio]
        cell[f"{entry.name}, MiB"] = entry.peak
    return cell


def total(cell: dict[str, Any], place: str, steps: int) -> float:
    """Return the cost of a run of so many steps, as a ratio to the plain sum."""
    plain, measured = cell["balance"][0], cell[place][0]
    return plain + (measured - plain) * measurements(steps) / steps


def show(cell: dict[str, Any]) -> None:
    print(f"\n{cell['model']}, {cell['losses']} losses, {cell['device']}: {cell['ms']:.2f} ms a step")
    for name in METHODS:
        if name in cell:
            ratio, low, high = cell[name]
            print(f"  {name:<26}{ratio:.3f}x [{low:.3f}, {high:.3f}]")
    for place in ("balance, measured", "balance, measured at last"):
        parts = [f"{steps:,} steps {total(cell, place, steps):.3f}x" for steps in STEPS]
        print(f"  a run, {place.removeprefix('balance, '):<19}{', '.join(parts)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--models", default="mlp,resnet18", help=f"of {', '.join(MODELS)}")
    parser.add_argument("--losses", default="3", help="how many, such as 2,3,8")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each cell (20)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="a file of JSON lines to add the cells to")
    options = parser.parse_args()
    torch.set_num_threads(1)
    clock = Clock(torch.device(options.device))
    for model in options.models.split(","):
        for losses in map(int, options.losses.split(",")):
            cell = measure_cell(model, losses, options, clock)
            show(cell)
            if options.out:
                with options.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(cell) + "\n")


if __name__ == "__main__":
    main()
