"""Searches, one per seed: ASHA and random search over random fixed weights, TPE, and halving around gradient units.

Each leaves one record a seed: the test score of the point that was best on validation, and what finding it cost. All
but TPE are read from trainings that were run to their end.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.arena import points, records
from benchmarks.arena.rules import Point
from benchmarks.arena.rules.fixed import grid_range
from benchmarks.arena.variant import Variant

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benchmarks.arena.records import Record
    from benchmarks.arena.stack import Stack
    from benchmarks.arena.task import Task

REDUCTION = 3
RUNGS = (1 / 9, 1 / 3, 1.0)
RANDOM_TRIALS = 20
TPE_TRIALS = 20

#: What records of halving say of its settings: those that trainonce had while its plan ``halving`` was there.
HALVING: dict[str, Any] = {
    "travel": points.TRAVEL,
    "factors": [float(f"{factor:.6g}") for factor in points.FACTORS],
    "rounds": [float(f"{end:.6g}") for end in (1 / 18, 1 / 9, 1 / 3)],
    "keep": [3, 2, 1],
    "seat": True,  # of the training as it is
}


class Found(NamedTuple):
    """Which training a search ends with, and its cost in trainings."""

    best: int
    cost: float


def asha(curves: Sequence[Sequence[float | None]], higher: bool) -> Found:
    """Successive halving: at each rung the best third goes on.

    All trainings of a rung end before any goes on, so nothing is promoted too early: the better of the two ways to run
    it, since the records of all trainings are there.
    """
    keep = [max(1, len(curves) // REDUCTION**i) for i in range(1, len(RUNGS))]
    return halve(curves, higher, RUNGS, [*keep, 1])


def halve(
    curves: Sequence[Sequence[float | None]],
    higher: bool,
    rounds: Sequence[float],
    keep: Sequence[int],
    seat: bool = False,
) -> Found:
    """After each round, which ends at a part of the training, so many go on. Curves are evenly spaced over a run.

    :param seat: Whether the first stays until the last round, unless it has no score.
    """
    left, cost, before = list(range(len(curves))), 0.0, 0.0
    for end, count in zip(rounds, keep, strict=True):
        cost += len(left) * (end - before)
        before = end
        worth = {i: _worth(_at(curves[i], end), higher) for i in left}
        stays = seat and count > 1 and worth.get(0, -math.inf) > -math.inf
        left = sorted(left, key=lambda i: (stays and i == 0, worth[i]), reverse=True)[:count]
    return Found(left[0], round(cost + len(left) * (1 - before), 3))


def best_of(validation: Sequence[float | None], higher: bool) -> Found:
    """The best on validation, after trainings of full length."""
    best = max(range(len(validation)), key=lambda i: _worth(validation[i], higher))
    return Found(best, len(validation))


def from_random(given: Sequence[Record], higher: bool) -> list[Record]:
    """The records of ASHA and of random search, of every task, variant and seed whose random points are all there."""
    groups: dict[tuple[Any, ...], dict[int, Record]] = {}
    for record in given:
        if record["rule"] == "random":
            place = (record["task"], record["variant"], record["seed"])
            groups.setdefault(place, {})[record["settings"]["n"]] = record
    found = []
    for drawn in groups.values():
        if set(drawn) >= set(range(27)):
            trials = [drawn[n] for n in range(27)]
            some = trials[:RANDOM_TRIALS]
            found.append(_summary("asha", trials, asha([t["curve"] for t in trials], higher)))
            found.append(_summary("random search", some, best_of([t["validation"] for t in some], higher)))
    return found


def from_units(
    given: Sequence[Record], auxiliary: int, higher: bool, settings: Mapping[str, Any] = HALVING
) -> list[Record]:
    """The records of halving, of every task, variant and seed that has the points to start from."""
    starts = points.halved(auxiliary, settings["travel"], settings["factors"])
    names = [json.dumps(records.head("", Variant(), point, 0)["settings"], sort_keys=True) for point in starts]
    groups: dict[tuple[Any, ...], dict[str, Record]] = {}
    for record in given:
        if record["rule"] == "units":
            place = (record["task"], record["variant"], record["seed"])
            groups.setdefault(place, {})[json.dumps(record["settings"], sort_keys=True)] = record
    found = []
    for group in groups.values():
        if set(group) >= set(names):
            trials = [group[name] for name in names]
            best = halve(
                [trial["curve"] for trial in trials],
                higher,
                settings["rounds"],
                settings["keep"],
                settings.get("seat", False),
            )
            found.append({**_summary("halving", trials, best), "settings": dict(settings)})
    return found


def tpe(
    task: Task, seeds: Sequence[int], variant: Variant, make: Callable[[list[Point]], Stack], trials: int = TPE_TRIALS
) -> list[Record]:
    """Optuna's TPE, one study a seed; the proposals of a round, one a seed, are trained as one stack."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    direction = "maximize" if task.higher else "minimize"
    studies = [optuna.create_study(direction=direction, sampler=optuna.samplers.TPESampler(seed=s)) for s in seeds]
    low, high = grid_range(len(task.terms) - 1)
    rounds: list[list[Record]] = []
    for _ in range(trials):
        asked = [study.ask() for study in studies]
        ratios = [[trial.suggest_float(term, low, high, log=True) for term in task.terms[1:]] for trial in asked]
        stack = make([Point("fixed", {"ratios": ratios})])
        rounds.append(records.of_stack(stack, stack.train(), variant))
        for study, trial, record in zip(studies, asked, rounds[-1], strict=True):
            if record["validation"] is None:
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
            else:
                study.tell(trial, record["validation"])
    return [
        _summary("tpe", of_seed, best_of([record["validation"] for record in of_seed], task.higher))
        for of_seed in zip(*rounds, strict=True)
    ]


def _summary(rule: str, trials: Sequence[Record], found: Found) -> Record:
    best = {name: value for name, value in trials[found.best].items() if name != "path"}
    seconds = float(f"{sum(t['seconds'] for t in trials) / len(trials) * found.cost:.4g}")
    return {**best, "rule": rule, "settings": {"trials": len(trials)}, "cost": found.cost, "seconds": seconds}


def _at(curve: Sequence[float | None], share: float) -> float | None:
    return curve[max(0, round(share * len(curve)) - 1)]


def _worth(value: float | None, higher: bool) -> float:
    if value is None or math.isnan(value):
        return -math.inf
    return value if higher else -value
