"""Fixed weights."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import TYPE_CHECKING, Any

import trainonce
from trainonce.study.weightings.base import Weighting
from trainonce.text import is_number, quoted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from trainonce.composite import NonFinite
    from trainonce.study.task import Task


@dataclasses.dataclass(frozen=True)
class Fixed(Weighting):
    """Fixed weights, which sum to 1."""

    weights: tuple[float, ...]
    kind = "fixed"
    digits = 3

    @classmethod
    def of(cls, values: tuple[float, ...]) -> Fixed:
        """The weighting with the given weights or ratios, divided by their sum."""
        if not all(is_number(v) and 0 <= v < math.inf for v in values) or math.fsum(values) <= 0:
            raise ValueError(f"Fixed weights are numbers of at least 0, not all 0; got {values}.")
        total = math.fsum(values)
        return cls(tuple(float(f"{v / total:.12g}") for v in values))  # the same from 1:10 and from 0.1:1

    @property
    def ratios(self) -> tuple[float, ...]:
        """Each auxiliary weight over the base weight."""
        base, *rest = self.weights
        return tuple(w / base if base else math.inf if w else math.nan for w in rest)

    def describe(self, digits: int) -> str:
        base = self.weights[0]
        return " : ".join(f"{w / base if base else w:.{digits}g}" for w in self.weights)

    def to_fields(self) -> dict[str, Any]:
        return {"weights": self.weights}  # of thousands of points, for which asdict would copy each number

    def check(self, task: Task) -> None:
        if len(self.weights) != len(task.terms):
            raise ValueError(
                f"Fixed weights for the task {task.name!r} need one value for each of {quoted(task.terms)}; "
                f"got {len(self.weights)} ({self.label})."
            )

    def criterion(
        self, terms: tuple[str, ...], scale: float, nonfinite: NonFinite, source: Path | None
    ) -> trainonce.CompositeLoss:
        weights = dict(zip(terms, self.weights, strict=True))
        return trainonce.FixedLoss(weights, scale=scale, nonfinite=nonfinite)


def grid(axes: Sequence[Sequence[float]]) -> list[Fixed]:
    """Every combination of the ratios of each auxiliary term, in order, each once.

    A manifest may hold the ratios alone, so the points must stay the same to the last digit.
    """
    return list(dict.fromkeys(Fixed.of((1.0, *ratios)) for ratios in itertools.product(*axes)))
