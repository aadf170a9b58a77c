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


@dataclasses.dataclass(frozen=True)
class Learned(Weighting):
    """Learned weights: the starting ratio to the base, the decay, the preset, and the exponents' learning rate."""

    init: float | Mapping[str, float] = 0.1
    decay: float = 2.0
    preset: str = "paper"
    lr: float | None = None
    kind = "learned"

    def __post_init__(self) -> None:
        """Numbers as floats: init=1 and init=1.0 are the same."""
        for name, value in (("init", self.init), ("decay", self.decay), ("lr", self.lr)):
            object.__setattr__(self, name, _as_floats(value))

    def describe(self, digits: int) -> str:
        starts = self.init.values() if isinstance(self.init, Mapping) else [self.init]
        ratio = "/".join(f"{v:.{digits}g}" for v in starts)
        rate = "" if self.lr is None else f", lr {self.lr:.{digits}g}"
        preset = "" if self.preset == "paper" else f", {self.preset}"
        return f"init {ratio}, decay {self.decay:.{digits}g}{preset}{rate}"

    def check(self, task: Task) -> None:
        from trainonce.attachment import PRESETS

        if not isinstance(self.preset, str) or self.preset not in PRESETS:
            raise ValueError(f"A preset is one of {quoted(PRESETS)}; got {self.preset!r}.")
        values = {"decay": (self.decay, 0), "lr": (self.lr, 0)}
        for name, (value, least) in values.items():
            if value is not None and not (is_number(value) and least <= value < math.inf):
                raise ValueError(f"The one-shot plan's {name} must be a number of at least {least}; got {value!r}.")
        if isinstance(self.init, Mapping) and set(self.init) != set(task.terms[1:]):
            raise names_error("The one-shot plan's init", task.terms[1:], list(self.init))
        for value in self.init.values() if isinstance(self.init, Mapping) else [self.init]:
            if not (is_number(value) and 0 < value < math.inf):
                raise ValueError(f"The one-shot plan's init is a ratio to the base weight, above 0; got {value!r}.")

    def criterion(
        self, terms: tuple[str, ...], scale: float, nonfinite: NonFinite, source: Path | None
    ) -> trainonce.CompositeLoss:
        return trainonce.CompositeLoss(terms, init=self.init, scale=scale, nonfinite=nonfinite)

    def attach(
        self, optimizer: Optimizer, criterion: trainonce.CompositeLoss, history: trainonce.History, steps: int | None
    ) -> trainonce.Attachment:
        return trainonce.attach(
            optimizer,
            criterion,
            decay=self.decay,
            lr=self.lr,
            preset=self.preset,  # type: ignore[arg-type]
            history=history,
        )


def _as_floats(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _as_floats(v) for key, v in value.items()}
    return float(value) if is_number(value) else value
