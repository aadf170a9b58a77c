"""The checks behind the health warnings: of the calls of a criterion, and of its state at chosen steps.

The state is sampled at steps 1, 10, 100, 1000 and every 1000 after. What is needed from the device is copied without
waiting.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch

from trainonce import distributed, health
from trainonce.readback import Readback, is_capturing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainonce.attachment import Attachment
    from trainonce.weighting import LossWeighting

PATIENCE = 100  # training calls or steps before a warning that something is not connected
IDLE = 1000  # training calls without a step of the optimizer, which accumulation may need some of
CALLS = frozenset((PATIENCE, IDLE))
COLLAPSED = 0.99
DEAD = 1e-4
SCALES = 100.0


def check_calls(criterion: LossWeighting) -> None:
    """Do what is due at a criterion's first training call, and after many without a step of its optimizer."""
    call, attachment = criterion._call, criterion.attachment
    if call.training == 1 and distributed.is_distributed():
        distributed.check_placement(criterion)
        if attachment is not None:
            attachment.meet()
    if attachment is not None:
        if call.idle == IDLE:
            health.warn(criterion, health.NeverStepped, calls=IDLE, steps=attachment.steps)
    elif call.idle == PATIENCE and criterion.follows_steps and not criterion.frozen:
        health.warn(criterion, health.NotAttached, calls=PATIENCE)


class Sample(NamedTuple):
    """The state of a criterion at one step, on the host."""

    step: int
    parts: list[float]  # of the sum of the coefficients
    trained: list[float]
    losses: list[float]


class StepWatch:
    """Takes a sample of an attached criterion at chosen steps and warns of what is wrong with it."""

    def __init__(self) -> None:
        self._next = 1
        self._zero: set[str] = set()
        self._idle = 0
        self._reading: tuple[int, Readback] | None = None

    def idle_step(self, attachment: Attachment) -> None:
        """Count a step of the optimizer before which the criterion was not called."""
        self._idle += 1
        criterion = attachment.criterion
        if self._idle == PATIENCE and criterion.follows_steps and criterion._call.last is None:
            evaluated = criterion._call.evaluated
            found = f"{evaluated} calls were in evaluation mode" if evaluated else "it was not called at all"
            health.warn(criterion, health.NeverCalled, steps=self._idle, found=found)

    def after_step(self, attachment: Attachment) -> None:
        if attachment.steps < self._next and self._reading is None:
            return
        last = attachment.criterion._call.last
        if last is None or is_capturing(last.losses):
            return
        if attachment.steps >= self._next:
            self._next = self._next * 10 if self._next < 1000 else self._next + 1000
            self._take_sample(attachment)
        self._read_sample(attachment)

    def _take_sample(self, attachment: Attachment) -> None:
        criterion, group = attachment.criterion, attachment.group
        if group is None:
            return
        if group.get("weight_decay", 0) != 0 and attachment.own_pace is None:
            health.warn(criterion, health.WeightDecay, weight_decay=group["weight_decay"])
        found = attachment.replaced_lr_ratio()
        if found is not None:
            health.warn(criterion, health.LearningRateReset, ratio=attachment.lr_ratio, found=found)
        assert criterion.trainable is not None
        assert criterion._call.last is not None
        own = getattr(criterion, criterion.trainable).detach()
        if distributed.is_sharded(own):
            return  # its values would need a collective call; the sharding keeps the ranks equal
        coefficients = criterion.coefficients()
        parts = [coefficients / coefficients.sum(), own.reshape(-1), criterion._call.last.pad()]
        if attachment._is_several():
            parts.append(distributed.rank_difference(own, attachment._group).reshape(-1))
        self._reading = (attachment.steps, Readback(torch.cat([part.to(coefficients.dtype) for part in parts])))

    def _read_sample(self, attachment: Attachment) -> None:
        criterion = attachment.criterion
        if self._reading is None or not self._reading[1].ready():
            return
        step, reading = self._reading
        self._reading = None
        assert criterion.trainable is not None
        values, n = reading.value().tolist(), len(criterion.terms)
        k = getattr(criterion, criterion.trainable).numel()
        parts, trained, losses = values[:n], values[n : n + k], values[n + k : n + k + n]
        sample = Sample(step, parts, trained, losses)
        zero = {t for t, v in zip(criterion.terms, losses, strict=True) if v == 0}
        start = criterion.start_coefficients().tolist()
        for category, found in diagnose(criterion.terms, sample, start, self._zero & zero):
            if category is health.OtherScale and not criterion.compares_raw:
                continue
            health.warn(criterion, category, **found)
        self._zero = zero
        difference = max(map(abs, values[2 * n + k :]), default=0.0)
        if difference > 0:
            health.warn(criterion, health.RanksDiffer, difference=difference)


def diagnose(
    terms: tuple[str, ...], sample: Sample, start: list[float], zero: set[str]
) -> Iterator[tuple[type[health.HealthWarning], dict[str, object]]]:
    """Yield the warnings a sample calls for.

    ``start``: the coefficients before the first step; ``zero``: terms that were 0 twice running.
    """
    if not all(map(math.isfinite, sample.trained)):
        yield health.NotFinite, {"values": sample.trained}
    for term, part, first in zip(terms, sample.parts, start, strict=True):
        begin = first / sum(start)
        if part > COLLAPSED and 1 - part < 0.5 * (1 - begin):  # a tiny init starts there, by choice
            yield health.Collapsed, {"term": term, "part": part}
        if part < DEAD and part < 0.1 * begin:
            yield health.DeadTerm, {"term": term, "reason": f"its coefficient fell to {part:.1e} of their sum"}
    for term in sorted(zero):
        yield health.DeadTerm, {"term": term, "reason": "its loss is exactly 0"}
    sizes = {t: abs(v) for t, v in zip(terms, sample.losses, strict=True) if v and math.isfinite(v)}
    if len(sizes) > 1:
        largest, smallest = max(sizes, key=sizes.__getitem__), min(sizes, key=sizes.__getitem__)
        high, low = sizes[largest], sizes[smallest]
        if high >= SCALES * low and sample.step >= 10:  # at the start a term can be near 0 before it is itself
            facts = {"ratio": high / low, "largest": largest, "high": high, "smallest": smallest, "low": low}
            yield health.OtherScale, facts
