"""Weights around gradient units: several at the start of a training, of which the best go on."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from trainonce.study.weightings.learned import Learned, as_floats

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

    import trainonce
    from trainonce.halving import Halving
    from trainonce.states import Part
    from trainonce.study.task import Task


@dataclasses.dataclass(frozen=True)
class Halved(Learned):
    """As :class:`Learned` in gradient units, with the settings of :class:`trainonce.Halving`."""

    init: float | Mapping[str, float] = 1.0
    units: str = "gradient"
    drift: float = 4.0
    factors: tuple[float, ...] = (1 / 30, 30.0)
    rounds: tuple[float, ...] = (1 / 18, 1 / 9, 1 / 3)
    keep: tuple[int, ...] = (3, 2, 1)
    kind = "halving"
    goes_back = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("factors", "rounds", "keep"):
            given = getattr(self, name)
            values = tuple(map(as_floats, given if isinstance(given, (tuple, list)) else (given,)))
            object.__setattr__(self, name, tuple(map(_as_whole, values)) if name == "keep" else values)

    def check(self, task: Task) -> None:
        super().check(task)
        if not self.measures or self.signal == "loss":
            raise ValueError("The plan 'halving' needs gradient units whose exponents the loss does not move.")
        from trainonce.halving import round_ends, starts  # here: naming plans does without torch

        round_ends(task.steps or 10_000, self.rounds, self.keep)
        list(starts(task.terms, self.factors))

    def describe(self, digits: int) -> str:
        factors = (f"1/{1 / f:.{digits}g}" if f < 1 else f"{f:.{digits}g}" for f in self.factors)
        return f"{super().describe(digits)}, halving over {', '.join(factors)}"

    def to_fields(self) -> dict[str, Any]:
        return super().to_fields() | {name: list(getattr(self, name)) for name in ("factors", "rounds", "keep")}

    def halving(
        self,
        criterion: trainonce.CompositeLoss,
        steps: int,
        parts: Sequence[Part | torch.Generator],
        *,
        higher: bool,
    ) -> Halving:
        from trainonce.halving import Halving

        given = {"factors": self.factors, "rounds": self.rounds, "keep": self.keep}
        return Halving(criterion, steps, parts, higher=higher, **given)  # type: ignore[arg-type]


def _as_whole(value: Any) -> Any:
    """A number that was written as one; what is none is for :meth:`Halved.check` to refuse."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
