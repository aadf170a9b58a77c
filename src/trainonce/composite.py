"""CompositeLoss: the layer that turns several losses into one, with weights that are learned."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import Tensor, nn

from trainonce import checkpoint, distributed, functional, health
from trainonce.call_state import CallState
from trainonce.health import watch
from trainonce.readback import is_capturing
from trainonce.terms import Losses, Present, Values, check_names, collect, mark_present, stack, starting_exponents
from trainonce.text import is_positive, quoted
from trainonce.units import GradientUnits, HeldOut, Ranks, UnitMeter, saved_units

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Self

    from trainonce.attachment import Attachment
    from trainonce.history import Tally

NonFinite = Literal["propagate", "skip", "raise"]
Signal = Literal["loss", "held_out"]


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
        self._signal, held_out = check_signal(signal, raw=units == "raw")
        self.meter = make_meter(len(self.terms), units, held_out, dtype)
        if init is None:
            init = 0.1 if self.meter is None else 1.0
        self._init_exponents = starting_exponents(self.terms, init)
        self.exponents = nn.Parameter(torch.empty(len(self.terms) - 1, dtype=dtype), requires_grad=self.learned)
        self.reset_parameters()
        if self.learned:
            self._count_backward_passes()

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
        """Keep start and precision under Transformers' ``from_pretrained``.

        It puts parameters in place of those on the meta device: the file's, in the file's precision, and uninitialised
        memory for what the file does not hold.
        """
        before = self._parameters.get(name)
        replaced = before is not None and before.is_meta and param is not None and not param.is_meta
        if replaced and (self.learned or self.meter is not None) and not self._loading:
            param = self._materialise(param, before.dtype)  # type: ignore[arg-type, union-attr]
        super().register_parameter(name, param)

    def _materialise(self, param: nn.Parameter, dtype: torch.dtype) -> nn.Parameter:
        if distributed.is_sharded(param):
            return param
        from_file = getattr(param, "_is_hf_initialized", False)
        values = param.detach() if from_file else torch.tensor(self._init_exponents, device=param.device)
        return nn.Parameter(values.to(torch.promote_types(dtype, torch.float32)), requires_grad=self.learned)

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
                in_units = in_units * self._per_unit(values.present)
        if tracking:
            self._note(Values(values.losses.detach(), values.present))
        weights = self._live_weights(exponents, values.present)
        if values.present is None:
            total = functional.weighted_sum(weights, in_units)
        else:
            total = functional.sum_of_present(weights, in_units, values.present.indices)
        return total if self.scale == 1.0 else total * self.scale

    def _mark_present(self, where: tuple[int, ...]) -> Present:
        device = self.exponents.device
        if torch.compiler.is_compiling():
            return mark_present(where, len(self.terms), device)
        return self._call_state.mark_present(where, len(self.terms), device)

    def _live_weights(self, exponents: nn.Parameter, present: Present | None) -> Tensor:
        """The weights, differentiable in the exponents that this call may move."""
        if self.meter is not None and not self.learned:
            return self._held_weights(self.meter, exponents)
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

    # Gradient units

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _measure(self, given: Tensor | list[Tensor], where: tuple[int, ...] | None) -> None:
        """Measure the units if it is time to; outside of any graph, since time is counted on the host."""
        assert self.meter is not None
        places, attachment, ranks = self._call_state.take_places(), self._attachment, self._ranks
        frozen = self._frozen
        if is_capturing(self.meter.norms) and (not frozen or self.meter.is_due(where, ranks.are_several, frozen)):
            raise RuntimeError(
                "Gradient units cannot be measured inside a CUDA graph: replaying it runs no Python, which counts the "
                "steps. Call the criterion with all terms and then criterion.freeze() before the capture, or keep the "
                "criterion out of the graph."
            )
        ranks.agree(self.meter)
        if attachment is not None:
            attachment.start_averaging()
        if self.meter.is_due(where, ranks.are_several, frozen):
            losses = list(given.unbind()) if isinstance(given, Tensor) else given
            learned = attachment.model_parameters() if attachment is not None and attachment.has_optimizer else []
            held_out = None if frozen else self._held_out_loss(places)
            fresh = self.meter.measure(losses, where, places, learned, ranks, held_out, frozen)
            if fresh is not None:
                self._drift(fresh)
            if where is not None and 0 not in where and self.meter.has_new(where):  # nor has another rank measured it
                names = quoted(self.terms[i] for i in where)
                health.warn(self, health.ApartFromBase, terms=names, base=self.terms[0])
        if attachment is None and not frozen:
            self.meter.advance()

    def _drift(self, fresh: Tensor) -> None:
        assert self.meter is not None
        assert self.meter.drift is not None
        moved = self.meter.drift.move(self._full_exponents(), fresh, self.meter.steps)
        with torch.no_grad():
            self.exponents.copy_(distributed.shard_like(moved, self.exponents))

    def _held_weights(self, meter: UnitMeter, exponents: nn.Parameter) -> Tensor:
        """The weights of the raw losses, not learned: computed anew only when something they depend on has changed."""
        if torch.compiler.is_compiling():
            return self._shares_at(self._full_exponents()) * self._per_unit()
        parts = (exponents, meter.norms, meter.peaks, meter.risen, meter.asked, meter.raw)
        key = tuple((id(part), part._version, part.device) for part in parts)
        return self._call_state.held(key, lambda: self._shares_at(self._full_exponents()) * self._per_unit())

    def _per_unit(self, present: Present | None = None) -> Tensor:
        """What each raw loss is multiplied by to be in units: 1 for the base, less for terms that are coming in."""
        assert self.meter is not None
        factors = nn.functional.pad(self.meter.factors(), (1, 0), value=1.0)
        return factors if present is None else factors.index_select(0, present.indices)

    def _shares_at(self, exponents: Tensor) -> Tensor:
        """The weights in units at these exponents.

        Learned ones have the sum 1, as in the paper. With others the base's is held: the sum would follow the unit of
        whichever term has the smallest gradient, and so would the steps of SGD.
        """
        if self.learned:
            return functional.weights(exponents)
        return self._weights_of_init()[0] * nn.functional.pad(exponents, (1, 0)).exp()

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

    def _keep_finite(
        self, given: Tensor | list[Tensor], where: tuple[int, ...] | None
    ) -> tuple[Tensor | list[Tensor], tuple[int, ...] | None]:
        """Leave out the losses that are not finite, before they enter the graph.

        Multiplying by zero later would not do: zero times the infinite slope of a bad loss is NaN in the model.
        """
        apart = list(given.unbind()) if isinstance(given, Tensor) else given
        if not apart:
            return given, where
        values = stack(self.terms, [loss.detach() for loss in apart], where)
        finite = torch.isfinite(values).tolist()  # the policy's one read-back
        if all(finite):
            return given, where
        index = range(len(self.terms)) if where is None else where
        bad = [self.terms[i] for i, ok in zip(index, finite, strict=True) if not ok]
        if self.nonfinite == "raise":
            raise FloatingPointError(
                f"The losses {quoted(bad)} are not finite in this batch. Find the cause, or use nonfinite='skip'."
            )
        health.warn(self, health.SkippedTerm, terms=quoted(bad))
        kept = [loss for loss, ok in zip(apart, finite, strict=True) if ok]
        return kept, tuple(i for i, ok in zip(index, finite, strict=True) if ok)

    def _note(self, values: Values) -> None:
        """Remember this call's losses for logs and history; no copy to the host."""
        self._call_state.last = values
        if self._tally is not None:
            self._tally.add(values, fresh=self.exponents.grad is None)
        if not torch.compiler.is_compiling():
            self._count_call(eager=True)

    def _count_backward_passes(self) -> None:
        """Count calls by their backward passes until the first one outside torch.compile.

        A compiled call runs none of the Python that counts; the hook of a gradient still does.
        """

        def count(_: Tensor) -> None:
            if self._calls.needs_backward:
                self._count_call(eager=False)
            else:
                handle.remove()

        handle = self.exponents.register_post_accumulate_grad_hook(count)  # type: ignore[no-untyped-call]

    def _count_call(self, *, eager: bool) -> None:
        """Count a training call. The first checks the placement and starts averaging, if the ranks are up by then."""
        self._calls.count(self, eager=eager)
        if self._calls.calls == 1 and distributed.is_distributed():
            distributed.check_placement(self)
            if self._attachment is not None:
                self._attachment.start_averaging()

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

    def _held_out_loss(self, places: tuple[Tensor, ...]) -> Callable[[], Tensor] | None:
        """The held-out loss for this measurement, with its result checked."""
        loss, self._call_state.held_out = self._call_state.held_out, None
        if loss is None:
            return None
        if places:
            raise RuntimeError(
                "held_out compares gradients at parameters, but this call measures at the tensors that share named. "
                "Name parameters with GradientUnits(shared=...), or leave out held_out."
            )

        def evaluate() -> Tensor:
            value = loss()
            if not isinstance(value, Tensor) or value.dim() != 0 or not value.requires_grad:
                found = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
                found += " without one" if isinstance(value, Tensor) and not value.requires_grad else ""
                raise TypeError(f"held_out needs a function that returns a scalar loss with a gradient; got {found}.")
            return value

        return evaluate

    # What the attachment and the health checks use; not for users

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
        factors = self._shares_at(exponents) * self._per_unit()
        return factors / factors.sum()

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
        return functional.weights(self._full_exponents())

    @property
    def units(self) -> Tensor:
        """What each raw loss is divided by, relative to the base: all 1 with raw units."""
        if self.meter is None:
            return torch.ones(len(self.terms)).to(self._full_exponents())
        return 1 / nn.functional.pad(self.meter.ratios(), (1, 0), value=1.0)

    @property
    def total(self) -> Tensor:
        """What :attr:`weights` are multiplied by in the returned sum, apart from ``scale``.

        1 if they are learned. In gradient units the base's weight is held instead.
        """
        return self._total_at(self._full_exponents())

    def _total_at(self, exponents: Tensor) -> Tensor:
        return exponents.new_ones(()) if self.meter is None else (self._shares_at(exponents) * self._per_unit()).sum()

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
        scalars = {f"weight/{t}": w for t, w in zip(self.terms, self.weights.unbind(), strict=True)}
        mu = self._full_exponents()
        scalars |= {f"exponent/{t}": m for t, m in zip(self.terms[1:], mu.unbind(), strict=True)}
        if self.meter is not None:
            scalars |= {f"unit/{t}": u for t, u in zip(self.terms, self.units.unbind(), strict=True)}
            scalars["total"] = self.total
        if self._last_call is not None:
            last = self._last_call.pad().unbind()
            scalars |= {f"loss/{t}": v for t, v in zip(self.terms, last, strict=True)}
            scalars["reference"] = self.reference()
        return scalars

    def extra_repr(self) -> str:
        if self.exponents.is_meta:
            return f"terms: {', '.join(self.terms)}; on the meta device, no values yet"
        if distributed.is_sharded(self.exponents):
            return f"terms: {', '.join(self.terms)}; sharded: read .weights on every rank"
        weights, units = self.weights.tolist(), self.units.tolist()
        width = max(len("term"), *(len(t) for t in self.terms))
        rows = [f"{'term':<{width}}  weight  ratio to base  exponent{'' if self.meter is None else '      unit'}"]
        for i, (term, weight) in enumerate(zip(self.terms, weights, strict=True)):
            ratio = weight / weights[0] if weights[0] else math.nan if weight == 0 else math.inf
            shown = self.exponents[i - 1].item() if i else 0.0
            unit = "" if self.meter is None else f"  {units[i]:8.4g}"
            note = " (base)" if i == 0 else ""
            rows.append(f"{term:<{width}}  {weight:6.4f}  {ratio:13.4g}  {shown:8.5g}{unit}{note}")
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

        def keep_precision(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            too_narrow = tensor.is_floating_point() and moved.dtype.itemsize < 4
            return tensor.to(device=moved.device) if too_narrow else moved

        narrow = self.exponents.detach()
        super()._apply(keep_precision, recurse)  # type: ignore[no-untyped-call]
        if narrow.dtype == torch.float32 and self.exponents.dtype == torch.float64 and self._is_at_start(narrow):
            # The start exactly, not rounded to float32 on the way.
            self.reset_parameters() if self.meter is None else self._reset_exponents()
        return self

    def _is_at_start(self, exponents: Tensor) -> bool:
        if exponents.is_meta or distributed.is_sharded(exponents):
            return False
        return bool(torch.equal(exponents.cpu(), torch.tensor(self._init_exponents, dtype=exponents.dtype)))

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A copy of the criterion alone measures its units where the original does.

        In a copy of a whole model, it measures at the copied parameters.
        """
        named = [] if memo or self.meter is None else self.meter.settings.named
        memo |= {id(one): one for one in named}
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        twin.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        for one in named:
            del memo[id(one)]  # or a model that comes next in a tuple would share them with its copy
        return twin

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
        found = checkpoint.decode(saved)
        if checkpoint.order(found, self._kind, self.terms) is not None:  # Transformers loads tensors as they come
            raise ValueError(
                f"The checkpoint's loss terms are {quoted(found['terms'])}, in this order; this criterion's are "
                f"{quoted(self.terms)}. Give them in the checkpoint's order, or load with load_state_dict, which sorts."
            )
        if found["frozen"]:
            self.freeze()
        elif self._frozen:
            self.unfreeze()

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        names, values = prefix + "_extra_state", prefix + "exponents"
        if names not in state_dict and values not in state_dict:
            if not prefix:
                error_msgs.append(f"The state holds nothing of a {self._kind}: is it another module's?")
                return
            where = f"{type(self).__name__} {prefix.rstrip('.')!r}"
            health.warn(self, health.NoSavedState, where=where)
            return
        if names not in state_dict:
            health.warn(self, health.NoSavedNames, terms=quoted(self.terms))
            state_dict[names] = self.get_extra_state()
        try:
            found = checkpoint.decode(state_dict[names])
            order = checkpoint.order(found, self._kind, self.terms)
        except ValueError as error:
            error_msgs.append(str(error))
            return
        for key, reorder in self._saved_by_term().items():
            saved = state_dict.get(prefix + key)
            if isinstance(saved, Tensor) and order is not None:
                saved = distributed.shard_like(distributed.unshard(saved)[reorder(order)], saved)
            if isinstance(saved, Tensor) and saved.dtype.itemsize < 4:
                saved = saved.float()
            if saved is not None:
                state_dict[prefix + key] = saved
        state_dict[names] = checkpoint.encode(self._kind, self.terms, found["frozen"])
        self._loading = True
        try:
            super()._load_from_state_dict(
                state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
            )
        finally:
            self._loading = False

    def _saved_by_term(self) -> dict[str, Callable[[list[int]], list[int]]]:
        """The saved tensors that have an entry per term, each with how the terms' order indexes it."""
        auxiliary = {"exponents": lambda order: [i - 1 for i in order[1:]]}
        return auxiliary if self.meter is None else auxiliary | saved_units("meter.")


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


def make_meter(terms: int, units: object, held_out: HeldOut | None, dtype: torch.dtype) -> UnitMeter | None:
    """What measures the units; None for raw ones."""
    if units == "raw":
        return None
    if units == "gradient":
        units = GradientUnits()
    if not isinstance(units, GradientUnits):
        raise ValueError(f"units must be 'raw', 'gradient' or a trainonce.GradientUnits; got {units!r}.")
    return UnitMeter(terms, units, held_out, dtype)


def _zero_loss(exponents: nn.Parameter) -> Tensor:
    """The loss of a batch from which nothing can be learned: a zero that backward accepts."""
    return (0 * exponents).sum() if exponents.requires_grad else exponents.new_zeros((), requires_grad=True)


def _parameter_dtype() -> torch.dtype:
    return torch.float64 if torch.get_default_dtype() == torch.float64 else torch.float32


__all__ = ["CompositeLoss"]
