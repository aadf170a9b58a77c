"""CompositeLoss: the layer that turns several losses into one, with weights that are learned."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import Tensor, nn

from trainonce import checkpoint, distributed, functional, health, readout
from trainonce.call_state import CallState
from trainonce.health import watch
from trainonce.terms import Values, check_names, collect, keep_finite, mark_present, stack, starting_exponents
from trainonce.text import is_positive, quoted
from trainonce.units import GradientUnits, HeldOut, Ranks, UnitMeter, calls, saved_units
from trainonce.units import weights as unit_weights
from trainonce.units.buffers import at_least_float32, materialise, replaces_meta
from trainonce.units.copies import copy_but
from trainonce.units.settings import Signal, check_signal, check_units

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Self

    from trainonce.attachment import Attachment
    from trainonce.history import Tally
    from trainonce.terms import Losses, Present
    from trainonce.units.meter import Place

    Carried = tuple[Callable[[], Tensor] | None, Place | None]

NonFinite = Literal["propagate", "skip", "raise"]


class CompositeLoss(nn.Module):
    r"""Sums several losses with weights that the model's own optimizer learns.

    .. math:: L_e = \sum_{i=0}^{K} \lambda_i l_i, \qquad \lambda = \mathrm{softmax}(0, \mu_1, \dots, \mu_K)

    :math:`l_0` is the base term, :math:`l_1 \dots l_K` are the auxiliary terms and :math:`\mu` the learned exponents.
    Call it with the losses of a batch: by keyword, or as one dict, list or stacked tensor. It returns a scalar and
    never calls backward. :func:`trainonce.attach` puts the exponents into the optimizer.

    :param terms: The names of the losses. The first is the base: its exponent is the constant 0.
    :param init: The paper's :math:`\epsilon`: :math:`e^{\mu_i}` at the start, that is, the ratio of each auxiliary
        weight to the base weight. One positive number, or a dict with one for each auxiliary term. By default 0.1, and
        1 in gradient units.
    :param units: What the losses are divided by before they are weighted. ``"raw"``: nothing, as in the paper.
        ``"gradient"``: a norm of each term's gradient, so that the losses' own scales do not matter; a
        :class:`GradientUnits` says how it is measured.
    :param signal: What moves the exponents. ``"loss"``, the default with raw units: the gradient of the sum, as in the
        paper. ``"held_out"``, the default with gradient units: the losses that :meth:`held_out` is given, and nothing
        without them; a :class:`HeldOut` says how far.
    :param scale: Multiplies the returned loss, and so the model's gradients, but not the exponents' gradients. Set it
        to the sum of the weights you had: weights that summed to 11 now sum to 1, and without ``scale=11`` the steps of
        plain SGD would be 11 times smaller.
    :param nonfinite: What to do with a NaN or infinite loss. ``"propagate"`` (default) lets it through as a plain sum
        would and reads nothing back from the device. ``"skip"`` treats the term as absent from the batch, so that it
        cannot reach the gradients of the others (pass the losses separately: a tensor that you stacked yourself still
        contains the graph of the bad one). ``"raise"`` raises an error that names the term. Both read the values back
        from the device once per call.

    >>> criterion = CompositeLoss(["ce", "invariance"], init=0.1)
    >>> ce, invariance = torch.tensor(2.0, requires_grad=True), torch.tensor(1.0, requires_grad=True)
    >>> round(criterion(ce=ce, invariance=invariance).item(), 4)
    1.9091
    >>> print(criterion)
    CompositeLoss(
      term        weight  ratio to base  exponent
      ce          0.9091              1         0 (base)
      invariance  0.0909            0.1   -2.3026
    )

    .. note:: A term that is absent from a batch is passed as ``None``. Its exponent gets no gradient, the weights of
        the others stay as they are, and the losses of the others are compared with the mean of those that are present.
        The paper does not treat this case.
    """

    exponents: nn.Parameter
    _kind = "CompositeLoss"  # in checkpoints; not the class's name, which fully_shard changes
    _loading = False  # whether load_state_dict is at work, which may put parameters in place of others, too

    def __init__(
        self,
        terms: Iterable[str],
        *,
        init: float | Mapping[str, float] | None = None,
        units: Literal["raw", "gradient"] | GradientUnits = "raw",
        signal: Signal | HeldOut | None = None,
        scale: float = 1.0,
        nonfinite: NonFinite = "propagate",
    ) -> None:
        super().__init__()
        self.terms = check_names(terms, type(self).__name__)
        self._setup(scale, nonfinite)
        dtype = _parameter_dtype()
        measured = check_units(units)
        self._signal, held_out = check_signal(signal, raw=measured is None)
        self.meter = None if measured is None else UnitMeter(len(self.terms), measured, held_out, dtype)
        if init is None:
            init = 0.1 if self.meter is None else 1.0
        self._init_exponents = starting_exponents(self.terms, init)
        self.exponents = nn.Parameter(torch.empty(len(self.terms) - 1, dtype=dtype), requires_grad=self.learned)
        self.reset_parameters()
        if self.learned:
            self._calls.follow(self.exponents, lambda: self._count_call(eager=False))

    def _setup(self, scale: float, nonfinite: NonFinite) -> None:
        if not is_positive(scale):
            raise ValueError(f"scale must be a positive number; got {scale!r}.")
        if nonfinite not in get_args(NonFinite):
            raise ValueError(f"nonfinite must be one of {quoted(get_args(NonFinite))}; got {nonfinite!r}.")
        self.scale = float(scale)
        self.nonfinite = nonfinite
        self._frozen = False
        self._attachment: Attachment | None = None
        self._ranks = Ranks()
        self._tally: Tally | None = None
        self._call_state = CallState()
        self._start: Tensor | None = None
        self._calls = watch.CallWatch()

    def reset_parameters(self) -> None:
        """Set the exponents to their start; needed once after meta-device initialisation and ``to_empty``."""
        self._reset_exponents()
        if self.meter is not None:
            self.meter.reset()

    def _reset_exponents(self) -> None:
        with torch.no_grad():
            start = torch.tensor(self._init_exponents, dtype=self.exponents.dtype, device=self.exponents.device)
            self.exponents.copy_(distributed.shard_like(start, self.exponents))

    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        """Keep start and precision under Transformers' ``from_pretrained``; see :class:`StartingBuffers`."""
        before = self._parameters.get(name)
        kept = (self.learned or self.meter is not None) and not self._loading
        if kept and replaces_meta(before, param) and not distributed.is_sharded(param):  # type: ignore[arg-type]
            start = torch.tensor(self._init_exponents, dtype=torch.float64, device="cpu")
            values = materialise(param, before.dtype, start).detach()  # type: ignore[arg-type, union-attr]
            param = nn.Parameter(values, requires_grad=self.learned)
        super().register_parameter(name, param)

    # The call

    if TYPE_CHECKING:

        def __call__(self, losses: Losses | None = None, /, **terms: Tensor | None) -> Tensor: ...

    def forward(self, losses: Losses | None = None, /, *more: object, **terms: Tensor | None) -> Tensor:
        if more:
            raise TypeError(
                f"CompositeLoss takes the losses by keyword, as a dict, or in one list; got {1 + len(more)} positional "
                "arguments. Write criterion([...])."
            )
        exponents = self.exponents
        given, where = collect(self.terms, losses, terms)
        if self.nonfinite != "propagate":
            given, where = self._keep_finite(given, where)
        tracking = torch.is_grad_enabled()
        if not len(given):
            if tracking:
                if self.meter is not None:
                    self._measure([], ())  # other ranks may have losses
                self._note(Values(exponents.new_full((len(self.terms),), math.nan), None))
            return _zero_loss(exponents)
        values = Values(stack(self.terms, given, where), None if where is None else self._mark_present(where))
        if values.losses.device != exponents.device:
            raise ValueError(
                f"The losses are on {values.losses.device}, the criterion is on {exponents.device}. "
                f"Call criterion.to({str(values.losses.device)!r}) before training."
            )
        in_units = values.losses
        if self.meter is not None:
            if tracking:
                self._measure(given, where)
            if self.learned:
                in_units = in_units * unit_weights.per_unit(self.meter, values.present)
        if tracking:
            self._note(Values(values.losses.detach(), values.present))
        weights = self._live_weights(exponents, values.present)
        if values.present is None:
            total = functional.weighted_sum(weights, in_units)
        else:
            total = functional.sum_of_present(weights, in_units, values.present.indices)
        return total if self.scale == 1.0 else total * self.scale

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

    def _mark_present(self, where: tuple[int, ...]) -> Present:
        device = self.exponents.device
        if torch.compiler.is_compiling():
            return mark_present(where, len(self.terms), device)
        return self._call_state.mark_present(where, len(self.terms), device)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _measure(self, given: Tensor | list[Tensor], where: tuple[int, ...] | None) -> None:
        """Measure the units if it is time to; outside of any graph, since time is counted on the host."""
        assert self.meter is not None
        call = calls.Call(given, where, self._frozen)
        state, exponents = self._call_state, self._full_exponents
        moved, apart = calls.measure(self.meter, call, state, self._attachment, self._ranks, exponents)
        if moved is not None:
            with torch.no_grad():
                self.exponents.copy_(distributed.shard_like(moved, self.exponents))
        if apart and where is not None:
            names = quoted(self.terms[i] for i in where)
            health.warn(self, health.ApartFromBase, terms=names, base=self.terms[0])

    def _live_weights(self, exponents: nn.Parameter, present: Present | None) -> Tensor:
        """The weights, differentiable in the exponents that this call may move."""
        if self.meter is not None and not self.learned:
            if torch.compiler.is_compiling():
                return self._of_raw_at(self._full_exponents())
            # Not learned, so computed anew only when something has changed that they depend on.
            version = unit_weights.version(self.meter, exponents)
            return self._call_state.held(version, lambda: self._of_raw_at(self._full_exponents()))
        mu: Tensor = exponents
        if type(mu) is not nn.Parameter:
            mu = distributed.unshard(mu)
        if mu.dtype.itemsize < 4:
            health.warn(self, health.LowPrecision, dtype=mu.dtype)
            mu = mu.float()
        # A frozen or absent exponent stays in the graph with a gradient of exactly zero, so that every rank has one to
        # average and DistributedDataParallel sees the parameter used.
        if self._frozen:
            mu = mu.detach() + 0 * mu
        elif present is not None:
            mu = torch.where(present.mask[1:], mu, mu.detach())
        if self.scale != 1.0:
            mu = mu.detach() + (mu - mu.detach()) / self.scale
        if torch.compiler.is_compiling():
            return functional.weights(mu)
        return functional.weights_with(self._call_state.base_exponent(mu), mu)

    def _note(self, values: Values) -> None:
        """Remember this call's losses for logs and history; no copy to the host."""
        self._call_state.last = values
        if self._tally is not None:
            self._tally.add(values, fresh=self.exponents.grad is None)
        if not torch.compiler.is_compiling():
            self._count_call(eager=True)

    def _count_call(self, *, eager: bool) -> None:
        """Count a training call. The first checks the placement and starts averaging, if the ranks are up by then."""
        self._calls.count(self, eager=eager)
        if self._calls.calls == 1 and distributed.is_distributed():
            distributed.check_placement(self)
            if self._attachment is not None:
                self._attachment.start_averaging()

    # What a loop may tell, in gradient units

    def share(self, *tensors: Tensor) -> None:
        """Measure the units of the next call at these tensors of the forward pass, which every term is computed from.

        For models whose parameters cannot be measured at, as with FSDP2, and where it is cheaper. Call it before each
        call of the criterion; it costs nothing where nothing is measured. Raw units and ``torch.no_grad`` ignore it.

        >>> criterion = CompositeLoss(["a", "b"], units="gradient")
        >>> features = torch.ones(3, requires_grad=True) * 2
        >>> criterion.share(features)
        >>> _ = criterion(a=features.sum(), b=100 * features.sum())
        >>> criterion.units
        tensor([  1., 100.])
        """
        if not torch.is_grad_enabled():
            return  # validation measures nothing
        if not tensors or not all(isinstance(tensor, Tensor) and tensor.requires_grad for tensor in tensors):
            raise TypeError("share needs tensors that carry gradients, such as the features that all heads start from.")
        if self.meter is not None:
            self._call_state.places = tensors

    def held_out(self, loss: Callable[[], Tensor]) -> None:
        """Let a loss on data that is not trained on move the weights, in gradient units.

        Call it once a step, before or after the criterion. ``loss`` is evaluated only where the criterion measures, in
        fewer and fewer steps; then its gradient is compared with those of the terms, and terms that point the same way
        gain weight. It should be the base loss, or any differentiable stand-in of your metric. Data that also chooses
        between models will do: every point of a grid uses it too. ``loss`` runs the model as it is, in training mode.
        Criteria that have no use for it ignore it, so that a loop works with any: fixed ones, those in raw units, and a
        travel of 0.

        :param loss: A function that computes the loss, with its graph.

        >>> model = nn.Linear(3, 2)
        >>> criterion = CompositeLoss(["a", "b"], units="gradient", signal=HeldOut(steps=100))
        >>> x, held_out = torch.ones(4, 3), torch.zeros(4, 3)
        >>> for _ in range(3):
        ...     criterion.held_out(lambda: model(held_out).square().mean())
        ...     y = model(x)
        ...     _ = criterion(a=y.square().mean(), b=(y[:, 0] - 1).square().mean())
        >>> criterion.exponents.requires_grad
        False
        """
        if not callable(loss):
            raise TypeError(f"held_out needs a function that computes the loss, such as a lambda; got {loss!r}.")
        drift = None if self.meter is None else self.meter.drift
        if drift is not None and drift.settings.travel != 0:
            self._call_state.held_out = loss

    # What the attachment and the health checks use; not for users

    def _carried(self) -> Carried:
        """What this call leaves for the next and no checkpoint holds, of a training that goes back."""
        return self._call_state.held_out, None if self.meter is None else self.meter.place

    def _carry_on(self, carried: Carried) -> None:
        """Go on as after the call that left this."""
        held_out, place = carried
        self._call_state.places, self._call_state.held_out = (), held_out
        if self.meter is not None:
            self.meter.place = place

    def _bind(self, attachment: Attachment, tally: Tally | None) -> None:
        """Become attached: the exponents get gradients if they are learned, and each call's losses go to ``tally``."""
        self._attachment, self._tally = attachment, tally
        self._ranks = Ranks(attachment.process_group, together=attachment.sync)
        self.exponents.requires_grad_(self.learned)

    def _unbind(self) -> None:
        """Be attached no longer. The exponents keep their gradients: they are still in the optimizer."""
        self._attachment = self._tally = None

    @property
    def _last_call(self) -> Values | None:
        """The losses of the last training call; every call makes a new object."""
        return self._call_state.last

    @property
    def _training_calls(self) -> int:
        """How many training calls were counted."""
        return self._calls.calls

    def _base_exponent(self, like: Tensor) -> Tensor:
        """The base term's exponent, a zero of the dtype and device of ``like`` that is kept between calls."""
        return self._call_state.base_exponent(like)

    def _weights_at(self, exponents: Tensor) -> Tensor:
        """The weights of all terms when the exponents are these. Weights that are not learned ignore them."""
        if self.meter is None:
            return functional.weights(exponents)
        factors = self._of_raw_at(exponents)
        return factors / factors.sum()

    def _of_raw_at(self, exponents: Tensor) -> Tensor:
        """What each raw loss is multiplied by in the sum at these exponents, apart from ``scale``."""
        assert self.meter is not None
        return unit_weights.of_raw(self.meter, exponents, None if self.learned else self._weights_of_init()[0])

    def _weights_of_init(self) -> list[float]:
        """The weights that ``init`` gives, without asking the device."""
        top = max(0.0, *self._init_exponents)
        ratios = [math.exp(mu - top) for mu in (0.0, *self._init_exponents)]
        return [ratio / sum(ratios) for ratio in ratios]

    def _units_row(self, exponents: Tensor) -> Tensor:
        """What a history keeps of the units: those of the auxiliary terms, and the total; nothing of raw ones."""
        if self.meter is None:
            return exponents.new_empty(0)
        return torch.cat((self.units[1:], self._total_at(exponents).reshape(1)))

    def _after_step(self, found_inf: Tensor | None) -> None:
        """Called after each step of the attached optimizer; a schedule moves on here.

        ``found_inf`` is not 0 where GradScaler had a fused optimizer skip the step, and None where it has no part.
        """
        if self.meter is not None and not self._frozen:
            self.meter.advance()

    # What to read

    @property
    def weights(self) -> Tensor:
        """The current weights of the raw losses, base first; detached, they sum to 1."""
        return self._weights_at(self._full_exponents())

    @property
    def shares(self) -> Tensor:
        """The current weights of the losses in their units, which sum to 1; with raw units, :attr:`weights`."""
        asked = 0.0 if self.meter is None else self.meter.asked
        return functional.weights(self._full_exponents() + asked)

    @property
    def units(self) -> Tensor:
        """What each raw loss is divided by, relative to the base: all 1 with raw units."""
        if self.meter is None:
            return torch.ones(len(self.terms)).to(self._full_exponents())
        return unit_weights.units(self.meter)

    @property
    def total(self) -> Tensor:
        """What :attr:`weights` are multiplied by in the returned sum, apart from ``scale``.

        1 if they are learned. In gradient units the base's weight is held instead.
        """
        return self._total_at(self._full_exponents())

    def _total_at(self, exponents: Tensor) -> Tensor:
        return exponents.new_ones(()) if self.meter is None else self._of_raw_at(exponents).sum()

    def _full_exponents(self) -> Tensor:
        mu = self.exponents.detach()
        return mu if type(self.exponents) is nn.Parameter else distributed.unshard(mu)

    @property
    def learned(self) -> bool:
        """Whether an optimizer moves the weights; False for fixed and replayed ones, and in gradient units."""
        return self._signal == "loss"

    @property
    def frozen(self) -> bool:
        """Whether :meth:`freeze` holds the weights."""
        return self._frozen

    @property
    def attachment(self) -> Attachment | None:
        """What :func:`trainonce.attach` returned, or None."""
        return self._attachment

    def as_dict(self) -> dict[str, float]:
        """The current weights by name, as Python floats, read back from the device."""
        return dict(zip(self.terms, self.weights.tolist(), strict=True))

    def reference(self, losses: Losses | None = None, /, **terms: Tensor | None) -> Tensor:
        """The sum of the losses with the initial weights, which means the same throughout the run.

        The meaning of the returned loss changes as the weights move: it can fall because weight moved to the smaller
        loss. Use this value for logs, schedules and early stopping. Without arguments it is that of the last training
        call. Absent terms count as 0.

        >>> criterion = CompositeLoss(["a", "b"], init=1.0)
        >>> criterion.reference(a=torch.tensor(1.0, requires_grad=True), b=torch.tensor(3.0, requires_grad=True))
        tensor(2.)
        """
        if losses is not None or terms:
            with torch.no_grad():
                given, where = collect(self.terms, losses, terms)
                if not len(given):
                    return self.exponents.new_zeros(())
                values = Values(stack(self.terms, given, where), None if where is None else self._mark_present(where))
        elif self._last_call is not None:
            values = self._last_call
        else:
            raise RuntimeError("There is no last call to take the reference of: call the criterion first.")
        start = self._start_weights(values.losses.device)
        if values.present is not None:
            start = start.index_select(0, values.present.indices)
        return self.scale * (start * values.losses.detach()).sum()

    def _start_weights(self, device: torch.device) -> Tensor:
        if self._start is None or self._start.device != device or self._start.dtype != self.exponents.dtype:
            exponents = torch.empty(len(self.terms) - 1, dtype=self.exponents.dtype, device=device)
            for i, value in enumerate(self._init_exponents):
                exponents[i].fill_(value)  # torch.tensor of a list would wait for a GPU
            self._start = functional.weights(exponents)
        return self._start

    def log_dict(self) -> dict[str, Tensor]:
        """Detached scalars of the last call for a logger: ``loss/x``, ``weight/x``, ``exponent/x``, ``reference``.

        Losses and weights are raw; in gradient units, ``unit/x`` and ``total`` come with them.

        Nothing is read back from the device until the logger asks for a number.
        """
        scalars = readout.by_name("weight", self.terms, self.weights.unbind())
        scalars |= readout.by_name("exponent", self.terms[1:], self._full_exponents().unbind())
        if self.meter is not None:
            scalars |= readout.by_name("unit", self.terms, self.units.unbind()) | {"total": self.total}
        if self._last_call is not None:
            scalars |= readout.by_name("loss", self.terms, self._last_call.pad().unbind())
            scalars["reference"] = self.reference()
        return scalars

    def extra_repr(self) -> str:
        if self.exponents.is_meta:
            return f"terms: {', '.join(self.terms)}; on the meta device, no values yet"
        if distributed.is_sharded(self.exponents):
            return f"terms: {', '.join(self.terms)}; sharded: read .weights on every rank"
        units = None if self.meter is None else self.units.tolist()
        rows = readout.table(self.terms, self.weights.tolist(), [0.0, *self.exponents.tolist()], units)
        if self.scale != 1.0:
            rows.append(f"scale {self.scale:g}")
        if self._frozen:
            rows.append("frozen")
        return "\n".join(rows)

    # Stopping and starting

    def freeze(self) -> Self:
        """Hold the weights where they are from now on: neither gradients nor decay move them.

        In gradient units, a term that has no unit yet gets it at its first call, and then keeps it.
        """
        self._frozen = True
        self.exponents.grad = None
        if self._attachment is None and not distributed.is_distributed():  # DDP would wait for the gradient
            self.exponents.requires_grad_(False)
        return self

    def unfreeze(self) -> Self:
        """Resume learning the weights."""
        self._frozen = False
        self.exponents.requires_grad_(self.learned)
        return self

    # Precision, copies and checkpoints

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Moves as any module, but ``.half()`` and the like leave the exponents float32: bfloat16 ones never move."""
        narrow = self.exponents.detach()
        super()._apply(at_least_float32(fn), recurse)  # type: ignore[no-untyped-call]
        if narrow.dtype == torch.float32 and self.exponents.dtype == torch.float64 and self._is_at_start(narrow):
            # The start exactly, not rounded to float32 on the way.
            self.reset_parameters() if self.meter is None else self._reset_exponents()
        return self

    def _is_at_start(self, exponents: Tensor) -> bool:
        if exponents.is_meta or distributed.is_sharded(exponents):
            return False
        return bool(torch.equal(exponents.cpu(), torch.tensor(self._init_exponents, dtype=exponents.dtype)))

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A copy of the criterion alone measures where the original does; within that of a model, at the model's."""
        named = [] if memo or self.meter is None else self.meter.settings.named
        return copy_but(self, named, memo)

    def __getstate__(self) -> dict[str, Any]:
        """A copy is not attached to the optimizer the original was attached to."""
        kept = {key: value for key, value in self.__dict__.items() if key != "_warned"}
        return kept | {
            "_attachment": None,
            "_ranks": Ranks(),
            "_tally": None,
            "_call_state": CallState(),
            "_calls": watch.CallWatch(),
        }

    def get_extra_state(self) -> Tensor:
        return checkpoint.encode(self._kind, self.terms, self._frozen)

    def set_extra_state(self, saved: Tensor) -> None:
        if checkpoint.read_frozen(saved, self._kind, self.terms):
            self.freeze()
        elif self._frozen:
            self.unfreeze()

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        error_msgs: list[str] = rest[-1]
        names, values = prefix + "_extra_state", prefix + "exponents"
        if names not in state_dict and values not in state_dict:
            if not prefix:
                error_msgs.append(f"The state holds nothing of a {self._kind}: is it another module's?")
                return
            health.warn(self, health.NoSavedState, where=f"{type(self).__name__} {prefix.rstrip('.')!r}")
            return
        if names not in state_dict:
            health.warn(self, health.NoSavedNames, terms=quoted(self.terms))
            state_dict[names] = self.get_extra_state()
        try:
            checkpoint.prepare(state_dict, prefix, self._kind, self.terms, self._saved_by_term())
        except ValueError as error:
            error_msgs.append(str(error))
            return
        self._loading = True
        try:
            super()._load_from_state_dict(state_dict, prefix, *rest)
        finally:
            self._loading = False

    def _saved_by_term(self) -> dict[str, Callable[[list[int]], list[int]]]:
        """The saved tensors that have an entry per term, each with how the terms' order indexes it."""
        auxiliary = {"exponents": lambda order: [i - 1 for i in order[1:]]}
        return auxiliary if self.meter is None else auxiliary | saved_units("meter.")


def _zero_loss(exponents: nn.Parameter) -> Tensor:
    """The loss of a batch from which nothing can be learned: a zero that backward accepts."""
    return (0 * exponents).sum() if exponents.requires_grad else exponents.new_zeros((), requires_grad=True)


def _parameter_dtype() -> torch.dtype:
    return torch.float64 if torch.get_default_dtype() == torch.float64 else torch.float32


__all__ = ["CompositeLoss"]
