"""The rules of the arena by their names in records and commands. A point of a stack is a name with settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from benchmarks.arena.rules.balance import Balance
from benchmarks.arena.rules.base import Rule, Run, Seen, Settings, Together
from benchmarks.arena.rules.fixed import Base, Fixed, Random, Uniform
from benchmarks.arena.rules.gram_rules import ConFIG, GradNorm, UPGrad
from benchmarks.arena.rules.paper import Paper
from benchmarks.arena.rules.peers import DWA, FAMO, IMTLL, UW

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["RULES", "Point", "Rule", "Run", "Seen", "Settings", "build"]

RULES: dict[str, type[Rule]] = {
    "grid": Fixed,
    "fixed": Fixed,
    "uniform": Uniform,
    "base": Base,
    "random": Random,
    "printed": Paper,
    "units": Balance,
    "uw": UW,
    "imtl-l": IMTLL,
    "dwa": DWA,
    "famo": FAMO,
    "gradnorm": GradNorm,
    "config": ConFIG,
    "upgrad": UPGrad,
}


class Point(NamedTuple):
    """One way to weigh: the name of a rule and its settings."""

    rule: str
    settings: Settings


def build(points: Sequence[Point], run: Run) -> Together:
    """The rule of a stack; points of one rule stand side by side."""
    names = list(dict.fromkeys(point.rule for point in points))
    if [p.rule for p in points] != [name for name in names for p in points if p.rule == name]:
        raise ValueError("The points of one rule must stand side by side.")
    return Together([RULES[name]([p.settings for p in points if p.rule == name], run) for name in names])
