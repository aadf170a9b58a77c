"""Which points a name on the command line stands for: the grid, and the settings of each rule that are compared."""

from __future__ import annotations

import itertools
import math

from benchmarks.arena.rules import Point, Settings
from benchmarks.arena.rules.fixed import log_uniform
from trainonce import halving

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
NAMES = ("grid", "unit-grid", "halving", *PLAIN, *SETTINGS)

#: Parts of the weight that gradient units give, by the number of auxiliary terms.
AROUND = {
    1: (1 / 30, 1 / 15, 1 / 8, 1 / 4, 1 / 2, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0),
    2: (1 / 30, 1 / 5, 1.0, 5.0, 30.0),
    3: (1 / 8, 1.0, 8.0),
}


def named(name: str, auxiliary: int) -> list[Point]:
    """The points of a name, for a task with so many auxiliary terms."""
    if name == "grid":
        return [Point("grid", {"ratios": ratios}) for ratios in grid(auxiliary)]
    if name == "unit-grid":
        around = itertools.product(AROUND[auxiliary], repeat=auxiliary)
        return [Point("units", {} if set(parts) == {1.0} else {"prior": list(parts)}) for parts in around]
    if name == "halving":
        beside = [start.asked for start in halving.starts(["", *map(str, range(auxiliary))], halving.FACTORS)][1:]
        priors = [[float(f"{math.exp(one):.6g}") for one in asked] for asked in beside]
        return [Point("units", {}), *(Point("units", {"prior": prior}) for prior in priors)]
    if name in PLAIN:
        return [Point(name, {})]
    if name in SETTINGS:
        return SETTINGS[name]
    raise ValueError(f"The arena has the rules {', '.join(NAMES)}, tpe; got {name!r}.")


def grid(auxiliary: int) -> list[list[float]]:
    """Ratios to the base's weight: 13 points for one auxiliary term, 25 for more; equal weights are among them."""
    if auxiliary == 1:
        return [[float(f"{10 ** (e / 2):.4g}")] for e in range(-6, 7)]
    if auxiliary == 2:
        return [list(pair) for pair in itertools.product((0.01, 0.1, 1.0, 10.0, 100.0), repeat=2)]
    return [[1.0] * auxiliary, *(log_uniform(f"grid/{i}", auxiliary) for i in range(24))]
