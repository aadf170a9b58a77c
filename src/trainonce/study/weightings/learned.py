"""A point: one choice of weights that a trial trains under. Plain data, so that a record of it can be read back."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import torch

import trainonce
from trainonce import functional
from trainonce.attachment import PRESETS
from trainonce.text import is_number, names_error, quoted

if TYPE_CHECKING:
    from pathlib import Path

    from torch.optim import Optimizer

    from trainonce.composite import NonFinite
    from trainonce.study.task import Task


@dataclasses.dataclass(frozen=True)
class Weighting:
    """The base of all points: how to make the criterion, and how to tie it to the optimizer."""

    kind: ClassVar[str]

    @property
    def resumable(self) -> bool:
        """Whether the criterion's state says all about it; otherwise an interrupted trial starts anew."""
        return True

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
        """The trial that must be there before this point's of a seed: its point and its seed."""
        return None

    @property
    def label(self) -> str:
        """What distinguishes this point within its plan."""
        raise NotImplementedError(self.kind)

    def check(self, task: Task) -> None:
        """Raise if the task cannot be trained under this point."""

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, **dataclasses.asdict(self)}


@dataclasses.dataclass(frozen=True)
class Fixed(Weighting):
    """Fixed weights, which sum to 1."""

    weights: tuple[float, ...]
    kind = "fixed"

    @classmethod
    def of(cls, values: tuple[float, ...]) -> Fixed:
        """The point with the given weights or ratios, divided by their sum."""
        if not all(is_number(v) and 0 <= v < math.inf for v in values) or math.fsum(values) <= 0:
            raise ValueError(f"Fixed weights are numbers of at least 0, not all 0; got {values}.")
        total = math.fsum(values)
        return cls(tuple(float(f"{v / total:.12g}") for v in values))  # the same point from 1:10 and from 0.1:1

    @property
    def ratios(self) -> tuple[float, ...]:
        """Each auxiliary weight over the base weight."""
        base, *rest = self.weights
        return tuple(w / base if base else math.inf if w else math.nan for w in rest)

    @property
    def label(self) -> str:
        base = self.weights[0]
        return " : ".join(f"{w / base if base else w:.3g}" for w in self.weights)

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


@dataclasses.dataclass(frozen=True)
class Learned(Weighting):
    """Learned weights: the starting ratio to the base, the decay, the preset, and the exponents' learning rate."""

    init: float | Mapping[str, float] = 0.1
    decay: float = 2.0
    preset: str = "paper"
    lr: float | None = None
    kind = "learned"

    def __post_init__(self) -> None:
        """Numbers as floats: init=1 and init=1.0 are one point."""
        for name, value in (("init", self.init), ("decay", self.decay), ("lr", self.lr)):
            object.__setattr__(self, name, _as_floats(value))

    @property
    def label(self) -> str:
        init = self.init
        ratio = "/".join(f"{v:g}" for v in init.values()) if isinstance(init, Mapping) else f"{init:g}"
        rate = "" if self.lr is None else f", lr {self.lr:g}"
        preset = "" if self.preset == "paper" else f", {self.preset}"
        return f"init {ratio}, decay {self.decay:g}{preset}{rate}"

    def check(self, task: Task) -> None:
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


@dataclasses.dataclass(frozen=True)
class Replay(Weighting):
    """The schedule of a run with learned weights, fed in whatever the losses are.

    The run is that of another seed (see :func:`donor`): with its own seed it would be the same run again, bit by bit.
    """

    of: Learned
    kind = "replay"

    @property
    def label(self) -> str:
        return self.of.label

    def needs(self, seed: int) -> tuple[Weighting, int] | None:
        return self.of, donor(seed)

    def check(self, task: Task) -> None:
        self.of.check(task)

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
        assert source is not None
        last = {name: values[-1] for name, values in _history(source).columns().items()}
        moved = [last[f"exponent/{t}"] + last[f"empirical/{t}"] + last[f"decay/{t}"] for t in terms[1:]]
        weights = functional.weights(torch.tensor(moved)).tolist()
        return trainonce.FixedLoss(dict(zip(terms, weights, strict=True)), scale=scale, nonfinite=nonfinite)


def _history(folder: Path) -> trainonce.History:
    if not (folder / HISTORY).is_file():
        raise FileNotFoundError(
            f"The control needs the history of a one-shot run in {folder}, and it is gone. Compare in a new folder."
        )
    return trainonce.History.load(folder / HISTORY)


def _as_floats(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _as_floats(v) for key, v in value.items()}
    return float(value) if is_number(value) else value


def donor(seed: int) -> int:
    """The seed whose learned weights a control of this seed uses: the one before, or 1 for seed 0."""
    return seed - 1 if seed else 1


#: The file of a trial's history, in its folder.
HISTORY = "history.jsonl"


def digest(content: Any) -> str:
    """A short name for JSON data."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:20]


def key_of(identity: str, weighting: Weighting, seed: int) -> str:
    """The name of a trial: what was trained, under which point, from which seed."""
    return digest([identity, weighting.to_json(), seed])
