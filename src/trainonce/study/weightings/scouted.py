"""Weights in gradient units, with scouts that lower a term where the training is better with less of it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from trainonce.study.weightings.learned import Learned, as_floats

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

    import trainonce
    from trainonce.scouts import Scouts
    from trainonce.states import Part
    from trainonce.study.task import Task


@dataclasses.dataclass(frozen=True)
class Scouted(Learned):
    """As :class:`Learned` in gradient units, with the settings of :class:`trainonce.Scouts`."""

    init: float | Mapping[str, float] = 1.0
    units: str = "gradient"
    moments: tuple[float, ...] = (0.0, 0.1, 0.35)
    length: float = 0.08
    levels: tuple[float, ...] = (1 / 30,)
    errors: float = 2.0
    margin: float = 0.01
    kind = "scout"
    goes_back = True

    def __post_init__(self) -> None:
        super().__post_init__()
        moments = self.moments if isinstance(self.moments, (tuple, list)) else (self.moments,)
        object.__setattr__(self, "moments", tuple(map(as_floats, moments)))
        levels = self.levels if isinstance(self.levels, (tuple, list)) else (self.levels,)
        object.__setattr__(self, "levels", tuple(map(as_floats, levels)))
        for name in ("length", "errors", "margin"):
            object.__setattr__(self, name, as_floats(getattr(self, name)))

    def check(self, task: Task) -> None:
        super().check(task)
        if not self.measures or self.signal == "loss":
            raise ValueError("The plan 'scout' needs gradient units whose exponents the loss does not move.")
        from trainonce.scouts import branches, checked_levels  # here: naming plans does without torch

        branches(task.steps or 10_000, self.moments, self.length)
        checked_levels(self.levels)

    def describe(self, digits: int) -> str:
        when = "/".join(f"{moment:.{digits}g}" for moment in self.moments)
        return f"{super().describe(digits)}, scouts at {when}"

    def to_fields(self) -> dict[str, Any]:
        return super().to_fields() | {"moments": list(self.moments), "levels": list(self.levels)}

    def scouts(
        self,
        criterion: trainonce.CompositeLoss,
        steps: int,
        parts: Sequence[Part | torch.Generator],
        *,
        higher: bool,
    ) -> Scouts:
        from trainonce.scouts import Scouts

        return Scouts(
            criterion,
            steps,
            parts,
            higher=higher,
            at=self.moments,
            length=self.length,
            levels=self.levels,
            errors=self.errors,
            margin=self.margin,
        )
