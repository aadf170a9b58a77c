"""Controls: weights that a run with learned weights found, used by a training that learns none."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import trainonce
from trainonce.study import layout
from trainonce.study.weightings.base import Weighting

if TYPE_CHECKING:
    from pathlib import Path

    from trainonce.composite import NonFinite
    from trainonce.study.record import Record
    from trainonce.study.task import Task
    from trainonce.study.weightings.learned import Learned


@dataclasses.dataclass(frozen=True)
class Replay(Weighting):
    """The schedule of a run with learned weights, replayed whatever the losses are.

    The run is that of another seed (see :func:`donor`): with its own seed it would be the same run again, bit for bit.
    """

    of: Learned
    kind = "replay"

    def describe(self, digits: int) -> str:
        return self.of.describe(digits)

    def needs(self, seed: int) -> tuple[Weighting, int] | None:
        return self.of, donor(seed)

    def check(self, task: Task) -> None:
        self.of.check(task)

    def to_fields(self) -> dict[str, Any]:
        return {"of": self.of.to_fields()}

    def criterion(
        self, terms: tuple[str, ...], scale: float, nonfinite: NonFinite, source: Path | None
    ) -> trainonce.CompositeLoss:
        assert source is not None
        return trainonce.replay(_history(source), scale=scale, nonfinite=nonfinite)


@dataclasses.dataclass(frozen=True)
class Final(Replay):
    """The last weights of a run with learned weights, of another seed, held from the first step on."""

    kind = "final"

    def criterion(
        self, terms: tuple[str, ...], scale: float, nonfinite: NonFinite, source: Path | None
    ) -> trainonce.CompositeLoss:
        import torch

        assert source is not None
        history = _history(source)
        if history.units:  # the exponents say nothing of the units: the weights of the last step, with their sum
            return trainonce.ReplayLoss(terms, history.weights()[-1:], scale=scale, nonfinite=nonfinite)
        last = {name: values[-1] for name, values in history.columns().items()}
        moved = [last[f"exponent/{t}"] + last[f"empirical/{t}"] + last[f"decay/{t}"] for t in terms[1:]]
        weights = trainonce.functional.weights(torch.tensor(moved)).tolist()
        return trainonce.FixedLoss(dict(zip(terms, weights, strict=True)), scale=scale, nonfinite=nonfinite)


def _history(folder: Path) -> trainonce.History:
    if not (folder / layout.HISTORY).is_file():
        raise FileNotFoundError(
            f"The control needs the history of a one-shot run in {folder}, and it is gone. Compare in a new folder."
        )
    return trainonce.History.load(folder / layout.HISTORY)


def obstacle(source: Record) -> str:
    """Why no control can be made from a one-shot run that has ended, in words; nothing where one can."""
    if source.status == "failed":
        return f"the one-shot run of seed {source.seed} failed"
    if not all(map(math.isfinite, source.weights)):
        return f"the weights of the one-shot run of seed {source.seed} diverged"
    return ""


def donor(seed: int) -> int:
    """The seed whose learned weights a control of this seed uses: the one before, or 1 for seed 0."""
    return seed - 1 if seed else 1
