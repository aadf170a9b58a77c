"""What a rule is: weights for P points at once, in every seed, from what it sees of each step.

A rule's settings are tensors over its points, so that dozens of variants of it run in one stack. All of its state is in
tensors that are changed in place: a step may be a CUDA graph, and a stack can be copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from benchmarks.arena.gradients import PLACES

if TYPE_CHECKING:
    from torch import Tensor

    from benchmarks.arena.gradients import Measurement

Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Run:
    """What a rule is told of the trainings: ``terms`` is K + 1, ``lr`` the optimizer's, current."""

    seeds: tuple[int, ...]
    terms: int
    steps: int
    lr: Tensor
    device: torch.device
    dtype: torch.dtype

    def tensor(self, values: Any) -> Tensor:
        return torch.tensor(values, device=self.device, dtype=self.dtype)

    def full(self, points: int, last: int, value: float) -> Tensor:
        """A tensor ``(S, points, last)``."""
        return torch.full((len(self.seeds), points, last), value, device=self.device, dtype=self.dtype)


@dataclass(frozen=True)
class Seen:
    """What is known of a step: its number (on the device), the losses ``(S, P, K + 1)``, and where measured more."""

    step: Tensor
    losses: Tensor
    measurement: Measurement | None = None

    def narrow(self, start: int, points: int) -> Seen:
        """The part of it that belongs to some of the points."""
        measurement = None if self.measurement is None else self.measurement.narrow(start, points)
        return Seen(self.step, self.losses.narrow(1, start, points), measurement)


class Rule:
    """The weights of some points. Subclasses set ``defaults`` and override what they need.

    In a step: :meth:`observe`, then :meth:`weights`, then :meth:`gradients` for the rule's own parameters, which are in
    the model's optimizer, then the optimizer's step, then :meth:`after_step`.
    """

    defaults: ClassVar[Settings] = {}
    off: ClassVar[Settings] = {}  # the values of settings that do nothing; records leave them out
    places: tuple[str, ...] = ()  # where it needs the gradients' Gram matrix
    held_out = False

    def __init__(self, settings: Sequence[Settings], run: Run) -> None:
        self.settings = [complete(self.defaults, given, type(self).__name__) for given in settings]
        self.points, self.run = len(settings), run
        self.start()

    def start(self) -> None:
        """Make the state."""

    def due(self) -> Tensor:
        """At which steps each point measures, ``(steps, points)``, on the CPU."""
        return torch.full((self.run.steps, self.points), bool(self.places))

    def held_mean(self) -> Tensor:
        """What each point keeps of the held-out gradient at a measurement, ``(points,)``."""
        return self.run.tensor([0.0] * self.points)

    def parameters(self) -> list[Tensor]:
        """What the model's optimizer trains beside the model."""
        return []

    def observe(self, seen: Seen) -> None:
        """Change the state by what is seen, before the weights are asked for."""

    def weights(self) -> Tensor:
        """The weights of this step, ``(S, points, K + 1)``."""
        raise NotImplementedError

    def gradients(self, seen: Seen) -> list[Tensor]:
        """The gradients of :meth:`parameters`."""
        return []

    def after_step(self) -> None:
        """Whatever follows the optimizer's step."""

    def column(self, name: str) -> Tensor:
        """A setting as a tensor ``(points, 1)``; None counts as infinity."""
        return self.run.tensor([[float("inf") if s[name] is None else float(s[name])] for s in self.settings])


class Together(Rule):
    """Several rules in one stack, their points side by side."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules, self.run = rules, rules[0].run
        self.points = sum(rule.points for rule in rules)
        self.places = tuple(place for place in PLACES if any(place in rule.places for rule in rules))
        self.held_out = any(rule.held_out for rule in rules)

    def due(self) -> Tensor:
        return torch.cat([rule.due() for rule in self.rules], dim=1)

    def held_mean(self) -> Tensor:
        return torch.cat([rule.held_mean() for rule in self.rules])

    def parameters(self) -> list[Tensor]:
        return [parameter for rule in self.rules for parameter in rule.parameters()]

    def observe(self, seen: Seen) -> None:
        for rule, part in self._parts(seen):
            rule.observe(part)

    def weights(self) -> Tensor:
        return torch.cat([rule.weights() for rule in self.rules], dim=1)

    def gradients(self, seen: Seen) -> list[Tensor]:
        return [gradient for rule, part in self._parts(seen) for gradient in rule.gradients(part)]

    def after_step(self) -> None:
        for rule in self.rules:
            rule.after_step()

    def _parts(self, seen: Seen) -> list[tuple[Rule, Seen]]:
        starts = [sum(rule.points for rule in self.rules[:i]) for i in range(len(self.rules))]
        return [(rule, seen.narrow(at, rule.points)) for rule, at in zip(self.rules, starts, strict=True)]


def complete(defaults: Settings, given: Settings, rule: str) -> dict[str, Any]:
    """The settings with their defaults; an unknown one is an error."""
    unknown = [name for name in given if name not in defaults]
    if unknown:
        raise ValueError(f"{rule} has the settings {', '.join(defaults) or 'none'}; got {', '.join(unknown)}.")
    return {**defaults, **given}
