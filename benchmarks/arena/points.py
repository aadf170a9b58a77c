"""Which points a name on the command line stands for: the grid, and the settings of each rule that are compared."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from benchmarks.arena.rules import Point, Settings
from benchmarks.arena.rules.fixed import log_uniform

if TYPE_CHECKING:
    from collections.abc import Sequence

RANDOM = 27  # random points of a seed, from which ASHA and random search are read
PLAIN = ("uniform", "base", "uw", "imtl-l", "dwa", "famo", "gradnorm", "config", "upgrad")

TRAVEL = 4.0  # of the drift, per run
HALVED = (TRAVEL, 0.0)  # halving with the drift, and without
FACTORS = (1 / 30, 30.0)  # of halving: by what the weight of each auxiliary term is multiplied, one at a time

#: Names with settings of their own.
SETTINGS: dict[str, list[Point]] = {
    "printed": [Point("printed", {"init": init, "rho": 2.0}) for init in (1.0, 0.1)],
    "decays": [Point("printed", {"init": init, "rho": rho}) for init in (1.0, 0.1) for rho in (2.0, 20.0, 200.0)],
    "rates": [
        *(Point("printed", {"rho": rho}) for rho in (2.0, 20.0, 200.0)),
        *(Point("printed", {"rho": rho, "travel": t}) for t in (0.3, 1.0, 3.0, 10.0) for rho in (2.0, 6.0, 20.0)),
        *(Point("printed", {"rho": 2.0, "travel": t, "by": "sgd"}) for t in (0.3, 1.0)),
        *(Point("printed", {"rho": rho, "fold": c}) for c in (0.1, 0.2, 0.4) for rho in (2.0, 20.0)),
        *(Point("printed", {"init": 0.1, "rho": rho, "travel": t}) for rho, t in ((2.0, 1.0), (2.0, 3.0), (20.0, 3.0))),
    ],
    "near": [
        *(Point("printed", {"rho": rho}) for rho in (2.0, 20.0)),
        *(
            Point("printed", {"rho": rho, "fold": c})
            for c in (0.1, 0.15, 0.2, 0.3)
            for rho in (0.5, 1.0, 2.0, 4.0, 8.0)
        ),
    ],
    "defaults": [Point("printed", {"rho": rho, "fold": c}) for c, rho in ((0.2, 2.0), (0.15, 4.0))],
    "starts": [Point("printed", {"init": init, "rho": 2.0, "fold": 0.2}) for init in (0.1, 0.3, 1.0, 3.0)],
    "units": [Point("units", {}), Point("units", {"place": "last"})],
    "drift": [Point("units", {"travel": TRAVEL})],
    "random": [Point("random", {"n": n}) for n in range(RANDOM)],
}
NAMES = ("grid", "around", "halving", *PLAIN, *SETTINGS)

#: What halving was chosen from: by what the weight of each term is multiplied and divided, and how far they drift.
AROUND, DRIFTS = (4, 12, 20, 30, 60), (0.0, 2.0, 4.0, 8.0)


def named(name: str, auxiliary: int) -> list[Point]:
    """The points of a name, for a task with so many auxiliary terms."""
    if name == "grid":
        return [Point("grid", {"ratios": ratios}) for ratios in grid(auxiliary)]
    if name == "around":
        factors = [f for n in AROUND for f in (1 / n, n)]
        return [point for travel in DRIFTS for point in halved(auxiliary, travel, factors)]
    if name == "halving":
        return [point for travel in HALVED for point in halved(auxiliary, travel)]
    if name in PLAIN:
        return [Point(name, {})]
    if name in SETTINGS:
        return SETTINGS[name]
    raise ValueError(f"The arena has the rules {', '.join(NAMES)}, tpe; got {name!r}.")


def halved(auxiliary: int, travel: float, factors: Sequence[float] = FACTORS) -> list[Point]:
    """What halving starts from: gradient units with a drift, and the same with each factor of each term."""
    drift: Settings = {"travel": travel} if travel else {}
    priors = [
        [float(f"{factor:.6g}") if i == term else 1.0 for i in range(auxiliary)]
        for term, factor in itertools.product(range(auxiliary), factors)
    ]
    return [Point("units", drift), *(Point("units", {"prior": prior, **drift}) for prior in priors)]


def grid(auxiliary: int) -> list[list[float]]:
    """Ratios to the base's weight: 13 points for one auxiliary term, 25 for more; equal weights are among them."""
    if auxiliary == 1:
        return [[float(f"{10 ** (e / 2):.4g}")] for e in range(-6, 7)]
    if auxiliary == 2:
        return [list(pair) for pair in itertools.product((0.01, 0.1, 1.0, 10.0, 100.0), repeat=2)]
    return [[1.0] * auxiliary, *(log_uniform(f"grid/{i}", auxiliary) for i in range(24))]
