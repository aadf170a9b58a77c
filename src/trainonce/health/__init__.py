"""Named warnings about what goes wrong in practice, each given once per criterion, each with its fix.

Every warning is a class, so one can be silenced by name:
``warnings.filterwarnings("ignore", category=trainonce.health.OtherScale)``. ``topics.md`` has a section for each.
"""

from __future__ import annotations

import re
import sys
import warnings
from typing import ClassVar


class HealthWarning(UserWarning):
    """The parent of all warnings of trainonce."""

    text: ClassVar[str]

    @classmethod
    def topic(cls) -> str:
        """The name of its section in ``topics.md``, which ``trainonce explain`` prints."""
        return topic_of(cls.__name__)


def topic_of(name: str) -> str:
    """The name of a class in the spelling of a topic.

    >>> topic_of("NotAttached")
    'not-attached'
    """
    return re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()


class NotAttached(HealthWarning):
    text = (
        "The criterion was called {calls} times in training, but it is attached to no optimizer: it does not know the "
        "steps of the training, and nothing moves its coefficients as it should. Call trainonce.attach(optimizer, "
        "criterion) on the optimizer you step; after a deepcopy, call it again for the copies."
    )


class NeverStepped(HealthWarning):
    text = (
        "The criterion was called {calls} times since the optimizer it is attached to last stepped ({steps} steps). "
        "Attach it to the optimizer you step: was a new one built, or another one taken, after trainonce.attach?"
    )


class NeverCalled(HealthWarning):
    text = (
        "The optimizer has stepped {steps} times, but the criterion attached to it was never called in training mode: "
        "{found}. Call criterion(...) with the losses, and backward on what it returns."
    )


class WeightDecay(HealthWarning):
    text = (
        "The exponents' parameter group has weight_decay={weight_decay}: it pulls the weights to equality, besides the "
        "hyperparameter decay. Set it to 0 in the group named 'loss_weights'."
    )


class LearningRateReset(HealthWarning):
    text = (
        "A scheduler, or a loop over all groups, has replaced the learning rate of the {trained}: {ratio:.3g} times "
        "the model's was asked for, it is at {found:.3g} times. Give OneCycleLR and CyclicLR one rate per parameter "
        "group, that of the {trained} last; a loop must leave out the group named 'loss_weights'."
    )


class Collapsed(HealthWarning):
    text = (
        "The term {term!r} has {part:.2%} of the sum of the coefficients: the others hardly train any more. Bring the "
        "losses to one scale, or freeze() earlier. The paper's rule moves weight to the smaller losses: raise its "
        "decay."
    )


class DeadTerm(HealthWarning):
    text = (
        "The term {term!r} no longer takes part: {reason}. If it should, bring its loss to the scale of the base "
        "term. In the paper's rule a larger decay, with the negentropy in the regularizer, pulls coefficients back."
    )


class OtherScale(HealthWarning):
    text = (
        "The losses differ in scale by {ratio:.0f}x: {largest!r} is {high:.3g}, {smallest!r} is {low:.3g}. The paper's "
        "rule compares raw values, so units decide the coefficients here, not usefulness. Use trainonce.BalancedLoss, "
        "or divide each loss by a typical value of it."
    )


class NothingShared(HealthWarning):
    text = (
        "No parameter is reached by both the base and {terms}, so there is nothing to compare them at; such terms keep "
        "the coefficient they start with. Name what they share: BalancedLoss(..., at=...) or criterion(..., "
        "at=features)."
    )


class ValidationNotCopied(HealthWarning):
    text = (
        "A copy of the criterion has no validation loss: the function belongs to the original's model. Set the copy's "
        "own, as copy.validation = lambda: ..., or it trains without alignment."
    )


class RanksDiffer(HealthWarning):
    text = (
        "The {trained} differ between ranks by up to {difference:.3g}: each rank trains another loss. Attach on every "
        "rank with sync on, and load checkpoints on every rank."
    )


class NotFinite(HealthWarning):
    text = (
        "The {trained} are {values}: a NaN or infinite loss reached them, and every loss from now on is NaN. Go "
        "back to a checkpoint, and use nonfinite='skip' or 'raise'."
    )


class LowPrecision(HealthWarning):
    text = (
        "The {trained} reach the loss as {dtype}: a sharding policy casts them. Keep them out of the wrapper with "
        "fully_shard(..., ignored_params=trainonce.keep_out(model))."
    )


class SkippedTerm(HealthWarning):
    text = (
        "The losses {terms} were not finite in a batch and were skipped (nonfinite='skip'). Later ones are skipped "
        "without a warning; look for the cause."
    )


class NoSavedState(HealthWarning):
    text = (
        "The checkpoint has nothing for the {where}: it was saved before the criterion was part of the model, or "
        "without it. The criterion begins at its start."
    )


class NoSavedNames(HealthWarning):
    text = (
        "The checkpoint does not name the terms. They are taken in the order {terms}; check that it "
        "is the order they were saved in."
    )


class HistoryLost(HealthWarning):
    text = "The history could not be written to {path} ({reason}). Training goes on; the rows stay in memory."


class HistoryDamaged(HealthWarning):
    text = "{count} lines of {path} could not be read, or were out of order, and were left out."


def warn(owner: object, category: type[HealthWarning], **facts: object) -> None:
    """Give the warning, once per owner. Not while torch.compile traces: no warning can be part of a graph."""
    import torch  # here: `trainonce explain` does without

    if torch.compiler.is_compiling():
        return
    given: set[str] = owner.__dict__.setdefault("_warned", set())
    if category.__name__ in given:
        return
    given.add(category.__name__)
    facts.setdefault("trained", getattr(owner, "trainable", None))
    text = f"{category.text.format(**facts)} Run `trainonce explain {category.topic()}` for the fix."
    warnings.warn(text, category, stacklevel=_stack_level())


_BELOW = ("trainonce", "torch", "copy")  # whose lines are not the user's


def _stack_level() -> int:
    """How many calls up the user's own line is: a warning points there, not into trainonce or torch."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _BELOW:
        frame, level = frame.f_back, level + 1
    return level
