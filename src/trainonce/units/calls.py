"""What a training call does about units: it measures them when it is time to, and counts on."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor

from trainonce.readback import is_capturing
from trainonce.units.held_out import checked

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainonce.attachment import Attachment
    from trainonce.call_state import CallState
    from trainonce.units.meter import UnitMeter
    from trainonce.units.ranks import Ranks


class Call(NamedTuple):
    """The losses of a call, which terms they are (None: all), and whether the weights are frozen."""

    given: Tensor | list[Tensor]
    where: tuple[int, ...] | None
    frozen: bool


class Outcome(NamedTuple):
    """Where held-out data has moved the exponents to, if it has; whether terms were there that the base never meets."""

    exponents: Tensor | None = None
    apart: bool = False


def measure(
    meter: UnitMeter,
    call: Call,
    state: CallState,
    attachment: Attachment | None,
    ranks: Ranks,
    exponents: Callable[[], Tensor],
) -> Outcome:
    """Measure if the call is due. ``exponents`` gives those of all ranks, where they are sharded."""
    places, where, outcome = state.take_places(), call.where, Outcome()
    if is_capturing(meter.norms) and (not call.frozen or meter.is_due(where, ranks.are_several, frozen=True)):
        raise RuntimeError(
            "Gradient units cannot be measured inside a CUDA graph: replaying it runs no Python, which counts the "
            "steps. Call the criterion with all terms and then criterion.freeze() before the capture, or keep the "
            "criterion out of the graph."
        )
    ranks.agree(meter)
    if attachment is not None:
        attachment.start_averaging()
    if meter.is_due(where, ranks.are_several, call.frozen):
        losses = list(call.given.unbind()) if isinstance(call.given, Tensor) else call.given
        learned = attachment.model_parameters() if attachment is not None else []
        held_out = None if call.frozen else checked(state.take_held_out(), places)
        fresh = meter.measure(losses, where, places, learned, ranks, held_out, call.frozen)
        moved = None
        if fresh is not None and meter.drift is not None:
            moved = meter.drift.move(exponents(), meter.asked, fresh, meter.steps)
        # A term that another rank has measured has met the base there.
        outcome = Outcome(moved, where is not None and 0 not in where and meter.has_new(where))
    if attachment is None and not call.frozen:
        meter.advance()
    return outcome
