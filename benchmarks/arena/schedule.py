"""Which points are trained as one stack: those of the same seeds that cost about the same a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.arena.rules import RULES
from benchmarks.arena.rules.base import complete

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from benchmarks.arena.rules import Point

Seeds = tuple[int, ...]


def stacks_of(points: Sequence[Point], missing: Callable[[Point], Seeds], most: int) -> list[tuple[list[Point], Seeds]]:
    """Stacks of at most ``most`` points, with the seeds that each of its points still misses.

    A measurement costs K + 1 backward passes for the whole stack. So points that never measure, those that measure at
    every step, and those that do at times stand in stacks of their own, and so do those with a held-out gradient.
    """
    groups: dict[tuple[object, ...], list[Point]] = {}
    for point in _once(points):
        seeds = missing(point)
        if seeds:
            groups.setdefault((seeds, *_cost(point)), []).append(point)
    stacks = []
    for (seeds, *_), some in groups.items():
        side_by_side = sorted(some, key=lambda point: list(RULES).index(point.rule))
        stacks += [(side_by_side[i : i + most], seeds) for i in range(0, len(some), most)]
    return stacks  # type: ignore[return-value]


def _cost(point: Point) -> tuple[object, ...]:
    rule = RULES[point.rule]
    if point.rule != "units":
        return (bool(rule.places), 0.0, False)
    settings = complete(rule.defaults, point.settings, point.rule)
    return (True, settings["every"], bool(settings["travel"]))


def _once(points: Iterable[Point]) -> list[Point]:
    """Without those that are the same but for settings left to their defaults."""
    found: dict[str, Point] = {}
    for point in points:
        settings = complete(RULES[point.rule].defaults, point.settings, point.rule)
        found.setdefault(f"{point.rule} {sorted(settings.items())}", point)
    return list(found.values())
