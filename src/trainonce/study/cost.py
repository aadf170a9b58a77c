"""What a study will cost, and whether that is more than anybody will have meant: before anything is trained."""

from __future__ import annotations

import dataclasses
import inspect
from typing import TYPE_CHECKING

from trainonce.study import rungs
from trainonce.study.progress import duration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainonce.study.plans import Plan
    from trainonce.study.record import Record
    from trainonce.study.search import Search
    from trainonce.study.task import Task

LIMIT = 1000  # trials that a study runs without asking
LONGEST = 24 * 3600  # seconds, likewise, where the task says how long a training takes
FEW = 30  # trainings a seed, with which a plan is no larger than what is suggested instead


def trial_counts(plans: Sequence[Plan], seeds: Sequence[int]) -> dict[str, int]:
    """How many trials each plan has, without listing them; some may be of several plans."""
    return {plan.name: _points(plan) * len(seeds) for plan in plans}


def trainings(plan: Plan) -> float:
    """How many full trainings a seed of a plan costs: where trials pause, less than it has trials."""
    search = plan.search
    return rungs.trainings(search.trials, search.rungs) if search is not None else len(plan.rules)


def spared(plans: Sequence[Plan], seeds: Sequence[int]) -> float:
    """How many trainings are spared because trials pause and never go on."""
    return sum(_points(plan) - trainings(plan) for plan in plans) * len(seeds)


def missing_trials(task: Task, plans: Sequence[Plan], seeds: Sequence[int], records: Mapping[str, Record]) -> int:
    """How many trials are to run, each once, with those that controls need."""
    if not records:
        return _distinct_trials(plans, seeds)
    from trainonce.study import schedule  # here, like all that imports torch: see trainonce.lazy

    keys = {key for item in schedule.items(plans, seeds, task.identity) for key in item.keys}
    return sum(key not in records or records[key].status == "failed" for key in keys)


def _distinct_trials(plans: Sequence[Plan], seeds: Sequence[int]) -> int:
    """How many trials the plans have together, without making their keys, which takes seconds for a large grid."""
    searches = [dataclasses.replace(plan.search, trials=0) for plan in plans if plan.search is not None]
    longest = [
        max(p.search.trials for p in plans if p.search and _is_alike(p.search, s)) for s in dict.fromkeys(searches)
    ]
    points = {repr(rule): rule for plan in plans for rule in plan.rules}
    own = {(text, seed) for text in points for seed in seeds}
    needed = {(repr(of), seed) for rule in points.values() for s in seeds for of, seed in filter(None, [rule.needs(s)])}
    return len(own | needed) + sum(longest) * len(seeds)


def _is_alike(one: Search, other: Search) -> bool:
    """Whether one search goes on where the other stops: they differ in nothing but their trials."""
    return dataclasses.replace(one, trials=other.trials) == other


def excess(
    task: Task,
    plans: Sequence[Plan],
    seeds: Sequence[int],
    records: Mapping[str, Record],
    workers: int,
    limit: int = LIMIT,
) -> str:
    """What is too much about a study, in a sentence; nothing where it is not."""
    counts = trial_counts(plans, seeds)
    count = sum(counts.values())
    if not _is_long(task, count, workers, limit):
        return ""
    if records:  # of a study that goes on only what is left counts
        count = missing_trials(task, plans, seeds, records)
        if not _is_long(task, count, workers, limit):
            return ""
    most = max(plans, key=_points)
    time = duration_text(task, max(0.0, count - spared(plans, seeds)), workers)
    what = f"The study would train {count:,} times{f', {time}' if time else ''}"
    much = f"{what}; the plan {most.name!r} has {counts[most.name]:,} of the trials"
    if _points(most) <= FEW:
        return f"{much}, in {len(seeds):,} seed{'s' * (len(seeds) > 1)}. Fewer seeds or plans take less."
    return f"{much}. {smaller(most.name, task)} would take fewer."


def smaller(plan: str, task: Task) -> str:
    """What to try instead of a plan with very many points: fewer of them where it counts trials, else another plan."""
    method = plan.partition("(")[0]
    return f"{method}(trials={FEW})" if method in ("random", "tpe", "sha") else f"random(trials={FEW}) or sha"


def duration_text(task: Task, count: float, workers: int) -> str:
    """About how long so many trainings take, in words; nothing where the task does not say."""
    seconds = _seconds(task)
    if seconds is None:
        return ""
    return f"about {duration(seconds * count / max(1, workers))} with {max(1, workers)} worker{'s' * (workers > 1)}"


def _is_long(task: Task, count: int, workers: int, limit: int) -> bool:
    """Whether it is too much; one training is not, however long, since there is nothing smaller to ask for."""
    return count > limit or (count > 1 and (_seconds(task) or 0.0) * count / max(1, workers) > LONGEST)


def _points(plan: Plan) -> int:
    return len(plan.rules) if plan.search is None else plan.search.trials


def _seconds(task: Task) -> float | None:
    """About how long a training takes on one core; of another length than usual, in proportion."""
    if task.seconds is None or task.steps is None:
        return task.seconds
    usual = inspect.signature(task.function).parameters["steps"].default
    return task.seconds * task.steps / usual if usual else task.seconds
