"""What goes wrong in practice, said in words: named warnings, each given once per criterion, each with its fix.

Every warning is a class, so one can be silenced by name:
``warnings.filterwarnings("ignore", category=trainonce.health.OtherScale)``. The checks look at step 1, 10, 100, 1000
and every 1000 after; what they need from the device is copied without waiting for it.
"""

from __future__ import annotations

import math
import re
import sys
import warnings
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import torch

from trainonce import distributed
from trainonce.readback import Readback, is_capturing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from trainonce.attachment import Attachment
    from trainonce.composite import CompositeLoss

PATIENCE = 100  # training calls or steps before "nothing moves" is said
COLLAPSED = 0.99
DEAD = 1e-4
SCALES = 100.0


class HealthWarning(UserWarning):
    """The parent of all warnings of trainonce."""

    text: ClassVar[str]

    @classmethod
    def topic(cls) -> str:
        """The name of its section in ``health.md``, which ``trainonce explain`` prints."""
        return topic_of(cls.__name__)


def topic_of(name: str) -> str:
    """The name of a class in the spelling of a topic.

    >>> topic_of("NotMoving")
    'not-moving'
    """
    return re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()


class NotInOptimizer(HealthWarning):
    text = (
        "The exponents have not moved in {calls} training calls: no optimizer trains them, so the weights stay where "
        "they started. Call trainonce.attach(optimizer, criterion, decay=...) on the optimizer you step."
    )


class NotAttached(HealthWarning):
    text = (
        "An optimizer moves the exponents, but the criterion is not attached to it: no hyperparameter decay, no own "
        "parameter group, no averaging over ranks. Call trainonce.attach(optimizer, criterion, decay=...); after a "
        "deepcopy, call it again for the copies."
    )


class NotReplaying(HealthWarning):
    text = (
        "The recorded weights were used in {calls} training calls but stand at their first row: only the steps of an "
        "attached optimizer move them on. Call trainonce.attach(optimizer, criterion, decay=0)."
    )


class NeverStepped(HealthWarning):
    text = (
        "The criterion was called {calls} times, but the optimizer it is attached to has never stepped. Attach it to "
        "the optimizer you step: was a new one built after trainonce.attach?"
    )


class NeverCalled(HealthWarning):
    text = (
        "The optimizer has stepped {steps} times, but the criterion attached to it was never called: nothing learns "
        "the weights. Call criterion(...) with the losses, and backward on what it returns."
    )


class ChangedElsewhere(HealthWarning):
    text = (
        "Something other than the attached optimizer changes the exponents between its steps, probably a second "
        "optimizer that holds them too. Build the other optimizer from trainonce.model_parameters(model)."
    )


class WeightDecay(HealthWarning):
    text = (
        "The exponents' parameter group has weight_decay={weight_decay}: it pulls the weights to equality, besides the "
        "hyperparameter decay. Set it to 0 in the group named 'loss_weights'."
    )


class LearningRateReset(HealthWarning):
    text = (
        "A scheduler, or a loop over all groups, has replaced the exponents' learning rate: {ratio:.3g} times the "
        "model's was asked for, it is at {found:.3g} times. Give OneCycleLR and CyclicLR one rate per parameter group, "
        "the exponents' last; a loop must leave out the group named 'loss_weights'."
    )


class NotMoving(HealthWarning):
    text = (
        "The exponents have not moved in {steps} optimizer steps. Their learning rate is {lr}; is it 0, or are the "
        "terms equal?"
    )


class Collapsed(HealthWarning):
    text = (
        "The term {term!r} has {weight:.2%} of the weight: the others hardly train any more. The printed rule moves "
        "weight to the smaller losses; bring the losses to one scale, raise decay, or freeze() earlier."
    )


class DeadTerm(HealthWarning):
    text = (
        "The term {term!r} no longer takes part: {reason}. If it should, bring its loss to the scale of the base "
        "term, or raise decay with the printed preset, whose negentropy pulls weights back."
    )


class OtherScale(HealthWarning):
    text = (
        "The losses differ in scale by {ratio:.0f}x: {largest!r} is {high:.3g}, {smallest!r} is {low:.3g}. The printed "
        "rule compares raw values, so units decide the weights here, not usefulness. Divide each loss by a typical "
        "value of it."
    )


class RanksDiffer(HealthWarning):
    text = (
        "The exponents differ between ranks by up to {spread:.3g}: each rank trains another loss. Attach on every rank "
        "with sync on, and load checkpoints on every rank."
    )


class NotFinite(HealthWarning):
    text = (
        "The exponents are {exponents}: a NaN or infinite loss reached them, and every loss from now on is NaN. Go "
        "back to a checkpoint, and use nonfinite='skip' or 'raise'."
    )


class LowPrecision(HealthWarning):
    text = (
        "The exponents reach the loss as {dtype}: a sharding policy casts them. Keep them out of the wrapper with "
        "fully_shard(..., ignored_params=trainonce.keep_out(model))."
    )


class SkippedTerm(HealthWarning):
    text = (
        "The losses {terms} were not finite in a batch and were skipped, as nonfinite='skip' says. This is said once; "
        "look for the cause."
    )


class NoSavedState(HealthWarning):
    text = (
        "The checkpoint has nothing for the {where}: it was saved before the criterion was part of the model, or "
        "without it. The weights start from init."
    )


class NoSavedNames(HealthWarning):
    text = (
        "The checkpoint does not name the terms of its exponents. They are taken in the order {terms}; check that it "
        "is the order they were saved in."
    )


class NoSavedGroup(HealthWarning):
    text = (
        "The optimizer's checkpoint has no group 'loss_weights': it was saved before trainonce.attach. The model's "
        "state is loaded; the exponents' starts fresh."
    )


class HistoryLost(HealthWarning):
    text = "The history could not be written to {path} ({reason}). Training goes on; the rows stay in memory."


class HistoryDamaged(HealthWarning):
    text = "{count} lines of {path} could not be read, or were out of order, and were left out."


def warn(owner: object, category: type[HealthWarning], **facts: object) -> None:
    """Give the warning, once per owner. Not while torch.compile traces: no warning can be part of a graph."""
    if torch.compiler.is_compiling():
        return
    given: set[str] = owner.__dict__.setdefault("_warned", set())
    if category.__name__ in given:
        return
    given.add(category.__name__)
    text = f"{category.text.format(**facts)} Run `trainonce explain {category.topic()}` for the fix."
    warnings.warn(text, category, stacklevel=_level())


def _level() -> int:
    """How many calls up the user's own line is: a warning points there, not into trainonce or torch."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("trainonce", "torch"):
        frame, level = frame.f_back, level + 1
    return level


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
                    warn(criterion, NeverStepped, calls=self.calls)
            return
        exponents = criterion.exponents.detach()
        if criterion.frozen or is_capturing(exponents) or distributed.is_sharded(exponents):
            return
        if self._moved is None:
            self._moved = Readback(_differ(exponents, first.to(exponents.device)))
        if self._moved.ready():
            moved = bool(self._moved.value())
            self._first = None
            warn(criterion, NotAttached if moved else NotInOptimizer, calls=self.calls)


class Sample(NamedTuple):
    """The state of a criterion at one step, on the host."""

    step: int
    weights: list[float]
    exponents: list[float]
    losses: list[float]


class StepWatch:
    """Takes a sample of an attached criterion at chosen steps and says what is wrong with it."""

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
            warn(attachment.criterion, NeverCalled, steps=self._idle)

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
            self._take(attachment, exponents)
        self._look(attachment)

    def _take(self, attachment: Attachment, exponents: Tensor) -> None:
        criterion, group = attachment.criterion, attachment.group
        if group.get("weight_decay", 0) != 0:
            warn(criterion, WeightDecay, weight_decay=group["weight_decay"])
        found, asked = attachment.replaced_lr_ratio(), attachment.lr_ratio
        if found is not None:
            warn(criterion, LearningRateReset, ratio=asked, found=found)
        if distributed.is_sharded(exponents):
            return  # its values would need a collective call; the sharding keeps the ranks equal
        mu = exponents.detach()
        parts = [criterion.weights, mu, _last_losses(criterion, mu)]
        if attachment.synced and distributed.is_distributed(attachment.process_group):
            parts.append(distributed.spread(mu, attachment.process_group))
        self._reading = (attachment.steps, Readback(torch.cat([p.to(mu.dtype) for p in parts])))
        self._after = mu.clone() if criterion.learned else None  # others may show their weights in the exponents

    def _look(self, attachment: Attachment) -> None:
        criterion = attachment.criterion
        if self._outside is not None and self._outside.ready():
            self._foreign += bool(self._outside.value())
            self._outside = None
            if self._foreign >= 2:
                warn(criterion, ChangedElsewhere)
        if self._reading is None or not self._reading[1].ready():
            return
        step, reading = self._reading
        self._reading = None
        values, n = reading.value().tolist(), len(criterion.terms)
        if criterion.learned:
            sample = Sample(step, values[:n], values[n : 2 * n - 1], values[2 * n - 1 : 3 * n - 1])
            self._judge(attachment, sample)
        spread = max(map(abs, values[3 * n - 1 :]), default=0.0)
        if spread > 0:
            warn(criterion, RanksDiffer, spread=spread)

    def _judge(self, attachment: Attachment, sample: Sample) -> None:
        criterion = attachment.criterion
        first = self._first = sample if criterion.frozen else self._first or sample  # frozen ones need not move
        zero = {t for t, v in zip(criterion.terms, sample.losses, strict=True) if v == 0}
        for category, found in diagnose(
            criterion.terms, sample, first, criterion._weights_of_init(), self._zero & zero
        ):
            warn(criterion, category, **found, **_lr_of(category, attachment))
        self._zero = zero


def diagnose(
    terms: tuple[str, ...], sample: Sample, first: Sample, start: list[float], zero: set[str]
) -> Iterator[tuple[type[HealthWarning], dict[str, object]]]:
    """The warnings a sample calls for. ``start``: the weights of init; ``zero``: terms that were 0 twice running."""
    if not all(map(math.isfinite, sample.exponents)):
        yield NotFinite, {"exponents": sample.exponents}
    if sample.step - first.step >= PATIENCE - 1 and sample.exponents == first.exponents:
        yield NotMoving, {"steps": sample.step}
    for term, weight, begin in zip(terms, sample.weights, start, strict=True):
        if weight > COLLAPSED and 1 - weight < 0.5 * (1 - begin):  # a tiny init starts there, by choice
            yield Collapsed, {"term": term, "weight": weight}
        if weight < DEAD and weight < 0.1 * begin:
            yield DeadTerm, {"term": term, "reason": f"its weight fell to {weight:.1e}"}
    for term in sorted(zero):
        yield DeadTerm, {"term": term, "reason": "its loss is exactly 0"}
    sizes = {t: abs(v) for t, v in zip(terms, sample.losses, strict=True) if v and math.isfinite(v)}
    if len(sizes) > 1:
        largest, smallest = max(sizes, key=sizes.__getitem__), min(sizes, key=sizes.__getitem__)
        high, low = sizes[largest], sizes[smallest]
        if high >= SCALES * low and sample.step >= 10:  # at the start a term can be near 0 before it is itself
            facts = {"ratio": high / low, "largest": largest, "high": high, "smallest": smallest, "low": low}
            yield OtherScale, facts


def _differ(exponents: Tensor, other: Tensor) -> Tensor:
    """Whether any exponent changed, on the device; NaN that stays NaN did not."""
    return torch.isclose(exponents, other, rtol=0, atol=0, equal_nan=True).logical_not().any()


def _last_losses(criterion: CompositeLoss, like: Tensor) -> Tensor:
    """The losses of the last call, NaN for what is absent."""
    last = criterion._last_call
    return like.new_full((len(criterion.terms),), math.nan) if last is None else last.padded()


def _lr_of(category: type[HealthWarning], attachment: Attachment) -> dict[str, object]:
    return {"lr": attachment.group["lr"]} if category is NotMoving else {}
