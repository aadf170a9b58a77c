"""What a recipe with a paper's numbers says before it starts, where a training would not be the paper's.

Each function returns one sentence or two, or nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainonce import composite, pace
from trainonce.study import cost, torchrun

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainonce.study import Task
    from trainonce.study.plans import Plan


def of_weights(task: Task, usual: str, file: str) -> str:
    """Say that the encoder starts from random weights.

    :param usual: What the original starts from.
    """
    settings = task.settings
    if settings["weights"] or settings.get("network"):
        return ""
    name = settings.get("encoder") or settings["backbone"]
    return f"The encoder {name} starts from random weights, the original's from {usual}. Set weights={file}."


def of_travel(task: Task, plans: Sequence[Plan], papers: float) -> str:
    """Say that the exponents cannot travel half as far as the paper's.

    :param papers: The paper's learning rate of the exponents times its steps.
    """
    found = {plan.name: _travel(task, plan) for plan in plans}
    short = {name: travel for name, travel in found.items() if travel is not None and travel < papers / 2}
    if not short:
        return ""
    steps = task.settings["steps"]
    return (
        f"In {steps:,} steps the exponents of {', '.join(short)} hardly travel: the sum of their rates is "
        f"at most {max(short.values()):.2g}, the paper's {papers:.2g}. Set their lr={papers / steps:.2g} in the plan."
    )


def of_batch(task: Task, papers: int, unit: str) -> str:
    """Say that a step sees more or less than the paper's, over all processes."""
    processes = max(torchrun.world_size(), task.ranks)
    found = task.settings["batch"] * processes
    if found == papers:
        return ""
    over = f", {task.settings['batch']} in each of {processes} processes" if processes > 1 else ""
    return f"A step sees {found} {unit}{over}; the paper's sees {papers}."


def of_seeds(task: Task, plans: Sequence[Plan], seeds: Sequence[int], papers: int) -> str:
    """Say that there are more seeds than the paper's, and how many trainings that makes."""
    if len(seeds) <= papers:
        return ""
    found, enough = (cost.missing_trials(task, plans, some, {}) for some in (seeds, seeds[:papers]))
    return (
        f"{len(seeds)} seeds make {found} trainings. The paper has {papers} seed{'s' * (papers > 1)}, which would make "
        f"{enough}."
    )


def _travel(task: Task, plan: Plan) -> float | None:
    """How far the exponents of a plan may go: the sum of their rates over the steps, of several the largest."""
    rules = [getattr(rule, "of", rule) for rule in plan.rules]  # a control is of a rule
    return max((_sum_of_rates(task, rule.settings) for rule in rules if rule.trains), default=None)


def _sum_of_rates(task: Task, settings: Mapping[str, Any]) -> float:
    steps, rate = task.settings["steps"], settings["lr"]
    if rate is None:
        travel = composite.TRAVEL if settings["travel"] is None else settings["travel"]
        return float(sum(pace.rate(travel, step) for step in range(steps)))
    return float(steps * (task.settings["lr"] if rate == composite.MODEL else rate))
