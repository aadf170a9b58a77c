"""UnitMeter: the units of a criterion's terms, measured at log-spaced steps."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from trainonce.units import measurement, places, rule
from trainonce.units.buffers import StartingBuffers
from trainonce.units.held_out import HeldOutDrift

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from trainonce.units.ranks import Ranks
    from trainonce.units.settings import GradientUnits, HeldOut

    Place = tuple[list[Tensor], object, int, int, int]

LARGEST_SCALE = 2.0**15  # float16 holds it
PATIENCE = 50  # measurements without overflow before the scale is doubled
NEVER = -1
LONG_AGO = -(2**40)  # a step so early that a term has come in whatever its rise


class UnitMeter(StartingBuffers):
    """Running and peak norms of the terms' gradients, and when to measure next.

    The norms are buffers, so they move and are saved with the criterion. The count of steps stays on the host.
    """

    norms: Tensor
    peaks: Tensor
    scale: Tensor
    streak: Tensor
    risen: Tensor
    asked: Tensor
    raw: Tensor

    START: ClassVar = {
        "norms": math.nan,
        "peaks": math.nan,
        "scale": LARGEST_SCALE,
        "streak": 0.0,
        "risen": 0.0,
        "asked": 0.0,
        "raw": 0.0,
    }

    def __init__(self, terms: int, settings: GradientUnits, held_out: HeldOut | None, dtype: torch.dtype) -> None:
        super().__init__()
        self.settings = settings
        self.drift = None if held_out is None else HeldOutDrift(terms, held_out, dtype)
        for name in ("norms", "peaks"):
            self.register_buffer(name, torch.empty(terms - 1, 2, dtype=dtype))
        for name in ("scale", "streak"):
            self.register_buffer(name, torch.empty((), dtype=dtype))
        self.register_buffer("risen", torch.empty(terms - 1, dtype=dtype), persistent=False)
        self.register_buffer("asked", torch.empty(terms - 1, dtype=dtype))  # what halving adds to the exponents
        self.register_buffer("raw", torch.empty(terms - 1, dtype=dtype))  # 1 for terms that share nothing with the base
        self.place = None
        self.reset()

    @property
    def place(self) -> Place | None:
        """Where it measures and when it looks for that again; in no checkpoint. None: before the first measurement."""
        return self._place, self._placed_for, self._look, self._measured, self._last

    @place.setter
    def place(self, place: Place | None) -> None:
        # The parameters; what they depend on; the measurement that looks for them again; how many there were; the step
        # of the last one.
        self._place, self._placed_for, self._look, self._measured, self._last = place or ([], None, 0, 0, NEVER)

    def reset(self) -> None:
        """Back to before the first measurement."""
        self.start()
        self.steps = 0  # optimizer steps so far
        self.next = 0  # the step of the next measurement
        self.since = [NEVER] * len(self.norms)  # the step at which each auxiliary term was first measured
        self.rise()
        if self.drift is not None:
            self.drift.reset()

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "risen" and not value.is_meta:  # in no file
            self.rise()

    # When

    def is_due(self, where: tuple[int, ...] | None, several_ranks: bool, frozen: bool = False) -> bool:
        """Whether a call measures: its step has come, or a term is there for the first time.

        One of several ranks does not know what the others have. There a new term waits for the next step that measures,
        in which all calls look for it. While the weights are frozen no step comes, so every call looks for it.
        """
        if frozen and several_ranks:
            return NEVER in self.since
        if self.steps >= self.next and not frozen:
            return True
        if several_ranks:
            return self.steps == self._last and NEVER in self.since
        return any(self.since[i - 1] == NEVER for i in self._auxiliary(where))

    def has_new(self, where: tuple[int, ...]) -> bool:
        """Whether any of these terms was never measured."""
        return any(self.since[i - 1] == NEVER for i in where if i)

    def advance(self) -> None:
        """Count a step of the optimizer."""
        self.steps += 1
        if self.steps <= max(self.since) + self.settings.rise:
            self.rise()

    def rise(self) -> None:
        """Let the terms come in: each from 0 to its weight, over the steps since it was first measured."""
        for i, since in enumerate(self.since):
            begun = since != NEVER and self.settings.rise > 0
            value = min(1.0, (self.steps - since) / self.settings.rise) if begun else float(since != NEVER)
            self.risen[i].fill_(value)  # self.risen[i] = value would wait for a GPU

    def _auxiliary(self, where: tuple[int, ...] | None) -> Sequence[int]:
        """The terms that a batch can measure: all but the base, if the base is there."""
        if where is None:
            return range(1, len(self.norms) + 1)
        return where[1:] if where and where[0] == 0 else ()

    # What

    def measure(
        self,
        losses: Sequence[Tensor],
        where: tuple[int, ...] | None,
        shared: Sequence[Tensor],
        learned: Collection[Tensor],
        ranks: Ranks,
        held_out: Callable[[], Tensor] | None,
        frozen: bool = False,
    ) -> Tensor | None:
        """Measure the losses of a call. ``where``: which terms they are; ``shared``: tensors that the user named.

        A batch without the base, or without any other term, measures nothing. The held-out loss is evaluated if all
        terms are there; what :meth:`HeldOutDrift.move` needs comes back. While the weights are frozen, only terms that
        were never measured get a unit.
        """
        terms = len(self.norms) + 1
        seen = ranks.look(where, terms, held_out is not None, self.norms.device)
        auxiliary = self._auxiliary(seen.where)
        if not auxiliary:
            return None
        pairs, shares = self.norms.new_zeros(len(auxiliary), 2), self.norms.new_zeros(len(auxiliary), 2)
        finite = torch.ones_like(self.scale, dtype=torch.bool)
        fresh = self.norms.new_full((2 * terms + 1,), torch.nan)
        with ranks.wrappers.apart():
            losses = _for_all(seen.where, losses, where)
            at = self._where_to_measure(losses, (seen.where, where), shared, learned)
            reaches: Sequence[bool] = (False,) * len(losses)
            if at:
                other = held_out() if held_out is not None and seen.compared else None
                measured = measurement.measure(losses, at, self.scale, other)
                pairs, finite = measurement.pairs(measured.squares), measured.squares.isfinite().all()
                reaches = measured.reaches
                if not any(reaches) and not shared and not self._measured and self.settings.named:
                    raise RuntimeError(
                        "No loss reaches the parameters that GradientUnits(shared=...) names: they are another "
                        "model's. Name those of this model; to copy or pickle the criterion, do so with its model."
                    )
                if measured.compared is not None and where is None:
                    parts = (measured.compared.products, measured.squares.sum(1), measured.compared.square.reshape(1))
                    fresh = torch.cat(parts).to(fresh)
            self._note_shares(shares, auxiliary, where, reaches)
        pairs, shares, finite = ranks.average(pairs, shares, finite)
        taken = [index for index in auxiliary if not frozen or self.since[index - 1] == NEVER]
        self._take(self._spread(pairs, auxiliary, taken), self._spread(shares, auxiliary, taken), finite)
        self._measured += 1
        if frozen:
            self._come_in(taken)
        else:
            self._count(taken)
        return ranks.mean(fresh) if seen.compared else None

    def _note_shares(
        self, shares: Tensor, auxiliary: Sequence[int], where: tuple[int, ...] | None, reaches: Sequence[bool]
    ) -> None:
        """Note in the first column which of the terms share something with the base, in the second which do not.

        Of those that this rank has; neither, if it lacks the base.
        """
        if not reaches or (where is not None and 0 not in where):
            return
        for row, index in enumerate(auxiliary):
            if where is None or index in where:
                shares[row, 0 if reaches[0] and reaches[row + 1] else 1].fill_(1.0)

    def _come_in(self, auxiliary: Sequence[int]) -> None:
        """Give the terms their whole weight at once, since frozen weights do not rise.

        One without a unit, because its gradient was 0 or not finite, is measured again at its next call: this reads
        back from the device, at the first call of a term alone.
        """
        known = self._known().tolist()
        for index in auxiliary:
            if known[index - 1]:
                self.since[index - 1] = LONG_AGO
        self.rise()

    def _count(self, auxiliary: Sequence[int]) -> None:
        for index in auxiliary:
            if self.since[index - 1] == NEVER:
                self.since[index - 1] = self.steps
        self.rise()
        self._last = self.steps
        self.next = self.steps + max(1, math.ceil(self.settings.every * self.steps))

    def _where_to_measure(
        self, losses: Sequence[Tensor], present: object, shared: Sequence[Tensor], learned: Collection[Tensor]
    ) -> list[Tensor]:
        """The named tensors, or the shared parameters; one of several ranks may have no loss at all.

        The parameters are looked for when other terms are ``present``, and when a layer was frozen or unfrozen, so that
        a resumed run measures at the same ones. Every measurement looks where no optimizer knows the layers, else after
        2, 4, 8 of them and so on, since the graph may have changed.
        """
        if shared or not losses:
            return list(shared) if losses else []
        due = self._measured >= self._look or not learned or not self._place
        if due or self._placed_for != (present, _trained(learned), _trained(self._place)):
            self._look = 2 * max(1, self._measured)
            self._place = places.find(losses, self.settings.shared, learned)
            self._placed_for = present, _trained(learned), _trained(self._place)
        return self._place

    def _spread(self, pairs: Tensor, auxiliary: Sequence[int], taken: Sequence[int]) -> Tensor:
        """A row for every auxiliary term, of zeros for those that are not taken."""
        if len(taken) == len(self.norms):
            return pairs
        full = torch.zeros_like(self.norms)
        for pair, index in zip(pairs, auxiliary, strict=True):
            if index in taken:
                full[index - 1] = pair
        return full

    @torch.no_grad()
    def _take(self, pairs: Tensor, shares: Tensor, finite: Tensor) -> None:
        some, nothing = shares.unbind(1)
        self.raw.copy_(torch.where(some > 0, 0, torch.where(nothing > 0, 1, self.raw)))
        self.norms.copy_(rule.running(self.norms, pairs.to(self.norms), self.settings.keep))
        self.peaks.copy_(torch.fmax(self.peaks, self.norms))
        self.streak.copy_(torch.where(finite, self.streak + 1, 0))
        grown = torch.where(self.streak >= PATIENCE, self.scale * 2, self.scale)
        self.scale.copy_(torch.where(finite, grown, self.scale / 4).clamp_(1, LARGEST_SCALE))
        self.streak.copy_(torch.where(self.streak >= PATIENCE, 0, self.streak))

    def ratios(self) -> Tensor:
        """What each auxiliary loss is multiplied by to act as strongly as the base."""
        return rule.ratios(self.norms, self.peaks, self.settings.blend, self.settings.limit)

    def factors(self) -> Tensor:
        """The same for the sum: less for terms that are coming in, almost none for those that halving has lowered.

        A term whose gradient was 0 so far, or not finite, has no unit yet and waits with a factor of 0.
        """
        return self.ratios() * self._known() * self.risen * self.asked.exp()

    def _known(self) -> Tensor:
        """1 for terms that have a unit, and for those that share nothing with the base; else 0."""
        return torch.where(self.norms[:, 0].isnan(), self.raw, 1)

    def growth(self) -> Tensor:
        """How much larger each auxiliary weight is than the ratio of the peaks; NaN for a term without a unit."""
        return self.ratios() * self.peaks[:, 1] / self.peaks[:, 0]

    def __repr__(self) -> str:
        at = self.settings.shared if isinstance(self.settings.shared, str) else "given parameters"
        how = f"blend {self.settings.blend:g}, limit {self.settings.limit:g}, at {at}"
        return f"UnitMeter({how}; step {self.steps}, next measurement at {self.next})"

    # Copies and checkpoints

    def __getstate__(self) -> dict[str, Any]:
        """A copy looks for the shared parameters of its own model."""
        return self.__dict__ | {"_place": []}

    def get_extra_state(self) -> Tensor:
        return torch.tensor([self.steps, self.next, *self.since], dtype=torch.int64, device="cpu")

    def set_extra_state(self, saved: Tensor) -> None:
        self.steps, self.next, *self.since = saved.tolist()
        if self.risen.is_meta and not self.norms.is_meta:  # load_state_dict(assign=True): it is in no file
            self.risen = torch.empty_like(self.norms[:, 0])
        self.rise()


def _trained(parameters: Collection[Tensor]) -> tuple[bool, ...]:
    return tuple(parameter.requires_grad for parameter in parameters)


def _for_all(terms: tuple[int, ...], losses: Sequence[Tensor], where: tuple[int, ...] | None) -> list[Tensor]:
    """A loss for each of the terms, of those that this rank has. ``where``: which ones they are.

    What is missing is 0 times another. Every rank makes the same backward passes then, and in those FSDP2 and
    SyncBatchNorm wait for each other.
    """
    if where is None or not len(losses):
        return list(losses)
    own = dict(zip(where, losses, strict=True))
    return [own[i] if i in own else 0 * losses[0] for i in terms]


def saved_units(prefix: str) -> dict[str, Callable[[list[int]], list[int]]]:
    """The meter's saved tensors that have an entry per term, each with how the terms' order indexes it."""

    def rows(order: list[int]) -> list[int]:
        return [i - 1 for i in order[1:]]

    return {
        f"{prefix}norms": rows,
        f"{prefix}peaks": rows,
        f"{prefix}asked": rows,
        f"{prefix}raw": rows,
        f"{prefix}_extra_state": lambda order: [0, 1, *(i + 1 for i in order[1:])],
        f"{prefix}drift.products": lambda order: order,
        f"{prefix}drift.squares": lambda order: order,
    }
