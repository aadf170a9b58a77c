"""The checks behind the health warnings: CallWatch counts a criterion's calls, StepWatch samples its state.

They run at steps 1, 10, 100, 1000 and every 1000 after. What they need from the device is copied without waiting.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch

from trainonce import distributed, health
from trainonce.readback import Readback, is_capturing
from trainonce.text import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor, nn

    from trainonce.attachment import Attachment
    from trainonce.composite import CompositeLoss

PATIENCE = 100  # training calls or steps before a warning that nothing moves
COLLAPSED = 0.99
DEAD = 1e-4
SCALES = 100.0
RUNAWAY = 100.0


class CallWatch:
    """Counts training calls of a criterion and warns when nothing trains it."""

    def __init__(self) -> None:
        self.calls = 0
        self._next = 1
        self._eager = False
        self._first: Tensor | None = None
        self._moved: Readback | None = None

    @property
    def needs_backward(self) -> bool:
        """Whether backward passes are to be counted as calls: none was seen outside torch.compile so far."""
        return not self._eager and self.calls <= 10 * PATIENCE

    def follow(self, exponents: nn.Parameter, count: Callable[[], None]) -> None:
        """Count calls by their backward passes until the first one outside torch.compile.

        A compiled call runs none of the Python that counts; the hook of a gradient still does.
        """

        def after_backward(_: Tensor) -> None:
            if self.needs_backward:
                count()
            else:
                handle.remove()

        handle = exponents.register_post_accumulate_grad_hook(after_backward)  # type: ignore[no-untyped-call]

    def count(self, criterion: CompositeLoss, *, eager: bool) -> None:
        self._eager |= eager
        self.calls += 1
        if self.calls < self._next:
            return
        if self.calls == 1:
            self._next = PATIENCE
            self._first = criterion.exponents.detach().clone()
        elif self._first is not None and criterion.learned:
            self._compare(criterion, self._first)

    def _compare(self, criterion: CompositeLoss, first: Tensor) -> None:
        attachment = criterion.attachment
        if attachment is not None:
            if self.calls >= 10 * PATIENCE:
                self._first = None
                if attachment.steps == 0:
                    health.warn(criterion, health.NeverStepped, calls=self.calls)
            return
        exponents = criterion.exponents.detach()
        if criterion.frozen or is_capturing(exponents) or distributed.is_sharded(exponents):
            return
        if self._moved is None:
            self._moved = Readback(_differ(exponents, first.to(exponents.device)))
        if self._moved.ready():
            moved = bool(self._moved.value())
            self._first = None
            health.warn(criterion, health.NotAttached if moved else health.NotInOptimizer, calls=self.calls)


class Sample(NamedTuple):
    """The state of a criterion at one step, on the host."""

    step: int
    weights: list[float]
    exponents: list[float]
    losses: list[float]


class StepWatch:
    """Takes a sample of an attached criterion at chosen steps and warns of what is wrong with it."""

    def __init__(self) -> None:
        self._next = 1
        self._first: Sample | None = None
        self._zero: set[str] = set()
        self._after: Tensor | None = None
        self._foreign = 0
        self._idle = 0
        self._reading: tuple[int, Readback] | None = None
        self._outside: Readback | None = None

    def idle_step(self, attachment: Attachment) -> None:
        """A step of the optimizer before which the criterion was not called."""
        self._idle += 1
        if self._idle == PATIENCE and attachment.criterion.learned and not attachment.criterion._training_calls:
            health.warn(attachment.criterion, health.NeverCalled, steps=self._idle)

    def before_step(self, exponents: Tensor) -> None:
        if self._after is not None:
            if not is_capturing(exponents):
                self._outside = Readback(_differ(exponents.detach(), self._after))
            self._after = None

    def after_step(self, attachment: Attachment, exponents: Tensor) -> None:
        waiting = attachment.steps >= self._next or self._reading is not None or self._outside is not None
        if not waiting or is_capturing(exponents):
            return
        if attachment.steps >= self._next:
            self._next = self._next * 10 if self._next < 1000 else self._next + 1000
            self._take_sample(attachment, exponents)
        self._read_samples(attachment)

    def _take_sample(self, attachment: Attachment, exponents: Tensor) -> None:
        criterion, group = attachment.criterion, attachment.group
        if group.get("weight_decay", 0) != 0:
            health.warn(criterion, health.WeightDecay, weight_decay=group["weight_decay"])
        found = attachment.replaced_lr_ratio()
        if found is not None:
            health.warn(criterion, health.LearningRateReset, ratio=attachment.lr_ratio, found=found)
        if distributed.is_sharded(exponents):
            return  # its values would need a collective call; the sharding keeps the ranks equal
        mu = exponents.detach()
        # In units, weights of raw losses are as far apart as the losses' scales; what took over or died shows in units.
        weights = criterion.weights if criterion.meter is None else criterion.shares
        parts = [weights, mu, _last_losses(criterion, mu)]
        if criterion.meter is not None:
            parts.append(criterion.meter.growth())
        if attachment.synced and distributed.is_distributed(attachment.process_group):
            parts.append(distributed.rank_difference(mu, attachment.process_group))
        self._reading = (attachment.steps, Readback(torch.cat([p.to(mu.dtype) for p in parts])))
        self._after = mu.clone() if criterion.learned else None  # others may show their weights in the exponents

    def _read_samples(self, attachment: Attachment) -> None:
        criterion = attachment.criterion
        if self._outside is not None and self._outside.ready():
            self._foreign += bool(self._outside.value())
            self._outside = None
            if self._foreign >= 2:
                health.warn(criterion, health.ChangedElsewhere)
        if self._reading is None or not self._reading[1].ready():
            return
        step, reading = self._reading
        self._reading = None
        values, n = reading.value().tolist(), len(criterion.terms)
        if criterion.learned:
            sample = Sample(step, values[:n], values[n : 2 * n - 1], values[2 * n - 1 : 3 * n - 1])
            self._warn_about(attachment, sample)
        rest = values[3 * n - 1 :]
        if criterion.meter is not None:
            growth, rest = rest[: n - 1], rest[n - 1 :]
            for category, found in diagnose_units(criterion.terms, step, growth, criterion.meter.since):
                health.warn(criterion, category, **found)
        difference = max(map(abs, rest), default=0.0)
        if difference > 0:
            health.warn(criterion, health.RanksDiffer, difference=difference)

    def _warn_about(self, attachment: Attachment, sample: Sample) -> None:
        criterion = attachment.criterion
        first = self._first = sample if criterion.frozen else self._first or sample  # frozen ones need not move
        zero = {t for t, v in zip(criterion.terms, sample.losses, strict=True) if v == 0}
        for category, found in diagnose(
            criterion.terms, sample, first, criterion._weights_of_init(), self._zero & zero
        ):
            if category is health.OtherScale and criterion.meter is not None:
                continue
            health.warn(criterion, category, **found, **_lr_of(category, attachment))
        self._zero = zero


def diagnose(
    terms: tuple[str, ...], sample: Sample, first: Sample, start: list[float], zero: set[str]
) -> Iterator[tuple[type[health.HealthWarning], dict[str, object]]]:
    """The warnings a sample calls for. ``start``: the weights of init; ``zero``: terms that were 0 twice running."""
    if not all(map(math.isfinite, sample.exponents)):
        yield health.NotFinite, {"exponents": sample.exponents}
    if sample.step - first.step >= PATIENCE - 1 and sample.exponents == first.exponents:
        yield health.NotMoving, {"steps": sample.step}
    for term, weight, begin in zip(terms, sample.weights, start, strict=True):
        if weight > COLLAPSED and 1 - weight < 0.5 * (1 - begin):  # a tiny init starts there, by choice
            yield health.Collapsed, {"term": term, "weight": weight}
        if weight < DEAD and weight < 0.1 * begin:
            yield health.DeadTerm, {"term": term, "reason": f"its weight fell to {weight:.1e}"}
    for term in sorted(zero):
        yield health.DeadTerm, {"term": term, "reason": "its loss is exactly 0"}
    sizes = {t: abs(v) for t, v in zip(terms, sample.losses, strict=True) if v and math.isfinite(v)}
    if len(sizes) > 1:
        largest, smallest = max(sizes, key=sizes.__getitem__), min(sizes, key=sizes.__getitem__)
        high, low = sizes[largest], sizes[smallest]
        if high >= SCALES * low and sample.step >= 10:  # at the start a term can be near 0 before it is itself
            facts = {"ratio": high / low, "largest": largest, "high": high, "smallest": smallest, "low": low}
            yield health.OtherScale, facts


def diagnose_units(
    terms: tuple[str, ...], step: int, growth: list[float], since: list[int]
) -> Iterator[tuple[type[health.HealthWarning], dict[str, object]]]:
    """The warnings that units call for.

    ``growth``: how much larger each auxiliary weight is than at the peaks; ``since``: the step at which each
    term was first measured, negative if never.
    """
    for term, grown in zip(terms[1:], growth, strict=True):
        if grown >= RUNAWAY:
            yield health.Runaway, {"term": term, "growth": grown}
    missing = [
        term for term, grown, begun in zip(terms[1:], growth, since, strict=True) if begun >= 0 and math.isnan(grown)
    ]
    if missing and step >= 10:
        yield health.NothingShared, {"terms": quoted(missing)}


def _differ(exponents: Tensor, other: Tensor) -> Tensor:
    """Whether any exponent changed, on the device; NaN that stays NaN did not."""
    return torch.isclose(exponents, other, rtol=0, atol=0, equal_nan=True).logical_not().any()


def _last_losses(criterion: CompositeLoss, like: Tensor) -> Tensor:
    """The losses of the last call, NaN for what is absent."""
    last = criterion._last_call
    return like.new_full((len(criterion.terms),), math.nan) if last is None else last.pad()


def _lr_of(category: type[health.HealthWarning], attachment: Attachment) -> dict[str, object]:
    return {"lr": attachment.group["lr"]} if category is health.NotMoving else {}
