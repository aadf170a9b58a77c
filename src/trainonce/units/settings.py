"""What a user may choose: GradientUnits, how units are measured; HeldOut, how held-out data moves the exponents."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, TypeAlias

from torch import Tensor, nn

from trainonce.text import is_number, is_positive

if TYPE_CHECKING:
    #: Where to measure: at all parameters that the terms share, at the last layer of them, or at given ones.
    Shared: TypeAlias = Literal["all", "last"] | nn.Module | Iterable[Tensor]

__all__ = ["GradientUnits", "HeldOut"]

Signal = Literal["loss", "held_out"]

TRAVEL = 4.0  # of a run
TRAVEL_PER_FOLD = 0.3  # of every factor e in the steps, where the run's length is not known


@dataclasses.dataclass(frozen=True)
class GradientUnits:
    """How the units of the terms are measured; ``CompositeLoss(units="gradient")`` uses the defaults.

    A term's unit is a norm of its gradient at the parameters that it shares with the base. The losses are divided by
    their units, relative to the base's, so that every term acts as strongly as the base and multiplying a loss by 100
    changes nothing.

    :param blend: Between the peak of a term's norm so far (0) and its present value (1). The peak cannot run away when
        a term is satisfied and its gradient vanishes; the present value follows terms that change in strength.
    :param limit: How far a weight may move away from the ratio of the peaks, as a factor.
    :param keep: What is kept of the running mean of the squared norm at each measurement.
    :param every: The next measurement comes after this share of the steps so far. With 0.05 the first 22 steps measure,
        then fewer and fewer: 93 of the first 1,000 steps, 140 of 10,000, 187 of 100,000.
    :param rise: Over how many steps a term comes in, from weight 0: its first gradients say little about its unit.
    :param shared: Where to measure. ``"all"``: at all parameters that a term shares with the base; ``"last"``: at the
        last layer of them, which is nearly free; or a module, or parameters. :meth:`CompositeLoss.share` names a tensor
        of the forward pass instead.
    """

    blend: float = 0.75
    limit: float = 10.0
    keep: float = 0.5
    every: float = 0.05
    rise: int = 10
    shared: Shared = "all"

    def __post_init__(self) -> None:
        for name, value in (("blend", self.blend), ("keep", self.keep), ("every", self.every)):
            if not is_number(value) or not 0 <= value <= 1:
                raise ValueError(f"GradientUnits needs a {name} between 0 and 1; got {value!r}.")
        if not is_positive(self.limit) or self.limit < 1:
            raise ValueError(f"GradientUnits needs a limit of at least 1; got {self.limit!r}.")
        if not isinstance(self.rise, int) or self.rise < 0:
            raise ValueError(f"GradientUnits needs a whole number of steps of at least 0 as rise; got {self.rise!r}.")
        if isinstance(self.shared, str) and self.shared not in ("all", "last"):
            raise ValueError(
                f"GradientUnits measures at 'all' shared parameters, at the 'last' layer of them, or at a module or "
                f"parameters that you pass; got {self.shared!r}."
            )
        if not isinstance(self.shared, (str, nn.Module)):
            several = isinstance(self.shared, Iterable) and not isinstance(self.shared, Tensor)
            given = list(self.shared) if several else [self.shared]
            if not given or not all(isinstance(one, Tensor) and one.requires_grad for one in given):
                raise TypeError(
                    "GradientUnits needs parameters that require gradients as shared=; got others, or none."
                )
            object.__setattr__(self, "shared", given)

    @property
    def named(self) -> list[nn.Module | Tensor]:
        """The module or the parameters that the user named; none for those that are found."""
        if isinstance(self.shared, str):
            return []
        return [self.shared] if isinstance(self.shared, nn.Module) else list(self.shared)


@dataclasses.dataclass(frozen=True)
class HeldOut:
    r"""How the loss on held-out data moves the exponents in gradient units; see :meth:`CompositeLoss.held_out`.

    At each measurement, with :math:`c_i` the cosine between the gradients of term i and of the held-out loss,

    .. math:: \mu_i \leftarrow \mu_i + \tau \Delta \Bigl(c_i - \sum_j \lambda_j c_j\Bigr), \quad
        \lambda = \mathrm{softmax}(0, \mu)

    where :math:`\tau` is the travel and :math:`\Delta` what has passed of the run since the last measurement.

    :param steps: The optimizer steps of the run. Without it :math:`\Delta` is the growth of the logarithm of the steps.
    :param travel: :math:`\tau`. By default 4 for a run of known length, and 0.3 for each factor e in the steps.
    """

    steps: int | None = None
    travel: float | None = None

    def __post_init__(self) -> None:
        if self.steps is not None and (not isinstance(self.steps, int) or self.steps < 1):
            raise ValueError(f"HeldOut needs the whole number of steps of the run; got {self.steps!r}.")
        if self.travel is not None and (not is_number(self.travel) or not 0 <= self.travel < math.inf):
            raise ValueError(f"HeldOut needs a travel of at least 0; got {self.travel!r}.")

    def rate(self, last: int, now: int) -> float:
        """What the difference of cosines is multiplied by; ``last`` and ``now`` are steps that measure."""
        if self.steps is None:
            travel = TRAVEL_PER_FOLD if self.travel is None else self.travel
            return travel * math.log((now + 1) / (last + 1))
        passed = min(now, self.steps) - min(last, self.steps)  # a run that is longer than said drifts no further
        return (TRAVEL if self.travel is None else self.travel) * passed / self.steps


def check_signal(signal: object, raw: bool) -> tuple[Signal, HeldOut | None]:
    """What moves the exponents and, if it is held-out data, how far."""
    if signal is None:
        signal = "loss" if raw else "held_out"
    if signal == "held_out":
        signal = HeldOut()
    if isinstance(signal, HeldOut):
        if raw:
            raise ValueError("signal='held_out' compares gradients, so it needs units='gradient'.")
        return "held_out", signal
    if signal != "loss":
        raise ValueError(f"signal must be 'loss', 'held_out' or a trainonce.HeldOut; got {signal!r}.")
    return "loss", None


def check_units(units: object) -> GradientUnits | None:
    """How units are measured; None for raw ones."""
    if units == "raw":
        return None
    if units == "gradient":
        return GradientUnits()
    if not isinstance(units, GradientUnits):
        raise ValueError(f"units must be 'raw', 'gradient' or a trainonce.GradientUnits; got {units!r}.")
    return units
