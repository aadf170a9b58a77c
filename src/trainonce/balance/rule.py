"""BalancedLoss: gradient balance, from nothing or from the weights that one has."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from trainonce import health
from trainonce.balance import arithmetic, measure, ranks
from trainonce.balance.align import check_validation, evaluate
from trainonce.balance.places import Places, copy_but
from trainonce.balance.wrappers import Wrappers
from trainonce.fixed import check_weights
from trainonce.readback import is_capturing
from trainonce.text import is_number, quoted
from trainonce.weighting import LossWeighting, NonFinite

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from trainonce.balance.align import Validation
    from trainonce.balance.measure import Gradients, Measured
    from trainonce.balance.places import At
    from trainonce.terms import Batch

__all__ = ["BalancedLoss"]

NEVER = -1
LONG_AGO = -(2**40)  # a step so early that a term has come in whatever its rise
LARGEST_PROBE = 2.0**15  # float16 holds it


class BalancedLoss(LossWeighting):
    r"""Gradient balance: coefficients with which every term's gradient is about as strong as the base's.

    .. math:: c_0 = w_0, \qquad c_i = w_i \, e^{a_i} \, r_i

    :math:`r_i` is what the term's loss is multiplied by to act as strongly as the base's, from norms of their gradients
    at the parameters that they share (:func:`trainonce.balance.arithmetic.strength_ratios`), so multiplying a loss by
    100 changes nothing. It is measured at fewer and fewer steps: at 93 of the first 1,000, 140 of 10,000, 187 of
    100,000. :math:`w` are the weights it starts from, :math:`a` the alignment. Nothing of it is in the optimizer.

    :param terms: The names of the losses, base first: balance from nothing, with :math:`w = 1`; each auxiliary term
        comes in over the first 10 steps. Or a dict of the weights you have: the first coefficients are exactly these,
        :math:`r_i` is relative to its first value, so each term keeps the strength that it has at that start.
    :param at: Where to measure. ``"all"``: at all parameters that a term shares with the base; ``"last"``: at the last
        layer of them, which is nearly free; or a module, or parameters. Tensors of the forward pass are named in the
        call: ``criterion(ce=ce, l1=l1, at=features)``.
    :param follow: Between the peak of a term's norm so far (0) and its present value (1).
    :param every: The next measurement comes after this share of the steps so far.
    :param validation: A function that returns a loss on data that is not trained on, with its graph: the base loss, or
        any differentiable stand-in of your metric. It is evaluated where the balance is measured. Terms whose gradients
        point the same way as its own gain (:func:`trainonce.balance.arithmetic.align`). Data that also chooses between
        models will do.
    :param steps: The optimizer steps of the training, where they are known.
    :param travel: How far alignment moves: by default 4 in a training of known length, else 0.3 for each factor e in
        the steps; 0 for no alignment.
    :param eval_mode: Whether modules are in evaluation mode while ``validation`` runs. Random states and buffers are
        put back in either case.
    :param scale: As in :class:`trainonce.LossWeighting`.
    :param nonfinite: As in :class:`trainonce.LossWeighting`.

    >>> w = torch.nn.Parameter(torch.ones(2))
    >>> criterion = BalancedLoss(["fit", "smooth"])
    >>> _ = criterion(fit=w.sum(), smooth=100 * w.sum())
    >>> criterion.coefficients()
    tensor([1.0000, 0.0100])

    .. note:: With gradient accumulation a measurement sees the first micro-batch of its step that has the term: the
        noise of a smaller batch makes norms larger, those of all terms. With several ranks the gradients are averaged
        first, so the balance is that of one process with all their batches.

    .. note:: Where a term's gradient is 0 or not finite, or it shares nothing with the base, it keeps the coefficient
        that it starts with until it can be measured.
    """

    version = 1
    observes_always = True

    weights: Tensor
    norms: Tensor
    peaks: Tensor
    anchor: Tensor
    alignment: Tensor
    products: Tensor
    squares: Tensor
    square: Tensor
    probe: Tensor
    current: Tensor
    step: int
    next: int
    last: int
    aligned: int
    since: list[int]

    def __init__(
        self,
        terms: Iterable[str] | Mapping[str, float],
        *,
        at: At = "all",
        follow: float = arithmetic.FOLLOW,
        every: float = arithmetic.EVERY,
        validation: Validation | None = None,
        steps: int | None = None,
        travel: float | None = None,
        eval_mode: bool = True,
        scale: float = 1.0,
        nonfinite: NonFinite = "propagate",
    ) -> None:
        super().__init__(terms, scale=scale, nonfinite=nonfinite)
        for name, value in (("follow", follow), ("every", every)):
            if not is_number(value) or not 0 <= value <= 1:
                raise ValueError(f"BalancedLoss needs {name} between 0 and 1; got {value!r}.")
        if steps is not None and (not isinstance(steps, numbers.Integral) or steps < 1):
            raise ValueError(f"BalancedLoss needs the whole number of steps of the training; got steps={steps!r}.")
        if travel is not None and (not is_number(travel) or not 0 <= travel < math.inf):
            raise ValueError(f"BalancedLoss needs a travel of at least 0; got {travel!r}.")
        self.from_weights = isinstance(terms, Mapping)
        weights = [1.0] * len(self.terms)
        if isinstance(terms, Mapping):
            weights = check_weights(self.kind, terms, base_above=True)
        self.follow, self.every, self.steps, self.travel, self.eval_mode = follow, every, steps, travel, eval_mode
        self.validation = validation
        self._places = Places(at)
        self._seen: set[int] = set()  # the terms measured in the step of the last measurement
        self._declare(weights)

    def _declare(self, weights: list[float]) -> None:
        auxiliary = len(weights) - 1
        unknown = [[math.nan, math.nan]] * auxiliary
        self.add_state("weights", weights)
        self.add_state("norms", unknown, per="auxiliary")
        self.add_state("peaks", unknown, per="auxiliary")
        self.add_state("anchor", math.nan if self.from_weights else 1.0, per="auxiliary")  # what ratios are relative to
        self.add_state("alignment", 0.0, per="auxiliary")
        self.add_state("products", math.nan)  # running means, of the gradients' products with the validation loss's
        self.add_state("squares", math.nan)
        self.add_state("square", math.nan, per=None)
        self.add_state("probe", LARGEST_PROBE, per=None)  # by which losses are multiplied where they are measured
        self.add_state("current", weights)  # the coefficients without the scale
        self.add_count("step", 0)  # optimizer steps so far
        self.add_count("next", 0)  # the step of the next measurement
        self.add_count("last", NEVER)  # the step of the last one
        self.add_count("aligned", 0)  # the step of the last alignment
        self.add_count("since", NEVER, per="auxiliary")  # the step at which each term was first measured

    @property
    def validation(self) -> Validation | None:
        """The function whose loss aligns the balance; it may be set."""
        return self._validation

    @validation.setter
    def validation(self, validation: Validation | None) -> None:
        check_validation(validation)
        self._validation = validation

    def weigh(self) -> Tensor:
        current: Tensor = self._buffers["current"]  # type: ignore[assignment]
        return current.clone()  # a measurement of the next call writes into the buffer before backward

    def start_coefficients(self) -> Tensor:
        return self._states["weights"].start.to(self.weights.dtype) * self.scale

    def columns(self) -> dict[str, Tensor]:
        return {"alignment": self.alignment.detach()}

    def after_step(self, skipped: Tensor | None) -> None:
        if self._frozen:
            return
        self.__dict__["step"] += 1  # as self.step += 1 does, for which a module searches its tensors
        if self.step <= max(self.since) + arithmetic.RISE and self._rises:
            self._refresh()

    @property
    def _rises(self) -> bool:
        """Whether terms come in from 0; not from weights, nor where a step evaluates several times, nor unattached."""
        return not self.from_weights and self._attachment is not None and not self._attachment.repeats

    @torch.no_grad()
    def _refresh(self) -> None:
        """Compute the coefficients from what was measured."""
        factors = arithmetic.strength_ratios(self.norms, self.peaks, self.follow) / self.anchor
        if self._rises:
            risen = torch.ones_like(factors)
            for i, since in enumerate(self.since):
                risen[i].fill_(1.0 if since == NEVER else arithmetic.risen(self.step, since))  # without a GPU's answer
            factors = factors * risen
        factors = torch.where(self.norms[:, 0].isnan(), 1.0, factors)
        self.current.copy_(arithmetic.coefficients(self.weights, self.alignment, factors))

    # When

    def observe(self, batch: Batch) -> None:
        known = NEVER not in self.since
        capturing = is_capturing(batch.losses)
        if known and not capturing and (self._frozen or (self.step < self.next and self.step != self.last)):
            return
        several, group = self._ranks()
        if capturing and (not self._frozen or self._is_due(batch.where, several)):
            raise RuntimeError(
                "A balance cannot be measured inside a CUDA graph: replaying it runs no Python, which counts the "
                "steps. Call the criterion with all terms and then criterion.freeze() before the capture, or keep the "
                "criterion out of the graph."
            )
        if self._is_due(batch.where, several):
            self._measure(batch, several, group)

    def _is_due(self, where: tuple[int, ...] | None, several: bool) -> bool:
        """Whether a call measures: its step has come, or a term is there for the first time.

        One of several ranks does not know what the others have. There a new term waits for the next step that measures,
        in which all calls look for it. While the rule is frozen no step comes, so every call looks for it.
        """
        if not self._frozen and self.step >= self.next:
            return True
        if several:
            return NEVER in self.since and (self._frozen or self.step == self.last)
        return any(self._is_unseen(i) for i in self._auxiliary(where))

    def _is_unseen(self, index: int) -> bool:
        """Whether a term was never measured, or not yet in a step that measures, by an earlier micro-batch."""
        again = not self._frozen and self.step == self.last and index not in self._seen
        return again or self.since[index - 1] == NEVER

    def _auxiliary(self, where: tuple[int, ...] | None) -> Sequence[int]:
        """Return the terms that a batch can measure: all but the base, if the base is there."""
        if where is None:
            return range(1, len(self.terms))
        return where[1:] if where and where[0] == 0 else ()

    # What

    def _measure(self, batch: Batch, several: bool, group: torch.distributed.ProcessGroup | None) -> None:
        """Measure the losses of a call.

        A batch without the base, or without any other term, measures nothing; nor do losses that reach nothing the
        optimizer trains. The validation loss is compared with if all terms are there. While the rule is frozen, only
        terms that were never measured get a coefficient.
        """
        losses = dict(zip(range(len(self.terms)) if batch.where is None else batch.where, batch.each(), strict=True))
        with Wrappers.find().apart():
            places = self._where_to_measure(batch, losses)
            if places is None:
                losses, places = {}, []
            sizes = [place.numel() for place in places]
            seen = ranks.Seen(tuple(losses), self._compares(batch, losses), places, sizes, bool(batch.at))
            if several:
                seen = ranks.look(seen, len(self.terms), self._learned(), group, self.norms.device)
            auxiliary = self._auxiliary(seen.where)
            if not auxiliary:
                return
            found, apart = self._measure_at(losses, seen, (group,) if several else ())
        if len(apart) == len(losses) > 0 and not several and self._places.forget():
            self._measure(batch, several, group)  # they were another graph's
            return
        if apart and 0 in losses:
            self._warn_apart(apart, losses)
        first = not self._frozen and (several or self.step != self.last)
        taken = [index for index in auxiliary if first or self._is_unseen(index)]
        self._take(found, seen.where, taken)
        if found is not None and found.compared is not None:
            self._align(found, found.compared)
        self._places.measured += 1
        self._count(taken)
        self._refresh()

    def _where_to_measure(self, batch: Batch, losses: Mapping[int, Tensor]) -> list[Tensor] | None:
        if batch.at or not losses:
            return list(batch.at) if losses else []
        several, _ = self._ranks()  # then all look each time, as one alone could not look again
        return self._places.find(list(losses.values()), batch.where, self._learned(), again=several)

    def _learned(self) -> list[Tensor]:
        return [] if self._attachment is None else self._attachment.model_parameters()

    def _compares(self, batch: Batch, losses: Mapping[int, Tensor]) -> bool:
        """Whether this rank has a validation loss to compare with; only gradients of all terms are compared."""
        if self._validation is None or self._frozen or self.travel == 0 or not losses:
            return False
        if batch.at:
            raise RuntimeError(
                "A validation loss is compared at parameters, but this call names tensors of its own graph to measure "
                "at. Name parameters with BalancedLoss(..., at=...), or leave out validation."
            )
        return True

    def _measure_at(
        self, losses: dict[int, Tensor], seen: ranks.Seen, groups: tuple[torch.distributed.ProcessGroup | None, ...]
    ) -> tuple[Measured | None, list[int]]:
        """Return what is found at the places, of the terms that some rank has, and which losses reach none of them.

        Nothing is found without any place. ``groups``: that of the ranks, if there are several.
        """
        places = seen.places
        if not seen.sizes:
            return None, list(losses)
        some = next(iter(losses.values()), None)
        apart: list[int] = []

        def whole(loss: Tensor | None) -> tuple[Gradients, bool]:
            own = None
            if places and (loss is not None or some is not None):
                # Every rank makes the same backward passes, in which FSDP2 and SyncBatchNorm wait for each other.
                own = measure.gradient(0 * some if loss is None else loss, places, self.probe)  # type: ignore[arg-type,operator]
            reaches = loss is None or (own is not None and any(one is not None for one in own))
            if groups and seen.apart:
                return (None,) * len(seen.sizes) if own is None or loss is None else own, reaches
            if groups:
                own = ranks.average(None if loss is None else own, seen.sizes, groups[0], self.norms)
            assert own is not None
            return own, reaches

        def gradients() -> Iterator[Gradients]:
            for i in seen.where:
                found, reaches = whole(losses.get(i))
                apart.extend([] if reaches else [i])
                yield found

        beside = None
        if seen.compares and len(seen.where) == len(self.terms):
            other = None
            if self._validation is not None and losses:
                other = evaluate(self._validation, self.norms.device, eval_mode=self.eval_mode)
            beside, _ = whole(other)
        found = measure.measure(gradients(), self.probe, beside)
        if groups and seen.apart:
            there = found.squares.new_tensor([float(i in losses) for i in seen.where])
            found = found._replace(squares=ranks.average_squares(found.squares, there, groups[0]))
        return found, apart

    def _warn_apart(self, apart: list[int], losses: Mapping[int, Tensor]) -> None:
        """Warn of terms that share nothing with the base, or raise where the named parameters are another model's."""
        if len(apart) == len(losses) and self._places.named and not self._places.measured:
            raise RuntimeError(
                "No loss reaches the parameters that BalancedLoss(at=...) names: they are another model's. Name those "
                "of this model; to copy or pickle the criterion, do so with its model."
            )
        names = [self.terms[i] for i in apart if i] if 0 not in apart else [self.terms[i] for i in losses if i]
        if names:
            health.warn(self, health.NothingShared, terms=quoted(names), base=self.terms[0])

    @torch.no_grad()
    def _take(self, found: Measured | None, where: tuple[int, ...], taken: Sequence[int]) -> None:
        """Take what was measured of some terms into the running norms and their peaks."""
        pairs, finite = torch.zeros_like(self.norms), torch.ones_like(self.probe, dtype=torch.bool)
        if found is not None:
            finite = found.squares.isfinite().all()
            measured = dict(zip(where[1:], measure.pairs(found.squares).to(pairs), strict=True))
            for index in taken:
                pairs[index - 1] = measured[index]
        self.norms.copy_(arithmetic.running(self.norms, pairs))
        self.peaks.copy_(torch.fmax(self.peaks, self.norms))
        first = arithmetic.strength_ratios(self.norms, self.peaks, self.follow)
        unset = self.anchor.isnan() & ~self.norms[:, 0].isnan()
        self.anchor.copy_(torch.where(unset, first, self.anchor))
        self.probe.copy_(torch.where(finite, self.probe * 2, self.probe / 4).clamp_(1, LARGEST_PROBE))

    @torch.no_grad()
    def _align(self, found: Measured, compared: measure.Compared) -> None:
        """Move the terms by the cosines between their gradients and that of the validation loss."""
        fresh = torch.cat((compared.products, found.squares.sum(1), compared.square.reshape(1))).to(self.norms)
        before = torch.cat((self.products, self.squares, self.square.reshape(1)))
        after = arithmetic.running_products(before, fresh)
        count = len(self.terms)
        self.products.copy_(after[:count])
        self.squares.copy_(after[count:-1])
        self.square.copy_(after[-1])
        cosines = arithmetic.cosines(after)
        rate = arithmetic.travelled(self.aligned, self.step, self.steps, self.travel)
        self.aligned = self.step
        strengths = torch.nan_to_num((self.weights[1:] / self.weights[0] / self.anchor).log(), neginf=-100.0)
        self.alignment.copy_(arithmetic.align(self.alignment, cosines, rate, strengths))

    def _count(self, taken: Sequence[int]) -> None:
        """Note that the terms were measured, and when the next measurement comes.

        Frozen coefficients do not rise, so a term comes in at once; one without a finite gradient is measured again at
        its next call, for which this reads back from the device.
        """
        if self._frozen:
            known = self.norms[:, 0].isfinite().tolist()
            for index in taken:
                if known[index - 1]:
                    self.since[index - 1] = LONG_AGO
            return
        if self.step != self.last:
            self._seen.clear()
        self._seen.update(taken)
        for index in taken:
            if self.since[index - 1] == NEVER:
                self.since[index - 1] = self.step
        self.last, self.next = self.step, arithmetic.next_measurement(self.step, self.every)

    # Copies and printing

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}\n{self._places!r}, step {self.step}, next measurement at {self.next}"

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A copy of the criterion alone measures where the original does; within that of a model, at the model's."""
        copied: Self = copy_but(self, [] if memo else self._places.named, memo)
        return copied

    def __getstate__(self) -> dict[str, Any]:
        if self._validation is not None:
            health.warn(self, health.ValidationNotCopied)
        return super().__getstate__() | {"_validation": None}
