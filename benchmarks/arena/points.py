"""Which points a name on the command line stands for: the grid, and the settings of each rule that are compared."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

from benchmarks.arena.rules import Point, Settings
from benchmarks.arena.rules.fixed import log_uniform
from trainonce import halving

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

RANDOM = 27  # random points of a seed, from which ASHA and random search are read
PLAIN = ("uniform", "base", "uw", "imtl-l", "dwa", "famo", "gradnorm", "config", "upgrad")

TRAVEL = 4.0  # of the drift, per run

#: The settings of units that are run with scouts.
SCOUTED: list[Settings] = [{}, {"travel": TRAVEL}]

#: Names with settings of their own.
SETTINGS: dict[str, list[Point]] = {
    "printed": [Point("printed", {"init": init, "rho": 2.0}) for init in (1.0, 0.1)],
    "units": [Point("units", {}), Point("units", {"place": "last"})],
    "drift": [Point("units", {"travel": TRAVEL})],
    "random": [Point("random", {"n": n}) for n in range(RANDOM)],
}
NAMES = ("grid", "around", "halving", *PLAIN, *SETTINGS)

#: By what the weights of gradient units are multiplied, or divided: one term at a time, and of two terms both.
ONE, BOTH = (3, 4, 6, 8, 12, 30), 6


def named(name: str, auxiliary: int) -> list[Point]:
    """The points of a name, for a task with so many auxiliary terms."""
    if name == "grid":
        return [Point("grid", {"ratios": ratios}) for ratios in grid(auxiliary)]
    if name == "around":
        both = itertools.product((1 / BOTH, BOTH), repeat=2) if auxiliary == 2 else ()
        return [*_beside(auxiliary, [f for n in ONE for f in (1 / n, n)]), *(_units(parts) for parts in both)]
    if name == "halving":
        return _beside(auxiliary, halving.FACTORS)
    if name in PLAIN:
        return [Point(name, {})]
    if name in SETTINGS:
        return SETTINGS[name]
    raise ValueError(f"The arena has the rules {', '.join(NAMES)}, tpe; got {name!r}.")


def _beside(auxiliary: int, factors: Sequence[float]) -> list[Point]:
    """Gradient units, and the same with each factor of each term."""
    starts = list(halving.starts(["", *map(str, range(auxiliary))], factors))
    return [Point("units", {}), *(_units(map(math.exp, start.asked)) for start in starts[1:])]


def _units(parts: Iterable[float]) -> Point:
    return Point("units", {"prior": [float(f"{part:.6g}") for part in parts]})


def grid(auxiliary: int) -> list[list[float]]:
    """Ratios to the base's weight: 13 points for one auxiliary term, 25 for more; equal weights are among them."""
    if auxiliary == 1:
        return [[float(f"{10 ** (e / 2):.4g}")] for e in range(-6, 7)]
    if auxiliary == 2:
        return [list(pair) for pair in itertools.product((0.01, 0.1, 1.0, 10.0, 100.0), repeat=2)]
    return [[1.0] * auxiliary, *(log_uniform(f"grid/{i}", auxiliary) for i in range(24))]
