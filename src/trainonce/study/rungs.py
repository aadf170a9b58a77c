"""Rungs: at which parts of the training some trials pause, and which of them go on. Pure decisions over what was found.

A plan with rungs begins with several candidates. All train to the first rung; the best there go on to the next, and so
on to the end. Who does not go on stays paused.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

END = 1.0


class Rung(NamedTuple):
    """After the part ``until`` of the training, the ``keep`` best go on."""

    until: float
    keep: int


def halving(count: int, eta: int, rungs: int = 2) -> tuple[Rung, ...]:
    """Return the rungs of successive halving: after each, one in ``eta`` goes on, and trains ``eta`` times as long.

    >>> halving(27, 3)
    (Rung(until=0.1111111111111111, keep=9), Rung(until=0.3333333333333333, keep=3))
    """
    return tuple(Rung(eta ** (i - rungs), max(1, count // eta ** (i + 1))) for i in range(rungs))


def trainings(count: int, rungs: Sequence[Rung]) -> float:
    """Return what so many candidates cost together, in full trainings.

    >>> round(trainings(27, halving(27, 3)), 6)
    7.0
    """
    cost, alive, before = 0.0, count, 0.0
    for until, keep in (*rungs, Rung(END, 0)):
        cost += alive * (until - before)
        alive, before = min(alive, keep), until
    return cost


def jobs(count: int, rungs: Sequence[Rung]) -> int:
    """Return how often a candidate begins or goes on: how many records there will be."""
    found, alive = 0, count
    for rung in (*rungs, Rung(END, 0)):
        found, alive = found + alive, min(alive, rung.keep)
    return found


def next_jobs(
    candidates: Sequence[str], rungs: Sequence[Rung], scores: Mapping[str, Mapping[float, float]]
) -> list[tuple[str, float]]:
    """Return who trains next, and until which part of the training; nothing when all is decided.

    :param scores: What each candidate had after each part; more is better, and minus infinity does not go on.

    >>> rungs = [Rung(0.5, 1)]
    >>> next_jobs(["a", "b"], rungs, {"a": {0.5: 80.0}})
    [('b', 0.5)]
    >>> next_jobs(["a", "b"], rungs, {"a": {0.5: 80.0}, "b": {0.5: 90.0}})
    [('b', 1.0)]
    """

    def score(key: str, until: float) -> float | None:
        found = scores.get(key, {})
        return found.get(until, found.get(END))  # of a training that ended early, its end

    alive = list(candidates)
    for until, keep in (*rungs, Rung(END, 0)):
        known = {key: score(key, until) for key in alive}
        missing = [(key, until) for key, value in known.items() if value is None]
        if missing:
            return missing
        ranked = sorted(alive, key=lambda key: -known[key])  # type: ignore[operator]
        alive = [key for key in ranked if known[key] != -math.inf][:keep]
    return []
