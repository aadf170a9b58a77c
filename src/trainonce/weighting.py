"""LossWeighting: the base of all rules, which turn the losses of a batch into one scalar."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import torch
from torch import Tensor, nn

from trainonce import distributed, functional, health, readout
from trainonce.declared import Declared
from trainonce.health import watch
from trainonce.readback import send
from trainonce.terms import Batch, Patterns, Values, check_names, collect, keep_finite, mark_present, stack
from trainonce.text import is_positive, quoted, singular

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self

    from trainonce.attachment import Attachment
    from trainonce.history import Tally
    from trainonce.terms import Losses, Present

__all__ = ["LossWeighting"]

NonFinite = Literal["propagate", "skip", "raise"]


class CallState:
    """What a criterion knows of its last call; apart from the module, whose attributes are slow to set."""

    __slots__ = ("evaluated", "idle", "inside", "last", "observed", "patterns", "present", "tally", "training")

    def __init__(self) -> None:
        self.last: Values | None = None  # the losses of the last training call; every call makes a new object
        self.present: Present | None = None  # of the call under way; None: all terms
        self.training = 0  # training calls so far
        self.evaluated = 0  # calls in evaluation mode with gradients on
        self.idle = 0  # training calls since the last step of the attached optimizer
        self.inside = False  # whether the optimizer's step, with a closure, is under way
        self.observed = False  # whether it has called the criterion
        self.tally: Tally | None = None
        self.patterns = Patterns()


class LossWeighting(Declared):
    r"""Turns a batch's losses into one scalar; the base of all rules.

    .. math:: L = s \sum_{i=0}^{K} c_i l_i

    :math:`l_0` is the base term, :math:`l_1 \dots l_K` are the auxiliary ones, :math:`c` the coefficients that
    :meth:`weigh` returns, :math:`s` the scale. Call it with the losses of a batch: by keyword, or as one dict, list or
    stacked tensor; ``None`` marks an absent term. It returns a scalar and never calls backward.

    A rule declares what it keeps in its constructor (:meth:`add_state`, :meth:`add_trainable`, :meth:`add_count`) and
    implements :meth:`weigh`; the other methods as far as it needs them. Saving by the names of the terms, equality over
    ranks, copies, logs and histories follow. The page "Write your own rule" shows it.

    :param terms: The names of the losses. The first is the base.
    :param scale: Multiplies the returned loss, and so the model's gradients, but not those of what the rule trains.
    :param nonfinite: What to do with a NaN or infinite loss. ``"propagate"`` (default) lets it through as a plain sum
        would and reads nothing back from the device. ``"skip"`` treats the term as absent from the batch, so that it
        cannot reach the gradients of the others (pass the losses separately: a tensor that you stacked yourself still
        contains the graph of the bad one). ``"raise"`` raises an error that names the term. Both read the values back
        from the device once per call.
    """

    #: Of the rule's arithmetic; records of a study hold it.
    version: ClassVar[int] = 1
    #: What :meth:`pull` is multiplied by, besides the learning rate.
    decay: float = 1.0
    #: Whether :meth:`observe` is called while the rule is frozen, too, and at every micro-batch of a step.
    observes_always: ClassVar[bool] = False
    #: Whether losses of other scales get other coefficients for that alone, which a warning says.
    compares_raw: ClassVar[bool] = False

    def __init__(self, terms: Iterable[str], *, scale: float = 1.0, nonfinite: NonFinite = "propagate") -> None:
        super().__init__(check_names(terms, type(self).__name__))
        if not is_positive(scale):
            raise ValueError(f"scale must be a positive number; got {scale!r}.")
        if nonfinite not in get_args(NonFinite):
            raise ValueError(f"nonfinite must be one of {quoted(get_args(NonFinite))}; got {nonfinite!r}.")
        self.scale = float(scale)
        self.nonfinite = nonfinite
        self._attachment: Attachment | None = None
        self._call = CallState()
        self._start_coefficients: Tensor | None = None

    # What a rule implements

    def weigh(self) -> Tensor:
        """Return what multiplies each raw loss, shape ``(K + 1,)``, base first, without the scale.

        Read what is trained by :meth:`live`, so that gradients reach it.
        """
        raise NotImplementedError(f"{self.kind} does not implement weigh().")

    def combine(self, batch: Batch) -> Tensor:
        """Return the sum of the batch's losses, weighed by :meth:`weigh`; override it to add other terms."""
        weights = self.weigh()
        if batch.present is not None:
            weights = weights.index_select(0, batch.present.indices)
        return functional.weighted_sum(weights, batch.losses)

    def observe(self, batch: Batch) -> None:
        """Update the state before the sum of a training call; ``batch.given`` are the losses with their graphs.

        It is called once a step, at the first call in training mode with gradients on, unless the rule is frozen, and
        outside of any compiled graph. On several ranks every rank calls it, whatever its batch lacks, and what it
        writes must be equal on all of them: take it through :meth:`mean`.
        """

    def pull(self) -> Tensor | None:
        """Return the decoupled direction at the values before a step.

        After it ``lr * decay * pull()`` is subtracted from what is trained.
        """
        return None

    def after_step(self, skipped: Tensor | None) -> None:
        """Advance after an optimizer step before which the rule was called.

        ``skipped`` is not 0, on the device, where GradScaler had a fused optimizer skip the step, and None where it has
        no part.
        """

    def columns(self) -> dict[str, Tensor]:
        """Return further values for logs and histories by name, each per term, per auxiliary term, or a single one."""
        return {}

    # What the base gives to rules

    def live(self, name: str) -> Tensor:
        """Return what is trained, whole and in float32 or wider, so that the sum's gradient reaches it.

        The gradient is exactly zero where a term is absent (of what is kept per term) or the rule is frozen, so that
        every rank has one to average; and it is that of the sum without the scale.
        """
        value: Tensor = self._parameters[name]  # type: ignore[assignment]
        if type(value) is not nn.Parameter:
            value = distributed.unshard(value)
        if value.dtype.itemsize < 4:
            health.warn(self, health.LowPrecision, dtype=value.dtype)
            value = value.float()
        if self._frozen:
            value = value.detach() + 0 * value
        elif self._call.present is not None and self._states[name].per is not None:
            mask = self._call.present.mask
            value = torch.where(mask[1:] if self._states[name].per == "auxiliary" else mask, value, value.detach())
        if self.scale != 1.0:
            value = value.detach() + (value - value.detach()) / self.scale
        return value

    def _whole(self, name: str) -> Tensor:
        """Return what is trained, detached; of all ranks where it is sharded."""
        own: Tensor = self._parameters[name]  # type: ignore[assignment]
        return own.detach() if type(own) is nn.Parameter else distributed.unshard(own.detach())

    def steer(self, total: Tensor, gradient: Tensor) -> Tensor:
        """Return the sum plus a term of value 0 that gives what is trained this gradient.

        Unlike a ``.grad`` set by hand it goes through accumulation, GradScaler and the mean over ranks.
        """
        if self.trainable is None:
            raise RuntimeError(f"{self.kind} trains nothing that could be steered: call add_trainable first.")
        value = self.live(self.trainable)
        return total + (gradient.detach() * (value - value.detach())).sum()

    def mean(self, value: Tensor, valid: Tensor | None = None) -> Tensor:
        """Return the mean over the attached ranks, elementwise of those where ``valid``; NaN where none is."""
        together, group = self._ranks()
        if not together:
            return value if valid is None else torch.where(valid, value, math.nan)
        there = torch.ones_like(value) if valid is None else valid.to(value.dtype).expand_as(value)
        sent = torch.stack((torch.where(there > 0, value, 0), there))
        torch.distributed.all_reduce(sent, group=group)
        return sent[0] / sent[1]

    def _ranks(self) -> tuple[bool, torch.distributed.ProcessGroup | None]:
        """Whether several ranks weigh together, and their group."""
        sync = True if self._attachment is None else self._attachment.sync
        group = None if isinstance(sync, bool) else sync
        return sync is not False and distributed.is_distributed(group), group

    # The call

    if TYPE_CHECKING:

        def __call__(self, losses: Losses | None = None, /, *, at: object = None, **terms: Tensor | None) -> Tensor: ...

    def forward(
        self, losses: Losses | None = None, /, *more: object, at: object = None, **terms: Tensor | None
    ) -> Tensor:
        if more:
            raise TypeError(
                f"{self.kind} takes the losses by keyword, as a dict, or in one list; got {1 + len(more)} positional "
                "arguments. Write criterion([...])."
            )
        given, where = collect(self.kind, self.terms, losses, terms)
        if self.nonfinite != "propagate":
            given, where = self._keep_finite(given, where)
        places = () if at is None else self._check_places(at)
        training = torch.is_grad_enabled() and self.training
        call = self._call
        if not len(given):
            return self._sum_nothing(training, places)
        vector = stack(self.terms, given, where)
        own = self._device()
        if own is not None and vector.device != own:
            raise ValueError(
                f"The losses are on {vector.device}, the criterion is on {own}. "
                f"Call criterion.to({str(vector.device)!r}) before training."
            )
        present = None if where is None else self._mark_present(where, vector.device)
        batch = Batch(vector, present, given, where, places)
        if training:
            self._train(batch)
        elif torch.is_grad_enabled():
            call.evaluated += 1
        call.present = present
        total = self.combine(batch)
        return total if self.scale == 1.0 else total * self.scale

    def _train(self, batch: Batch) -> None:
        """Do what a training call does besides summing; nothing is copied to the host."""
        call = self._call
        if not torch.compiler.is_compiling():
            self._take_call(batch)
        elif type(self).observe is not LossWeighting.observe:
            self._take_call_eagerly(batch)
        call.last = Values(batch.losses.detach(), batch.present)
        if call.tally is not None:
            call.tally.add(call.last, fresh=self.trainable is None or getattr(self, self.trainable).grad is None)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _take_call_eagerly(self, batch: Batch) -> None:
        self._take_call(batch)

    def _take_call(self, batch: Batch) -> None:
        """Count the call, check what is due, and let the rule observe; outside of any compiled graph."""
        call = self._call
        call.training += 1
        call.idle += 1
        if call.training == 1 or call.idle in watch.CALLS:
            watch.check_calls(self)
        later = call.idle > 1 and self._attachment is not None  # calls of the same step
        if (call.inside and call.observed) or ((later or self._frozen) and not self.observes_always):
            return
        call.observed = True
        self.observe(batch)

    def _sum_nothing(self, training: bool, places: tuple[Tensor, ...]) -> Tensor:
        """Return the loss of a batch from which nothing can be learned: a zero that backward and GradScaler accept.

        It reaches what others would wait for the gradient of: on other ranks DistributedDataParallel, of all that the
        optimizer trains; and GradScaler, of any of it, where the rule trains nothing itself.
        """
        device = self._device() or torch.get_default_device()
        none = torch.zeros(0, device=device)
        if training:
            present = self._mark_present((), device)
            self._train(Batch(none, present, [], (), places))
        attachment = self._attachment
        own = None if self.trainable is None else getattr(self, self.trainable)
        reached = [] if own is None or not own.requires_grad else [own]
        if attachment is not None and (own is None or self._ranks()[0]):
            model = [p for p in attachment.model_parameters() if p.requires_grad]
            reached = (model if self._ranks()[0] else sorted(model, key=Tensor.numel)[:1]) + reached
        if not training or not reached:
            return torch.zeros((), device=device, requires_grad=torch.is_grad_enabled())
        # The exponents' part is made last: autograd runs it first, as in a batch with losses, so that ranks agree.
        total = torch.zeros((), device=device)
        for parameter in reached:
            total = total + parameter.flatten()[:0].sum().to(total)
        return total

    def _keep_finite(
        self, given: Tensor | list[Tensor], where: tuple[int, ...] | None
    ) -> tuple[Tensor | list[Tensor], tuple[int, ...] | None]:
        """Leave out the losses that are not finite, or raise an error that names them."""
        kept, where, bad = keep_finite(self.terms, given, where)
        if bad and self.nonfinite == "raise":
            raise FloatingPointError(
                f"The losses {quoted(bad)} are not finite in this batch. Find the cause, or use nonfinite='skip'."
            )
        if bad:
            health.warn(self, health.SkippedTerm, terms=quoted(bad))
        return kept, where

    def _check_places(self, at: object) -> tuple[Tensor, ...]:
        found = (at,) if isinstance(at, Tensor) else tuple(at) if isinstance(at, (list, tuple)) else ()
        if not torch.is_grad_enabled():
            return ()
        if not found or not all(isinstance(one, Tensor) and one.requires_grad for one in found):
            raise TypeError(
                f"{self.kind} measures at tensors that carry gradients, such as the features that all heads start "
                f"from: at=features, or several in a list; got {type(at).__name__}."
            )
        return found

    def _mark_present(self, where: tuple[int, ...], device: torch.device) -> Present:
        if torch.compiler.is_compiling():
            return mark_present(where, len(self.terms), device)
        return self._call.patterns.mark(where, len(self.terms), device)

    def _device(self) -> torch.device | None:
        """Where the rule's state is; None for a rule without any."""
        for store in (self._parameters, self._buffers):
            for tensor in store.values():
                if tensor is not None:
                    return tensor.device
        return None

    # What to read

    @torch.no_grad()
    def coefficients(self) -> Tensor:
        """Return what multiplies each raw loss in the returned sum, base first, scale included; detached."""
        present, self._call.present = self._call.present, None
        try:
            weights = self.weigh()
        finally:
            self._call.present = present
        if not isinstance(weights, Tensor) or weights.shape != (len(self.terms),):
            found = f"shape {tuple(weights.shape)}" if isinstance(weights, Tensor) else type(weights).__name__
            raise TypeError(
                f"{self.kind}.weigh() must return a tensor of shape ({len(self.terms)},), what multiplies each loss; "
                f"got {found}."
            )
        return weights.detach().clone() if self.scale == 1.0 else weights.detach() * self.scale

    def ratios(self) -> Tensor:
        """Return each coefficient relative to the base's; infinite or 0 where the base has 0."""
        return functional.ratios(self.coefficients())

    def reference(self, losses: Losses | None = None, /, **terms: Tensor | None) -> Tensor:
        """Return the sum of the losses with the coefficients of the start, which means the same throughout the run.

        The meaning of the returned loss changes as the coefficients move: it can fall because weight moved to the
        smaller loss. Use this value for logs, schedules and early stopping. Without arguments it is that of the last
        training call. Absent terms count as 0.
        """
        if losses is not None or terms:
            with torch.no_grad():
                given, where = collect(self.kind, self.terms, losses, terms)
                if not len(given):
                    return torch.zeros((), device=self._device())
                vector = stack(self.terms, given, where)
                values = Values(vector, None if where is None else self._mark_present(where, vector.device))
        elif self._call.last is not None:
            values = self._call.last
        else:
            raise RuntimeError("There is no last call to take the reference of: call the criterion first.")
        start = self._at_start(values.losses.device)
        if values.present is not None:
            start = start.index_select(0, values.present.indices)
        return (start * values.losses.detach()).sum()

    def _at_start(self, device: torch.device) -> Tensor:
        """The coefficients before the first step, computed once: by a copy of the rule at its start."""
        if self._start_coefficients is None:
            self._start_coefficients = self.start_coefficients()
        if self._start_coefficients.device != device:
            self._start_coefficients = send(self._start_coefficients, device)
        return self._start_coefficients

    def start_coefficients(self) -> Tensor:
        """Return the coefficients of a rule that has just been made."""
        before = {name: getattr(self, name) for name in self._states}
        tensors: tuple[dict[str, Any], dict[str, Any]] = (self._parameters, self._buffers)
        try:
            for name, state in self._states.items():
                store = tensors[name in self._buffers]
                start = state.start.to(before[name].dtype)
                store[name] = nn.Parameter(start, requires_grad=False) if name in self._parameters else start
            return self.coefficients()
        finally:
            for name, own in before.items():
                tensors[name in self._buffers][name] = own

    def log_dict(self) -> dict[str, Tensor]:
        """Return detached scalars of the last call for a logger, by name.

        ``loss/x``, ``coefficient/x``, ``ratio/x`` of auxiliary terms, what the rule trains, what it adds
        (:meth:`columns`) and ``reference``. Nothing is read back from the device until the logger asks for a number.
        """
        found = {"coefficient": self.coefficients(), "ratio": self.ratios()[1:], **self._trained(), **self._added()}
        scalars = {name: value for kind, row in found.items() for name, value in self._by_name(kind, row)}
        if self._call.last is not None:
            scalars |= dict(self._by_name("loss", self._call.last.pad()))
            scalars["reference"] = self.reference()
        return scalars

    def _trained(self) -> dict[str, Tensor]:
        if self.trainable is None:
            return {}
        return {singular(self.trainable): self._whole(self.trainable)}

    def _added(self) -> dict[str, Tensor]:
        """Return the rule's own columns; none may have the name of one that every rule has."""
        found = self.columns()
        taken = [name for name in found if name in ("loss", "coefficient", "ratio", "reference", *self._trained())]
        if taken:
            raise ValueError(f"{self.kind}.columns() returns {quoted(taken)}, which every rule shows. Use other names.")
        return found

    def _by_name(self, kind: str, row: Tensor) -> list[tuple[str, Tensor]]:
        return list(zip(readout.names(kind, self.terms, row), row.reshape(-1).unbind(), strict=True))

    def extra_repr(self) -> str:
        shown = f"terms: {', '.join(self.terms)}"
        states = [getattr(self, name) for name in self._states]
        if any(state.is_meta for state in states):
            return f"{shown}; on the meta device, no values yet"
        if any(distributed.is_sharded(state) for state in states):
            return f"{shown}; sharded: read .coefficients() on every rank"
        found = {"coefficient": self.coefficients(), "ratio": self.ratios(), **self._trained(), **self._added()}
        rows = readout.table(self.terms, {name: column.tolist() for name, column in found.items() if column.dim()})
        if self.scale != 1.0:
            rows.append(f"scale {self.scale:g}")
        if self._frozen:
            rows.append("frozen")
        return "\n".join(rows)

    # Stopping and starting

    @property
    def frozen(self) -> bool:
        """Whether :meth:`freeze` holds the coefficients."""
        return self._frozen

    @property
    def attachment(self) -> Attachment | None:
        """What :func:`trainonce.attach` returned, or None."""
        return self._attachment

    def freeze(self) -> Self:
        """Hold the coefficients where they are from now on: neither gradients nor decay nor measurements move them."""
        self._frozen = True
        if self.trainable is not None:
            own = getattr(self, self.trainable)
            own.grad = None
            if self._attachment is None and not distributed.is_distributed():  # DDP would wait for the gradient
                own.requires_grad_(False)
        return self

    def unfreeze(self) -> Self:
        """Let the coefficients move again."""
        if self.trainable is not None:
            attachment = self._attachment
            if attachment is not None and attachment.has_optimizer and attachment.group is None:
                raise RuntimeError(
                    f"The {self.trainable} were frozen when attach was called, so the optimizer does not train them. "
                    "Call criterion.attachment.remove(), unfreeze, and attach to an optimizer that can."
                )
            getattr(self, self.trainable).requires_grad_(True)
        self._frozen = False
        return self

    def _set_frozen(self, frozen: bool) -> None:
        if frozen:
            self.freeze()
        elif self._frozen:
            self.unfreeze()

    @property
    def follows_steps(self) -> bool:
        """Whether the rule needs to be attached: it trains something, or moves on with the steps."""
        return self.trainable is not None or type(self).after_step is not LossWeighting.after_step

    # Copies

    def __getstate__(self) -> dict[str, Any]:
        """A copy is not attached to the optimizer the original was attached to."""
        kept = {key: value for key, value in self.__dict__.items() if key != "_warned"}
        return kept | {"_attachment": None, "_call": CallState()}
