"""Learned weights."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import trainonce
from trainonce.study.weightings.base import Weighting
from trainonce.text import is_number, names_error, quoted

if TYPE_CHECKING:
    from pathlib import Path

    from torch.optim import Optimizer

    from trainonce.composite import NonFinite
    from trainonce.study.task import Task

#: The settings that came with gradient units. A point with raw units is written without them, as it always was.
UNITS = ("units", "blend", "limit", "at", "drift", "signal")


@dataclasses.dataclass(frozen=True)
class Learned(Weighting):
    """Learned weights: the starting ratio to the base, the decay, the preset, and the exponents' learning rate.

    With ``units="gradient"`` the losses are weighed in gradient units instead: ``blend`` and ``limit`` as in
    :class:`trainonce.GradientUnits` (None: its default), ``at`` the place, ``drift`` how far held-out data moves the
    exponents in a run. ``signal="loss"`` lets the paper's rule move them there, too, with ``decay``, ``preset`` and
    ``lr``.
    """

    init: float | Mapping[str, float] = 0.1
    decay: float = 2.0
    preset: str = "paper"
    lr: float | None = None
    units: str = "raw"
    blend: float | None = None
    limit: float | None = None
    at: str = "all"
    drift: float = 0.0
    signal: str = "held_out"
    kind = "learned"

    def __post_init__(self) -> None:
        """Numbers as floats: init=1 and init=1.0 are the same."""
        for name in ("init", "decay", "lr", "blend", "limit", "drift"):
            object.__setattr__(self, name, as_floats(getattr(self, name)))

    @property
    def measures(self) -> bool:
        return self.units == "gradient"

    def to_fields(self) -> dict[str, Any]:
        found = super().to_fields()
        return found if self.measures else {name: value for name, value in found.items() if name not in UNITS}

    def describe(self, digits: int) -> str:
        if not self.measures:
            return f"{self._describe_start(digits)}, {self._describe_rule(digits)}"
        return f"gradient units{self._describe_units(digits)}"

    def _describe_units(self, digits: int) -> str:
        shown = {"blend": self.blend, "limit": self.limit, "drift": self.drift or None}
        found = [f"{name} {value:.{digits}g}" for name, value in shown.items() if value is not None]
        found += [f"at {self.at}"] if self.at != "all" else []
        found += [self._describe_start(digits)] if self.init != 1.0 else []
        found += [f"signal loss, {self._describe_rule(digits)}"] if self.signal == "loss" else []
        return "".join(f", {one}" for one in found)

    def _describe_start(self, digits: int) -> str:
        starts = self.init.values() if isinstance(self.init, Mapping) else [self.init]
        return "init " + "/".join(f"{v:.{digits}g}" for v in starts)

    def _describe_rule(self, digits: int) -> str:
        rate = "" if self.lr is None else f", lr {self.lr:.{digits}g}"
        preset = "" if self.preset == "paper" else f", {self.preset}"
        return f"decay {self.decay:.{digits}g}{preset}{rate}"

    def check(self, task: Task) -> None:
        from trainonce.attachment import PRESETS

        if not isinstance(self.preset, str) or self.preset not in PRESETS:
            raise ValueError(f"A preset is one of {quoted(PRESETS)}; got {self.preset!r}.")
        self._check_units()
        values = {"decay": (self.decay, 0), "lr": (self.lr, 0), "drift": (self.drift, 0)}
        for name, (value, least) in values.items():
            if value is not None and not (is_number(value) and least <= value < math.inf):
                raise ValueError(f"The one-shot plan's {name} must be a number of at least {least}; got {value!r}.")
        if isinstance(self.init, Mapping) and set(self.init) != set(task.terms[1:]):
            raise names_error("The one-shot plan's init", task.terms[1:], list(self.init))
        for value in self.init.values() if isinstance(self.init, Mapping) else [self.init]:
            if not (is_number(value) and 0 < value < math.inf):
                raise ValueError(f"The one-shot plan's init is a ratio to the base weight, above 0; got {value!r}.")

    def _check_units(self) -> None:
        if self.units not in ("raw", "gradient"):
            raise ValueError(f"The one-shot plan has the units 'raw' and 'gradient'; got {self.units!r}.")
        if self.signal not in ("held_out", "loss"):
            raise ValueError(f"The one-shot plan's signal in units is 'held_out' or 'loss'; got {self.signal!r}.")
        if not self.measures:
            self._check_unused(*UNITS[1:], why="needs units=gradient; got raw units")
            return
        self.gradient_units()
        if self.signal == "loss":
            self._check_unused("drift", why="is for signal=held_out; got signal=loss")
        else:
            self._check_unused("decay", "preset", "lr", why="moves nothing in gradient units, unless with signal=loss")

    def _check_unused(self, *names: str, why: str) -> None:
        """Raise if a setting that has no effect here was given: it would be another trial with the same result."""
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        for name in names:
            if getattr(self, name) != defaults[name]:
                raise ValueError(f"The one-shot plan's {name} {why}.")

    def gradient_units(self) -> trainonce.GradientUnits:
        if self.at not in ("all", "last"):
            raise ValueError(
                f"The one-shot plan measures at 'all' shared parameters or at the 'last'; got {self.at!r}."
            )
        chosen: dict[str, Any] = {"blend": self.blend, "limit": self.limit, "shared": self.at}
        return trainonce.GradientUnits(**{name: value for name, value in chosen.items() if value is not None})

    def criterion(
        self, terms: tuple[str, ...], scale: float, nonfinite: NonFinite, source: Path | None
    ) -> trainonce.CompositeLoss:
        given: dict[str, Any] = {"init": self.init, "scale": scale, "nonfinite": nonfinite}
        if self.measures:
            signal = "loss" if self.signal == "loss" else self._held_out(None)
            given |= {"units": self.gradient_units(), "signal": signal}
        return trainonce.CompositeLoss(terms, **given)

    def attach(
        self, optimizer: Optimizer, criterion: trainonce.CompositeLoss, history: trainonce.History, steps: int | None
    ) -> trainonce.Attachment:
        if criterion.meter is not None and criterion.meter.drift is not None:
            criterion.meter.drift.settings = self._held_out(steps)
        return trainonce.attach(
            optimizer,
            criterion,
            decay=self.decay,
            lr=self.lr,
            preset=self.preset,  # type: ignore[arg-type]
            history=history,
        )

    def _held_out(self, steps: int | None) -> trainonce.HeldOut:
        """The drift of a run of so many steps; where they are not known, in the proportion of the two defaults."""
        from trainonce.units.settings import TRAVEL, TRAVEL_PER_FOLD

        return trainonce.HeldOut(steps, self.drift if steps else self.drift * TRAVEL_PER_FOLD / TRAVEL)


def as_floats(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: as_floats(v) for key, v in value.items()}
    return float(value) if is_number(value) else value
