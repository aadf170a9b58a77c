"""Scouts: at a few moments of a training, short branches ask whether a term is better weaker, or put back.

Every group of a stack is one training: its first point goes on as it is, the others try one change each. At the end of
a branch the best one is what all points of the group go on from, if it is clearly better. Between branches the points
of a group train alike; only the cost that a real training would have is counted.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import torch

from benchmarks.arena import records
from benchmarks.arena.rules import Point
from benchmarks.arena.stack import Stack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from benchmarks.arena.records import Record
    from benchmarks.arena.rules import Settings
    from benchmarks.arena.stack import Result
    from benchmarks.arena.task import Task
    from benchmarks.arena.variant import Variant


@dataclass(frozen=True)
class Scouts:
    """When branches start and how long they are, as shares of the run, and what counts as clearly better.

    A change is made if it is better by ``errors`` standard errors of the readings plus ``margin`` of the value.
    ``levels``: the parts of its weight that are tried for each term. Each branch is read ``readings`` times over its
    last ``tail``.
    """

    at: tuple[float, ...] = (0.0, 0.1, 0.35)
    length: tuple[float, ...] = (0.08, 0.08, 0.08)
    errors: float = 2.0
    margin: float = 0.01
    levels: tuple[float, ...] = (1 / 30,)
    readings: int = 5
    tail: float = 0.5

    def point(self, settings: Settings) -> Point:
        """What records call a training with these scouts, by its settings of units and theirs."""
        mine = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}
        return Point("scouts", {**settings, **mine})

    def cost(self, terms: int) -> float:
        """In trainings."""
        return 1 + (terms - 1) * len(self.levels) * sum(self.length)


class Scouting:
    """The branches of a stack whose points are groups of one training and its changes."""

    def __init__(
        self, task: Task, scouts: Scouts, settings: Sequence[Settings], seeds: Sequence[int], **of_stack: object
    ):
        self.task, self.scouts = task, scouts
        self.terms = len(task.terms)
        self.changes = 1 + (self.terms - 1) * len(scouts.levels)
        self.settings, self.groups = list(settings), len(settings)
        points = [Point("units", one) for one in settings for _ in range(self.changes)]
        self.stack = Stack(task, points, seeds, **of_stack)  # type: ignore[arg-type]
        self.rule = self.stack.rule.rules[0]
        steps = self.stack.steps
        self._begin = {
            round(at * steps): round(length * steps) for at, length in zip(scouts.at, scouts.length, strict=True)
        }
        self._reads: dict[int, int] = {}
        self._readings: list[Tensor] = []
        self.answers: list[Tensor] = []  # (S, groups) of each branch: which change was made, 0 for none

    def train(self) -> Result:
        self._after(0)  # a branch may start with the training
        return self.stack.train(after=self._after)

    def records(self, result: Result, variant: Variant) -> list[Record]:
        """One record a training, with what each branch answered: the number of the change that was made, 0 for none."""
        count = len(self.stack.seeds) * self.groups
        return [
            {
                **records.head(self.task.name, variant, self.scouts.point(settings), seed),
                "cost": round(self.scouts.cost(self.terms), 3),
                **records.outcome(result, s, group * self.changes),
                "answers": [answer[s, group].item() for answer in self.answers],
                "seconds": round(result.seconds / count, 6),
                **records.machine(self.stack.device),
            }
            for s, seed in enumerate(self.stack.seeds)
            for group, settings in enumerate(self.settings)
        ]

    def _after(self, step: int) -> None:
        length = self._begin.get(step)
        if length:
            self._ask()
            span = max(1, round(length * self.scouts.tail))
            count = self.scouts.readings
            at = sorted({step + length - round(span * i / count) for i in range(count)})
            self._reads = dict.fromkeys(at, step + length)
            self._readings = []
        if step in self._reads:
            self._readings.append(self.stack.score("validation"))
            if step == self._reads[step]:
                self._answer()
                self._reads = {}

    def _ask(self) -> None:
        """Give each point of a group its change."""
        asked = self._grouped(self.rule.asked)
        levels = asked.new_tensor([1.0, *self.scouts.levels]).log()
        others = len(levels) - 1
        for term in range(self.terms - 1):
            level = (asked[:, :, 0, term, None] - levels).abs().argmin(-1)
            for i in range(others):  # the levels in order, without the one that the term is at
                asked[:, :, 1 + term * others + i, term] = levels[torch.where(level <= i, i + 1, i)]
        self.rule.asked.copy_(asked.flatten(1, 2))

    def _answer(self) -> None:
        """Let all points of a group go on from the best."""
        sign = 1.0 if self.task.higher else -1.0
        read = torch.stack([self._grouped(one) for one in self._readings], dim=-1) * sign  # (S, G, C, readings)
        ahead = torch.nan_to_num(read - read[:, :, :1], nan=-math.inf)
        mean = ahead.mean(-1)
        error = ahead.std(-1) / ahead.shape[-1] ** 0.5
        needed = self.scouts.errors * error + self.scouts.margin * read[:, :, :1].mean(-1).abs()
        clear = torch.where(mean > torch.nan_to_num(needed, nan=math.inf), mean, -math.inf)
        clear[:, :, 0] = 0.0
        best = clear.argmax(-1)  # (S, G)
        self.answers.append(best.cpu())
        first = torch.arange(self.groups, device=best.device) * self.changes
        points = (first + best).unsqueeze(-1).expand(*best.shape, self.changes).flatten(1)
        self.stack.take_from(points)

    def _grouped(self, values: Tensor) -> Tensor:
        return values.unflatten(1, (self.groups, self.changes)).clone()
