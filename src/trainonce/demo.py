"""``python -m trainonce.demo``: learned weights against a small grid of fixed ones, on handwritten digits.

Every point of the grid and the learned weights are trained by the same loop, on the same splits and seeds. Points are
chosen on the validation part and reported on the test part.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import multiprocessing
import os
import signal
import statistics
import sys
import textwrap
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

import trainonce
from trainonce.recipes import digits, require

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

# Chosen on the validation parts of seeds 100 to 102, which the demo does not use. The learning rate, shared by all
# plans: best of 0.001, 0.003, 0.01 with equal weights. init and decay: best of 0.1, 1 and of 2, 20.
STEPS, LR, INIT, DECAY = 300, 1e-2, 1.0, 2.0
RATIOS = (0.1, 1.0, 10.0)  # of each auxiliary weight to the base weight
COLOURS = ("#0072B2", "#D55E00", "#009E73")


class Plan(NamedTuple):
    """A way to set the weights: learned, or fixed in the given ratios to the base."""

    name: str
    ratios: tuple[float, ...] | None = None

    def criterion(self) -> trainonce.CompositeLoss:
        if self.ratios is None:
            return trainonce.CompositeLoss(digits.TERMS, init=INIT)
        return trainonce.FixedLoss(dict(zip(digits.TERMS, (1.0, *self.ratios), strict=True)))


class Trial(NamedTuple):
    """One training: its plan, its seed, accuracies in per cent, and the weights at some of its steps."""

    plan: Plan
    seed: int
    validation: float
    test: float
    at: list[int]
    weights: list[list[float]]
    seconds: float


class Summary(NamedTuple):
    """One plan over all seeds."""

    plan: Plan
    weights: list[float]
    validation: list[float]
    test: list[float]


def plans() -> list[Plan]:
    grid = itertools.product(RATIOS, repeat=len(digits.TERMS) - 1)
    return [Plan("learned"), *(Plan(" : ".join(f"{r:g}" for r in (1, *ratios)), ratios) for ratios in grid)]


def run(plan: Plan, seed: int, steps: int) -> Trial:
    """Train once."""
    criterion, history, start = plan.criterion(), trainonce.History(), time.perf_counter()
    found = digits.train(criterion, seed=seed, steps=steps, lr=LR, decay=DECAY, history=history)
    weights = [*history.weights().tolist(), criterion.weights.tolist()]
    at = sorted({*range(0, steps, math.ceil(steps / 150)), steps})
    seconds = time.perf_counter() - start
    return Trial(plan, seed, found["validation"], found["test"], at, [weights[i] for i in at], seconds)


def run_all(jobs: Sequence[tuple[Plan, int, int]], workers: int) -> Generator[Trial]:
    """The trials as they finish; with several workers in processes of one thread each."""
    if workers == 1:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield from itertools.starmap(run, jobs)
        finally:
            torch.set_num_threads(threads)
        return
    spawn = multiprocessing.get_context("spawn")  # forking a process that has torch's threads can hang
    with ProcessPoolExecutor(workers, mp_context=spawn, initializer=_start_worker) as pool:
        try:
            for done in as_completed([pool.submit(run, *job) for job in jobs]):
                yield done.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _start_worker() -> None:
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent alone answers it


# What came out


def summarise(trials: Iterable[Trial]) -> list[Summary]:
    """One summary a plan, seeds in order; the weights are the means of the last ones."""
    by_plan: dict[Plan, list[Trial]] = {}
    for trial in trials:
        by_plan.setdefault(trial.plan, []).append(trial)
    found = []
    for plan in plans():
        of_plan = sorted(by_plan[plan], key=lambda t: t.seed)
        weights = [statistics.fmean(column) for column in zip(*(t.weights[-1] for t in of_plan), strict=True)]
        found.append(Summary(plan, weights, [t.validation for t in of_plan], [t.test for t in of_plan]))
    return found


def chosen(summaries: Sequence[Summary]) -> Summary:
    """The grid point with the best mean on validation; the test part has no say."""
    return max((s for s in summaries if s.plan.ratios is not None), key=lambda s: statistics.fmean(s.validation))


def spread(values: Sequence[float]) -> str:
    """The mean and, with several seeds, the standard deviation."""
    mean = f"{statistics.fmean(values):.1f}"
    return mean if len(values) == 1 else f"{mean} +- {statistics.stdev(values):.1f}"


def sentence(summaries: Sequence[Summary]) -> str:
    """The answer, whichever way it went."""
    learned = next(s for s in summaries if s.plan.ratios is None)
    grid = [s for s in summaries if s.plan.ratios is not None]
    better = sum(statistics.fmean(s.test) > statistics.fmean(learned.test) for s in grid)
    return (
        f"One run with learned weights: {spread(learned.test)} % test accuracy; best of {len(grid)} grid points "
        f"(chosen on validation): {spread(chosen(summaries).test)} % at {len(grid)} times the cost; "
        f"{better} of the {len(grid)} points did better on test than the learned weights."
    )


def table(summaries: Sequence[Summary]) -> str:
    """One row a plan, at most 80 columns wide."""

    def row(name: str, weights: Sequence[object], validation: str, test: str, trainings: object) -> str:
        return f"{name:<20}" + "".join(f"{w:>7}" for w in weights) + f"{validation:>14}{test:>14}{trainings:>11}"

    best = chosen(summaries)
    grid = [s for s in summaries if s.plan.ratios is not None]
    lines = [row("weights", ("ce", "cons.", "rec."), "validation", "test", "trainings")]
    for s in summaries:
        name = "learned (last)" if s.plan.ratios is None else s.plan.name + (" *" if s is best else "")
        weights = [f"{w:.2f}" for w in s.weights]
        lines.append(row(name, weights, spread(s.validation), spread(s.test), len(s.test)))
    trainings = sum(len(s.test) for s in grid)
    lines.append(row("* best of the grid", ("", "", ""), spread(best.validation), spread(best.test), trainings))
    return "\n".join(line.rstrip() for line in lines)


def draw(trials: Sequence[Trial], summaries: Sequence[Summary], path: Path) -> None:
    """The weights over time, where they went among the points of the grid, and the accuracy of every training."""
    figure = require("matplotlib.figure", "matplotlib").Figure(figsize=(14, 4.6), dpi=130, layout="constrained")
    over_time, on_map, accuracies = figure.subplots(1, 3, width_ratios=(1.1, 1.15, 1))
    learned = sorted((t for t in trials if t.plan.ratios is None), key=lambda t: t.seed)
    _draw_weights(over_time, learned)
    _draw_map(figure, on_map, learned, [s for s in summaries if s.plan.ratios is not None])
    _draw_accuracies(accuracies, summaries)
    partial = path.with_suffix(".part.png")
    figure.savefig(partial)
    partial.replace(path)


def _draw_weights(axes: Any, learned: Sequence[Trial]) -> None:
    for trial, style in zip(learned, itertools.cycle(("-", "--", ":", "-.")), strict=False):
        for term, colour, weights in zip(digits.TERMS, COLOURS, zip(*trial.weights, strict=True), strict=True):
            label = term if trial is learned[0] else None
            axes.plot(trial.at, weights, style, color=colour, linewidth=1.6, label=label)
    lines = "one line style a seed" if len(learned) > 1 else "one seed"
    axes.set(title=f"Learned weights ({lines})", xlabel="optimizer step", ylabel="weight (they sum to 1)")
    axes.set(xlim=(0, learned[0].at[-1]), ylim=(0, None))
    axes.grid(alpha=0.3)
    axes.legend(title="term", loc="best", framealpha=0.9)


def _draw_map(figure: Any, axes: Any, learned: Sequence[Trial], grid: Sequence[Summary]) -> None:
    edges = [RATIOS[0] / 10**0.5, *(r * 10**0.5 for r in RATIOS)]
    mean = {s.plan.ratios: statistics.fmean(s.test) for s in grid}
    cells = [[mean[x, y] for x in RATIOS] for y in RATIOS]
    mesh = axes.pcolormesh(edges, edges, cells, cmap="Greens", edgecolors="white", linewidth=2, alpha=0.55)
    for s in grid:
        assert s.plan.ratios is not None
        x, y = s.plan.ratios
        mark = "\nbest on validation" if s is chosen(grid) else ""
        axes.text(x, y * 2.5, f"{spread(s.test)}{mark}", ha="center", va="top", fontsize=8.5)
    for trial in learned:
        path = [(c / base, r / base) for base, c, r in trial.weights]
        first = trial is learned[0]
        axes.plot(*zip(*path, strict=True), color="black", lw=1.3, label="learned, one line a seed" if first else None)
        axes.plot(*path[0], "o", color="black", markerfacecolor="white", label="start" if first else None)
        axes.plot(*path[-1], "*", color="black", markersize=11, label="end" if first else None)
    axes.set(xscale="log", yscale="log", title="Grid of fixed weights: mean test accuracy (%)")
    axes.set(xlabel="weight of consistency / weight of ce", ylabel="weight of reconstruction / weight of ce")
    axes.set(xlim=(edges[0], edges[-1]), ylim=(edges[0], edges[-1]))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks(RATIOS, [f"{r:g}" for r in RATIOS])
        axis.set_ticks([], minor=True)
    axes.legend(loc="lower right", fontsize=8, framealpha=0.9)
    figure.colorbar(mesh, ax=axes, label="test accuracy (%)")


def _draw_accuracies(axes: Any, summaries: Sequence[Summary]) -> None:
    order = sorted(summaries, key=lambda s: statistics.fmean(s.test))
    best = chosen(summaries)
    for y, s in enumerate(order):
        colour = "#CC3311" if s.plan.ratios is None else "#333333" if s is best else "#999999"
        axes.plot(s.test, [y] * len(s.test), "o", color=colour, alpha=0.7, markersize=5)
        axes.plot(statistics.fmean(s.test), y, "|", color=colour, markersize=16, markeredgewidth=2.5)
    axes.set_yticks(range(len(order)), [s.plan.name + (" *" if s is best else "") for s in order])
    for label, s in zip(axes.get_yticklabels(), order, strict=True):
        label.set_fontweight("bold" if s.plan.ratios is None else "normal")
    axes.set(title="Each training (dot) and the mean (bar)", xlabel="test accuracy (%)")
    axes.set_ylabel("ce : consistency : reconstruction   (* best on validation)", fontsize=9)
    axes.grid(axis="x", alpha=0.3)


def record(trials: Sequence[Trial], summaries: Sequence[Summary], steps: int, path: Path) -> None:
    """Everything the table and the picture show, as JSON."""
    settings = {"steps": steps, "lr": LR, "init": INIT, "decay": DECAY, "preset": "printed", "terms": digits.TERMS}
    content = {
        "sentence": sentence(summaries),
        "settings": settings,
        "versions": {"trainonce": trainonce.__version__, "torch": str(torch.__version__)},
        "best_on_validation": chosen(summaries).plan.name,
        "trials": [
            {
                "plan": t.plan.name,
                "seed": t.seed,
                "validation": t.validation,
                "test": t.test,
                "seconds": round(t.seconds, 2),
                "last_weights": t.weights[-1],
                "weights": {"step": t.at, "weight": t.weights} if t.plan.ratios is None else None,
            }
            for t in sorted(trials, key=lambda t: (plans().index(t.plan), t.seed))
        ],
    }
    partial = path.with_suffix(".part.json")
    partial.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)


# On the screen


@contextlib.contextmanager
def progress(jobs: Sequence[tuple[Plan, int, int]]) -> Iterator[Callable[[Trial], None]]:
    """What to call with each finished trial: a live bar on a terminal, else a line for each finished plan."""
    if sys.stdout.isatty():
        rich = require("rich.progress", "rich")
        columns = (
            rich.SpinnerColumn(),
            rich.BarColumn(),
            rich.MofNCompleteColumn(),
            rich.TextColumn("trainings, left:"),
        )
        with rich.Progress(*columns, rich.TimeRemainingColumn(), transient=True) as bar:
            task = bar.add_task("", total=len(jobs))
            yield lambda trial: bar.advance(task)
        return
    left = {plan: sum(job[0] == plan for job in jobs) for plan, _, _ in jobs}
    start, accuracies = time.perf_counter(), {plan: [0.0][:0] for plan in left}

    def say(trial: Trial) -> None:
        left[trial.plan] -= 1
        accuracies[trial.plan].append(trial.validation)
        if left[trial.plan] == 0:
            done = sum(not n for n in left.values())
            told = f"{trial.plan.name:<14} validation {spread(accuracies[trial.plan])} %"
            print(f"{time.perf_counter() - start:4.0f} s  {done:2}/{len(left)}  {told}", flush=True)

    yield say


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1; got {value}")
    return value


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m trainonce.demo", description="Learned weights against a grid, on digits."
    )
    parser.add_argument("--out", type=Path, default=Path("out/demo"), help="folder of the results (out/demo)")
    parser.add_argument("--seeds", type=_count, default=3, help="trainings of each plan (3)")
    parser.add_argument("--steps", type=_count, default=STEPS, help=f"optimizer steps of each training ({STEPS})")
    parser.add_argument("--workers", type=_count, default=min(_cores(), 8), help="processes (one a core, at most 8)")
    asked = parser.parse_args(arguments)
    try:
        digits.pool()
        require("matplotlib.figure", "matplotlib")
        require("rich.progress", "rich")
        asked.out.mkdir(parents=True, exist_ok=True)
    except ImportError as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"The folder {asked.out} cannot be made: {error.strerror}. Choose another with --out.", file=sys.stderr)
        return 1
    jobs = [(plan, seed, asked.steps) for plan in plans() for seed in range(asked.seeds)]
    print(
        f"Digits, {digits.LABELS} labels, tested on shifted noisy images: {len(jobs)} trainings of {asked.steps} steps."
        f"\nLearned weights: the printed algorithm, init {INIT:g}, decay {DECAY:g}. Then a grid."
    )
    try:
        with progress(jobs) as tell, contextlib.closing(run_all(jobs, min(asked.workers, len(jobs)))) as running:
            trials = []
            for trial in running:
                trials.append(trial)
                tell(trial)
    except KeyboardInterrupt:
        print("Stopped; nothing was written.", file=sys.stderr)
        return 130
    summaries = summarise(trials)
    record(trials, summaries, asked.steps, asked.out / "results.json")
    draw(trials, summaries, asked.out / "weights.png")
    over = f"mean +- standard deviation over {asked.seeds} seeds" if asked.seeds > 1 else "one seed"
    print(f"\nAccuracy in %, {over}.\nFixed weights are written ce : consistency : reconstruction.\n")
    print(f"{table(summaries)}\n\n{textwrap.fill(sentence(summaries), 80)}\n")
    print(f"Picture: {asked.out / 'weights.png'}\nResults: {asked.out / 'results.json'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
