"""Gradient units: every term divided by a norm of its gradient at the parameters that the terms share."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

import torch

from benchmarks.arena.gradients import PLACES, cosines
from benchmarks.arena.rules import unit_arithmetic as units
from benchmarks.arena.rules.base import Rule, Seen, Settings
from trainonce import functional

if TYPE_CHECKING:
    from torch import Tensor

    from benchmarks.arena.gradients import Measurement


class Units(Rule):
    """The rule of :mod:`~benchmarks.arena.rules.unit_arithmetic`, with these settings.

    ``p``: the blend of peak (0) and running norm (1). ``c``: the cap; None for none. ``norm``: ``"base"`` (its weight
    is constant) or ``"sum"`` (to 1). ``warm``: over how much of the run the auxiliary terms rise from 0;
    ``warm_steps``: the same in steps, added. ``every``: after what share of the steps so far to measure again; 0
    measures at every step. ``mean``: what is kept of the mean of squares. ``place``: ``"all"`` shared parameters or the
    ``"last"`` layer. ``travel``: the drift by the held-out gradient; 0 for none. ``prior``: exp(mu) at the start, one
    for all auxiliary terms or a list.
    ``rho``: mu follows the paper's gradient on the losses in units, with this decay; None leaves it alone.
    ``held_mean``: what is kept of the held-out gradient at a measurement; ``cosine_mean``: what is kept of its products
    with the terms' gradients. ``clock``: whether ``travel`` is per ``"run"`` or per factor e of the steps (``"log"``).
    """

    defaults: ClassVar[Settings] = {
        "p": 0.75,
        "c": 10.0,
        "norm": "base",
        "warm": 0.0,
        "warm_steps": 10,
        "every": 0.05,
        "mean": 0.5,
        "place": "all",
        "travel": 0.0,
        "prior": 1.0,
        "rho": None,
        "held_mean": 0.0,
        "cosine_mean": 0.9,
        "clock": "run",
    }
    off: ClassVar[Settings] = {
        "warm": 0.0,
        "warm_steps": 0,
        "travel": 0.0,
        "prior": 1.0,
        "rho": None,
        "held_mean": 0.0,
        "cosine_mean": 0.9,
        "clock": "run",
    }

    def start(self) -> None:
        run, terms = self.run, self.run.terms
        self.places = tuple(place for place in PLACES if any(s["place"] == place for s in self.settings))
        self.held_out = any(s["travel"] for s in self.settings)
        self._blend, self._cap, self._mean, self._travel = (self.column(n) for n in ("p", "c", "mean", "travel"))
        self._hold_base = self._mask("norm", "base")
        self._last = self._mask("place", "last")
        self._warm = (self.column("warm") * run.steps + self.column("warm_steps")).round()
        self._due = self.due().to(run.device)
        self._elapsed = self._times(self._due.cpu()).to(run.device, run.dtype)
        self._cosine_mean = self.column("cosine_mean")
        self.products, self.sizes = (run.full(self.points, terms, units.NOT_MEASURED) for _ in range(2))
        self.held_square = run.full(self.points, 1, units.NOT_MEASURED)
        self.squares = run.full(self.points, terms, units.NOT_MEASURED)
        self.peaks = run.full(self.points, terms, 0.0)
        self.mu = run.full(self.points, terms - 1, 0.0) + self._priors().log()
        self.step = torch.zeros((), dtype=torch.long, device=run.device)
        self._trains = any(s["rho"] is not None for s in self.settings)
        self._trained = torch.tensor([[s["rho"] is not None] for s in self.settings], device=run.device)
        self.learned = torch.zeros_like(self.mu)  # the part of mu that the optimizer trains
        self._pull = torch.zeros_like(self.mu)
        self._rho = self.run.tensor([[s["rho"] or 0.0] for s in self.settings])

    def _priors(self) -> Tensor:
        auxiliary, given = self.run.terms - 1, [s["prior"] for s in self.settings]
        return self.run.tensor([one if isinstance(one, list) else [one] * auxiliary for one in given])

    def _mask(self, name: str, value: str) -> Tensor:
        return torch.tensor([[s[name] == value] for s in self.settings], device=self.run.device)

    def due(self) -> Tensor:
        table = torch.zeros(self.run.steps, self.points, dtype=torch.bool)
        for point, settings in enumerate(self.settings):
            table[units.due_steps(self.run.steps, settings["every"]), point] = True
        return table

    def held_mean(self) -> Tensor:
        return self.column("held_mean").flatten()

    def observe(self, seen: Seen) -> None:
        self.step.copy_(seen.step)
        if seen.measurement is not None:
            self._measure(seen.step, seen.measurement)

    def _measure(self, step: Tensor, measurement: Measurement) -> None:
        due = self._due.index_select(0, step.view(1)).view(-1, 1)
        squares = self._at_place(measurement.gram).diagonal(dim1=-2, dim2=-1)
        mean = units.running_mean(self.squares, squares, self._mean)
        self.squares.copy_(torch.where(due, mean, self.squares))
        self.peaks.copy_(torch.maximum(self.peaks, self.norms))
        if measurement.products is not None and measurement.square is not None:
            aligned = self._cosines(due, measurement, squares)
            elapsed = self._elapsed.index_select(0, step.view(1)).view(-1, 1)
            moved = units.drift(self.mu, aligned, self._travel * elapsed)
            self.mu.copy_(torch.where(due & (self._travel != 0), moved, self.mu))

    def _cosines(self, due: Tensor, measurement: Measurement, squares: Tensor) -> Tensor:
        """With the held-out gradient, from running means of the products and of both squares."""
        assert measurement.products is not None
        assert measurement.square is not None
        now = (self._at_place(measurement.products), squares, self._at_place(measurement.square).unsqueeze(-1))
        kept = (self.products, self.sizes, self.held_square)
        for mean, value in zip(kept, now, strict=True):
            mean.copy_(torch.where(due, units.running_mean(mean, value, self._cosine_mean), mean))
        return cosines(self.products, self.sizes, self.held_square.squeeze(-1))

    def _at_place(self, values: dict[str, Tensor]) -> Tensor:
        if len(self.places) == 1:
            return values[self.places[0]]
        last = self._last.view(-1, *(1,) * (values["all"].dim() - 2))
        return torch.where(last, values["last"], values["all"])

    @property
    def norms(self) -> Tensor:
        """n, the roots of the running means."""
        return self.squares.sqrt()

    def _log_ratios(self) -> Tensor:
        return units.log_ratios(self.norms, self.peaks, self._blend, self._cap)

    def weights(self) -> Tensor:
        mu = torch.nn.functional.pad(self.mu + self.learned, (1, 0))
        warm = units.warm_factor(self.step, self._warm)
        return units.normalise(self._log_ratios() + mu, warm, self._hold_base)

    def _times(self, due: Tensor) -> Tensor:
        """Per step and point, how much of the drift's clock has passed since the last measurement before it."""
        passed = torch.zeros(due.shape, dtype=torch.float64)
        for point, settings in enumerate(self.settings):
            last = 0
            for step in due[:, point].nonzero().flatten().tolist():
                run = (step - last) / self.run.steps
                passed[step, point] = run if settings["clock"] == "run" else math.log((step + 1) / (last + 1))
                last = step
        return passed

    # The paper's gradient on the losses in units

    def parameters(self) -> list[Tensor]:
        return [self.learned] if self._trains else []

    def gradients(self, seen: Seen) -> list[Tensor]:
        if not self._trains:
            return []
        mu = self.mu + self.learned
        self._pull.copy_(functional.regularizer_grad(mu))
        base, peak = self.norms[..., :1], self.peaks[..., :1]
        unit = base**self._blend * peak ** (1 - self._blend)
        in_units = seen.losses * self._log_ratios().exp() / unit
        return [torch.where(self._trained, functional.composite_grad(mu, in_units), 0)]

    def after_step(self) -> None:
        if self._trains:
            self.learned.sub_(self._pull * (self._rho * self.run.lr))
