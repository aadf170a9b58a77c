"""What gradient units cost: the time of a step that measures, and of one that does not, over a plain weighted sum.

    python benchmarks/units_cost.py                                  # small MLP and ResNet-18 on one CPU thread
    python benchmarks/units_cost.py --device cuda --models vit,mlp,resnet18

Steps that measure become rare: 143 of the first 10,000 with the default settings. So the cost of a run is that of its
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
from _methods import _adamw, static, training_step
from _models import MODELS, Problem, make
from _timing import Clock, Entry, paired, peak_of_step, run_rounds

import trainonce

if TYPE_CHECKING:
    from collections.abc import Callable

    Step = Callable[[], None]

STEPS = (300, 1_000, 10_000, 100_000)
NEVER = 10**12
WARM_UP = 20


def units(problem: Problem, *, shared: str, measured: bool) -> Step:
    """The training step in gradient units: every step measures, or none after the first."""
    names = [f"loss{i}" for i in range(problem.count)]
    chosen = trainonce.GradientUnits(shared=shared)  # type: ignore[arg-type]
    criterion = trainonce.CompositeLoss(names, units=chosen).to(problem.device)
    optimizer = _adamw(problem)
    trainonce.attach(optimizer, criterion)
    assert criterion.meter is not None

    def weigh(losses: list[torch.Tensor]) -> torch.Tensor:
        assert criterion.meter is not None
        if criterion.meter.steps > 0:
            criterion.meter.next = 0 if measured else NEVER
        return criterion(dict(zip(names, losses, strict=True)))

    return training_step(problem, optimizer, weigh)


METHODS: dict[str, Callable[[Problem], Step]] = {
    "static sum": static,
    "static sum again": static,
    "units": lambda problem: units(problem, shared="all", measured=False),
    "units, measured": lambda problem: units(problem, shared="all", measured=True),
    "units, measured at last": lambda problem: units(problem, shared="last", measured=True),
}


def measurements(steps: int) -> int:
    """How many steps of a run measure."""
    every, count, step = trainonce.GradientUnits().every, 0, 0
    while step < steps:
        count += 1
        step += max(1, -int(-every * step // 1))
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
    """The cost of a run of so many steps, as a ratio to the plain sum."""
    plain, measured = cell["units"][0], cell[place][0]
    return plain + (measured - plain) * measurements(steps) / steps


def show(cell: dict[str, Any]) -> None:
    print(f"\n{cell['model']}, {cell['losses']} losses, {cell['device']}: {cell['ms']:.2f} ms a step")
    for name in METHODS:
        if name in cell:
            ratio, low, high = cell[name]
            print(f"  {name:<26}{ratio:.3f}x [{low:.3f}, {high:.3f}]")
    for place in ("units, measured", "units, measured at last"):
        parts = [f"{steps:,} steps {total(cell, place, steps):.3f}x" for steps in STEPS]
        print(f"  a run, {place.removeprefix('units, '):<19}{', '.join(parts)}")


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
