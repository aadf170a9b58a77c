"""What a comparison will cost: shown by ``--dry-run``, and asked about where it is very much."""

from __future__ import annotations

import sys
import textwrap
from typing import TYPE_CHECKING

from trainonce.cli.problem import Problem
from trainonce.study import cost

if TYPE_CHECKING:
    from trainonce.cli.request import Request


def show(request: Request, workers: int) -> None:
    """Print the trials of each plan, all of them, and how long they take where the task says so."""
    task, seeds = request.task, request.seeds
    counts = cost.trial_counts(request.plans, seeds)
    width = max(4, *map(len, counts))
    print(f"{'plan':<{width}}  {'trials':>9}  trainings a seed")
    for plan in request.plans:
        print(f"{plan.name:<{width}}  {counts[plan.name]:>9,}  {cost.trainings(plan):,.3g}")
    count, records = cost.missing_trials(task, request.plans, seeds, {}), request.records
    left = cost.missing_trials(task, request.plans, seeds, records) if records else count
    there = f", {count - left:,} of them in {request.out} already" if left < count else ""
    time = cost.duration_text(task, max(0.0, left - cost.spared(request.plans, seeds)), workers)
    to_do = f"{left:,} trial{'s' if left != 1 else ''} to do{f', {time}' if time else ''}"
    text = f"{count:,} trial{'s' if count != 1 else ''}, {request.described_seeds}{there}. {to_do}."
    print("\n" + textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False))
    if count != sum(counts.values()):
        print("Trials that plans share count once in the sum; it includes the runs that controls need.")
    print("Nothing was trained or written.")


def confirm(request: Request, workers: int) -> bool:
    """Whether to run the request: yes, unless it is very much and somebody at the terminal says no."""
    much = cost.excess(request.task, request.plans, request.seeds, request.records, workers)
    if not much:
        return True
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Problem(f"{much} With --yes it runs all the same.")
    print(textwrap.fill(much, 100))
    try:
        answer = input("Run it all the same? [y/N] ")
    except EOFError:
        answer = ""
    if answer.strip().lower() in ("y", "yes"):
        return True
    print("Nothing was trained.")
    return False
