"""Gradient balance: every term weighed by a norm of its gradient at the parameters that the terms share.

The arithmetic is the library's. Records and commands call the rule ``units``, as trainonce once did.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch

from benchmarks.arena.gradients import PLACES
from benchmarks.arena.rules.base import Rule, Seen, Settings
from trainonce.balance import arithmetic

if TYPE_CHECKING:
    from torch import Tensor

    from benchmarks.arena.gradients import Measurement


class Balance(Rule):
    """The rule of :class:`trainonce.BalancedLoss`, with more settings.

    ``p``: ``follow``, between peak (0) and running norm (1). ``c``: the limit; None for none. ``norm``: ``"base"`` (its
    coefficient is constant) or ``"sum"`` (to 1). ``warm``: over how much of the run the auxiliary terms rise from 0;
    ``warm_steps``: the same in steps, added. ``every``: after what share of the steps so far to measure again; 0
    measures at every step. ``mean``: what is kept of the mean of squares. ``place``: ``"all"`` shared parameters or the
    ``"last"`` layer. ``travel``: how far alignment moves by the held-out gradient; 0 for none. ``prior``: the ratios at
    the start, one for all auxiliary terms or a list. ``held_mean``: what is kept of the held-out gradient at a
    measurement; ``cosine_mean``: what is kept of its products with the terms' gradients. ``clock``: whether ``travel``
    is per ``"run"`` or per factor e of the steps (``"log"``).
    """

    defaults: ClassVar[Settings] = {
        "p": arithmetic.FOLLOW,
        "c": arithmetic.LIMIT,
        "norm": "base",
        "warm": 0.0,
        "warm_steps": arithmetic.RISE,
        "every": arithmetic.EVERY,
        "mean": arithmetic.KEEP,
        "place": "all",
        "travel": 0.0,
        "prior": 1.0,
        "held_mean": 0.0,
        "cosine_mean": arithmetic.KEEP_PRODUCTS,
        "clock": "run",
    }
    off: ClassVar[Settings] = {
        "warm": 0.0,
        "warm_steps": 0,
        "travel": 0.0,
        "prior": 1.0,
        "held_mean": 0.0,
        "cosine_mean": 0.9,
        "clock": "run",
    }

    def start(self) -> None:
        run, terms = self.run, self.run.terms
        self.places = tuple(place for place in PLACES if any(s["place"] == place for s in self.settings))
        self.held_out = any(s["travel"] for s in self.settings)
        self._follow, self._limit, self._mean = (self.column(name) for name in ("p", "c", "mean"))
        self._products_mean = self.column("cosine_mean")
        self._hold_base, self._last = self._mask("norm", "base"), self._mask("place", "last")
        due = self.due()
        self._due = due.to(run.device)
        self._rates, self._risen = run.tensor(self._moved(due)), run.tensor(self._rise())
        ones = run.full(self.points, terms, 1.0)
        self._weights = ones / torch.where(self._hold_base, terms, 1)
        self.norms, self.peaks = (run.full(self.points, 2 * terms - 2, torch.nan).unflatten(-1, (-1, 2)) for _ in "np")
        self.compared = run.full(self.points, 2 * terms + 1, torch.nan)
        self.alignment = ones[..., 1:] * self._priors().log()
        self.step = torch.zeros((), dtype=torch.long, device=run.device)

    def _priors(self) -> Tensor:
        auxiliary, given = self.run.terms - 1, [s["prior"] for s in self.settings]
        return self.run.tensor([one if isinstance(one, list) else [one] * auxiliary for one in given])

    def _mask(self, name: str, value: str) -> Tensor:
        return torch.tensor([[s[name] == value] for s in self.settings], device=self.run.device)

    def due(self) -> Tensor:
        table = torch.zeros(self.run.steps, self.points, dtype=torch.bool)
        for point, settings in enumerate(self.settings):
            table[due_steps(self.run.steps, settings["every"]), point] = True
        return table

    def held_mean(self) -> Tensor:
        return self.column("held_mean").flatten()

    def _rise(self) -> list[list[float]]:
        """Return by step and point how much of their coefficients the auxiliary terms have."""
        rises = [round(s["warm"] * self.run.steps + s["warm_steps"]) for s in self.settings]
        return [[arithmetic.risen(step, 0, rise) if rise else 1.0 for rise in rises] for step in range(self.run.steps)]

    def _moved(self, due: Tensor) -> list[list[float]]:
        """Return by step and point how far alignment may move since the last measurement before it."""
        rates = [[0.0] * self.points for _ in range(self.run.steps)]
        for point, settings in enumerate(self.settings):
            last, length = 0, self.run.steps if settings["clock"] == "run" else None
            for step in due[:, point].nonzero().flatten().tolist():
                rates[step][point] = arithmetic.travelled(last, step, length, settings["travel"])
                last = step
        return rates

    def observe(self, seen: Seen) -> None:
        self.step.copy_(seen.step)
        if seen.measurement is not None:
            self._measure(seen.measurement)

    def _measure(self, measurement: Measurement) -> None:
        due = self._now(self._due)
        squares = self._at_place(measurement.gram).diagonal(dim1=-2, dim2=-1)
        norms = squares.sqrt()
        pairs = torch.stack(torch.broadcast_tensors(norms[..., :1], norms[..., 1:]), dim=-1)
        running = arithmetic.running(self.norms, pairs, self._mean.unsqueeze(-1))
        self.norms.copy_(torch.where(due.unsqueeze(-1), running, self.norms))
        self.peaks.copy_(torch.fmax(self.peaks, self.norms))
        if measurement.products is not None and measurement.square is not None:
            products, square = (self._at_place(one) for one in (measurement.products, measurement.square))
            fresh = torch.cat((products, squares, square.unsqueeze(-1)), dim=-1)
            compared = arithmetic.running_products(self.compared, fresh, self._products_mean)
            self.compared.copy_(torch.where(due, compared, self.compared))
            cosines = arithmetic.cosines(self.compared)
            self.alignment.copy_(arithmetic.align(self.alignment, cosines, self._now(self._rates)))

    def _now(self, table: Tensor) -> Tensor:
        """Return this step's row of a table by step and point, ``(points, 1)``."""
        return table.index_select(0, self.step.view(1)).view(-1, 1)

    def _at_place(self, values: dict[str, Tensor]) -> Tensor:
        if len(self.places) == 1:
            return values[self.places[0]]
        last = self._last.view(-1, *(1,) * (values["all"].dim() - 2))
        return torch.where(last, values["last"], values["all"])

    def weights(self) -> Tensor:
        factors = arithmetic.strength_ratios(self.norms, self.peaks, self._follow, self._limit)
        factors = torch.where(self.norms[..., 0].isnan(), 1.0, factors * self._now(self._risen))
        found = arithmetic.coefficients(self._weights, self.alignment, factors)
        return torch.where(self._hold_base, found, found / found.sum(-1, keepdim=True))


def due_steps(steps: int, every: float = arithmetic.EVERY) -> list[int]:
    """Return all steps of a run that measure, counted from 0."""
    found, step = [], 0
    while step < steps:
        found.append(step)
        step = arithmetic.next_measurement(step, every)
    return found
