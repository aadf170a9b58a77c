"""A weighting: one choice of weights that a trial trains under. Plain data, so that a record of it can be read back."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import TYPE_CHECKING, Any, ClassVar

import trainonce

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch.optim import Optimizer

    from trainonce.composite import NonFinite
    from trainonce.study.task import Task


@dataclasses.dataclass(frozen=True)
class Weighting:
    """The base of all weightings: how to make the criterion, and how to tie it to the optimizer."""

    kind: ClassVar[str]

    @property
    def resumable(self) -> bool:
        """Whether the criterion's state says all about it; otherwise an interrupted trial starts anew."""
        return True

    #: Whether steps of a training come several times, with ``trial.loop``.
    goes_back: ClassVar[bool] = False

    @property
    def measures(self) -> bool:
        """Whether the criterion runs backward through the losses at times, besides the loop's own pass."""
        return False

    def criterion(
        self, terms: tuple[str, ...], scale: float, nonfinite: NonFinite, source: Path | None
    ) -> trainonce.CompositeLoss:
        """The criterion; ``source`` is the folder of the trial that :meth:`needs` names."""
        raise NotImplementedError(self.kind)

    def attach(
        self, optimizer: Optimizer, criterion: trainonce.CompositeLoss, history: trainonce.History, steps: int | None
    ) -> trainonce.Attachment:
        return trainonce.attach(optimizer, criterion, decay=0.0, history=history)

    def needs(self, seed: int) -> tuple[Weighting, int] | None:
        """The trial that must have ended before this one of a seed: its weighting and its seed."""
        return None

    #: How many digits of its numbers a label shows.
    digits: ClassVar[int] = 6

    @property
    def label(self) -> str:
        """What distinguishes this weighting within its plan. Of two that are very close :func:`labels` shows more."""
        return self.describe(self.digits)

    def describe(self, digits: int) -> str:
        """What distinguishes this weighting within its plan, with so many digits of each number."""
        raise NotImplementedError(self.kind)

    def check(self, task: Task) -> None:
        """Raise if the task cannot be trained under this weighting."""

    def to_json(self) -> dict[str, Any]:
        """What a record holds: the kind and the fields."""
        return {"kind": self.kind, **self.to_fields()}

    def to_fields(self) -> dict[str, Any]:
        """The fields as JSON can hold them."""
        return dataclasses.asdict(self)


def labels(weightings: Sequence[Weighting]) -> list[str]:
    """The labels of a plan's weightings, with more digits where different weightings would have the same."""
    found = [weighting.label for weighting in weightings]
    for digits in (6, 9, 12, 17):
        groups: dict[str, list[int]] = {}
        for index, label in enumerate(found):
            groups.setdefault(label, []).append(index)
        alike = [i for same in groups.values() if any(weightings[i] != weightings[same[0]] for i in same) for i in same]
        for index in alike:
            found[index] = weightings[index].describe(digits)
    return found


def key_of(identity: str, weighting: Weighting, seed: int) -> str:
    """The key of a trial: a hash of what was trained, under which weighting, from which seed."""
    return digest([identity, {"kind": weighting.kind, **without_defaults(weighting)}, seed])


def without_defaults(value: Any) -> dict[str, Any]:
    """The fields of a dataclass that differ from their defaults, those of dataclasses inside it likewise.

    Keys are made of them, so a new setting with a default leaves all stored results valid. A default that is changed
    later gives old keys a new meaning: re-key what is stored with ``benchmarks/records.py`` before.
    """
    found = {}
    for field in dataclasses.fields(value):
        content = getattr(value, field.name)
        factory = field.default_factory
        default = field.default if factory is dataclasses.MISSING else factory()
        if content != default:
            found[field.name] = without_defaults(content) if dataclasses.is_dataclass(content) else content
    return found


def digest(content: Any) -> str:
    """A short name for JSON data."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:20]
