"""attach: the exponents in the model's optimizer, with decoupled hyperparameter decay on every real step."""

from __future__ import annotations

import functools
import math
import os
import weakref
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import torch
from torch import Tensor, nn

from trainonce import distributed, functional, health, param_groups
from trainonce.composite import CompositeLoss
from trainonce.health import watch
from trainonce.history import History, Mark, Tally, row
from trainonce.text import is_number, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from torch.optim import Optimizer

    from trainonce.terms import Values

__all__ = ["PRESETS", "Attachment", "attach"]

Preset = Literal["paper", "softplus"]

#: Which parts of the regularizer each preset uses.
PRESETS: Final[dict[Preset, tuple[str, ...]]] = {
    "paper": (functional.NEGENTROPY, functional.SOFTPLUS),
    "softplus": (functional.SOFTPLUS,),
}


def attach(
    optimizer: Optimizer,
    criterion: CompositeLoss,
    *,
    decay: float | None = None,
    lr: float | Tensor | None = None,
    preset: Preset = "paper",
    regularizer: Collection[str] | None = None,
    coupled: bool = False,
    sync: bool = True,
    process_group: torch.distributed.ProcessGroup | None = None,
    history: History | str | os.PathLike[str] | None = None,
) -> Attachment:
    r"""Let the model's optimizer learn the weights of ``criterion``, with hyperparameter decay.

    The exponents become a parameter group of their own, named ``"loss_weights"``, with the first group's settings but
    without weight decay. After each optimizer step that is not skipped, outside of momentum and Adam's scaling,

    .. math:: \mu \leftarrow \mu - \alpha_t \rho \nabla R(\mu_{t-1})

    where :math:`\alpha_t` is the group's current learning rate, so schedulers work, and :math:`\nabla R` is
    :func:`trainonce.functional.regularizer_grad`. Call it before building schedulers and before wrapping the optimizer;
    with FSDP2, after sharding.

    :param optimizer: Any torch optimizer that can hold a vector of parameters.
    :param criterion: A :class:`CompositeLoss`; fixed and replayed ones are accepted too, so a loop works with any.
    :param decay: The strength :math:`\rho \ge 0`. Needed where the loss moves the exponents; the paper has 2, 20
        and 200.
    :param lr: The exponents' learning rate :math:`\alpha`; by default the first group's. This and what follows up to
        ``coupled`` is refused in gradient units where the loss does not move the exponents.
    :param preset: ``"paper"``: negentropy and softplus, as in the paper's Algorithm 1. ``"softplus"``: softplus alone,
        the reading whose balance is near the weights the paper reports.
    :param regularizer: Which of ``"negentropy"`` and ``"softplus"`` to use, instead of a preset.
    :param coupled: Add :math:`\rho \nabla R` to the exponents' gradient instead, so that it passes through momentum and
        Adam. The returned loss stays as it is.
    :param sync: Average the exponents' gradient over the ranks when there are several, and in gradient units what is
        measured. Without it each rank measures units of its own.
    :param process_group: The ranks to average over; by default all.
    :param history: A :class:`History` that records every step, or the path of its file.

    >>> import trainonce
    >>> model = nn.Linear(2, 1)
    >>> criterion = trainonce.CompositeLoss(["fit", "small"], init=0.5)
    >>> optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.1)
    >>> attach(optimizer, criterion, decay=2.0)
    Attachment(terms='fit', 'small'; lr=0.1, decay=2.0, regularizer='negentropy', 'softplus', decoupled)
    >>> [(group.get("name"), group["weight_decay"]) for group in optimizer.param_groups]
    [(None, 0.1), ('loss_weights', 0.0)]

    .. note:: :math:`\rho` enters once. Algorithm 1 multiplies by :math:`\rho` a gradient that already contains it by
        the paper's definition of :math:`L_r`; read literally it would be squared, which no number in the paper fits.
    """
    criterion = _unwrap(criterion)
    _check_criterion(optimizer, criterion)
    param_groups.check_optimizer(optimizer, criterion.exponents)
    if decay is None and criterion.learned:
        raise ValueError("attach needs decay=, the strength of the hyperparameter decay: the paper has 2, 20 and 200.")
    _check_strength("decay", decay := 0.0 if decay is None else decay)
    has_rate = optimizer.param_groups[0].get("lr") is not None
    if not isinstance(lr, Tensor) and (lr is not None or not has_rate):
        _check_strength("lr", lr)
    parts = _parts(preset, regularizer)
    _refuse_unused(criterion, lr=lr if has_rate else None, preset=preset, regularizer=regularizer, coupled=coupled)
    if isinstance(history, (str, os.PathLike)):
        history = History(history)
    if history is not None:
        history.bind(criterion)
    index = param_groups.place(optimizer, criterion.exponents, lr, float(decay))
    return Attachment(optimizer, criterion, index, parts, coupled, sync, process_group, history)


class Attachment:
    """The connection between a criterion and its optimizer; returned by :func:`attach`.

    ``decay`` and ``lr`` may be changed during training; both are saved with the optimizer's state. The regularizer and
    the coupling are not saved: they are those given to :func:`attach`. ``steps`` counts the steps since then, with a
    fused optimizer also those that GradScaler skipped. A copy of a criterion is not attached, so a copied attachment is
    None.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        criterion: CompositeLoss,
        index: int,
        parts: tuple[str, ...],
        coupled: bool,
        sync: bool,
        process_group: torch.distributed.ProcessGroup | None,
        history: History | None,
    ) -> None:
        self._optimizer = weakref.ref(optimizer)
        self.criterion = criterion
        self.regularizer = parts
        self.coupled = coupled
        self.sync = sync
        self.process_group = process_group
        self.history = history
        self.steps = 0  # calls of step that reached the optimizer
        self._exponents = criterion.exponents
        self._index = index
        self._pull: Tensor | None = None
        self._before: Tensor | None = None
        self._seen: Values | None = None
        self._averaging = False
        self._watch = watch.StepWatch()
        self._keep_ratio()
        self._tally = None if history is None else Tally()
        criterion._bind(self, self._tally)
        sharded = distributed.is_sharded(self._exponents)
        # Reading sharded exponents takes all ranks, also when only one of them records.
        self._recorded = distributed.on_any_rank(history is not None) if sharded else history is not None
        self.synced = sync and not sharded and (criterion.learned or criterion.meter is not None)
        self._handles: list[Any] = [
            optimizer.register_step_pre_hook(self._before_step),
            optimizer.register_step_post_hook(self._after_step),
            optimizer.register_load_state_dict_pre_hook(self._complete_state),
        ]
        register = self._exponents.register_post_accumulate_grad_hook
        if self._tally is not None and criterion.learned:
            self._handles.append(register(self._tally.mark_backward))  # type: ignore[no-untyped-call]
        self.start_averaging()

    # What a user reads and sets

    @property
    def has_optimizer(self) -> bool:
        """Whether the optimizer still exists; the attachment does not keep it alive."""
        return self._optimizer() is not None

    @property
    def optimizer(self) -> Optimizer:
        """The optimizer that moves the exponents."""
        optimizer = self._optimizer()
        if optimizer is None:
            raise RuntimeError("The optimizer this criterion was attached to no longer exists.")
        return optimizer

    def model_parameters(self) -> list[Tensor]:
        """What the optimizer trains besides the exponents; nothing once it is gone."""
        optimizer = self._optimizer()
        groups = [] if optimizer is None else optimizer.param_groups
        return [p for group in groups for p in group["params"] if p is not self._exponents]

    @property
    def group(self) -> dict[str, Any]:
        """The exponents' parameter group."""
        return self._group_in(self.optimizer)

    def _group_in(self, optimizer: Optimizer) -> dict[str, Any]:
        self._index = param_groups.index_of(optimizer, self._exponents, self._index)
        return optimizer.param_groups[self._index]

    @property
    def decay(self) -> float:
        """The strength of the hyperparameter decay; it may be set."""
        value: float = self.group[param_groups.DECAY]
        return value

    @decay.setter
    def decay(self, value: float) -> None:
        _check_strength("decay", value)
        self.group[param_groups.DECAY] = value

    @property
    def lr(self) -> float | Tensor:
        """The exponents' learning rate; it may be set."""
        rate: float | Tensor = self.group["lr"]
        return rate

    @lr.setter
    def lr(self, value: float | Tensor) -> None:
        self.group["lr"] = value
        self._keep_ratio()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()

    def remove(self) -> None:
        """Remove the hooks. The exponents stay in the optimizer's group, without decay or averaging."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self.criterion._unbind()

    def __repr__(self) -> str:
        if not self.has_optimizer:
            return f"Attachment(terms={quoted(self.criterion.terms)}; its optimizer no longer exists)"
        kind = "coupled" if self.coupled else "decoupled"
        return (
            f"Attachment(terms={quoted(self.criterion.terms)}; lr={self.group['lr']}, decay={self.decay}, "
            f"regularizer={quoted(self.regularizer) or 'none'}, {kind})"
        )

    # Around each step of the optimizer

    def _before_step(
        self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        criterion, exponents = self.criterion, self._exponents
        if criterion.exponents is not exponents:
            raise RuntimeError(
                "The criterion's exponents were replaced after attach (by sharding, load_state_dict(assign=True) or a "
                "device move that makes new parameters): the optimizer trains the old ones. Attach afterwards."
            )
        mu = exponents.detach()
        if torch.compiler.is_compiling():
            _exclude_from_graph(self._note_before)(mu)
        else:
            self._note_before(mu)
        if criterion.learned and not criterion.frozen:
            full = mu if type(exponents) is nn.Parameter else distributed.unshard(mu)
            self._pull = functional.regularizer_grad_with(criterion._base_exponent(full), full, self.regularizer)
        if self.coupled or criterion.frozen:
            return self._when_gradients_ready(optimizer, args, kwargs)
        return None

    def _note_before(self, mu: Tensor) -> None:
        self._watch.before_step(mu)
        if self._recorded:
            self._before = mu.clone()
        if self.synced and not self._averaging and distributed.is_distributed(self.process_group):
            self.start_averaging()  # ranks that came up after attach, and a compiled criterion that did not notice
            if self._exponents.grad is not None:
                distributed.average_(self._exponents.grad, self.process_group)

    def _when_gradients_ready(
        self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """Run :meth:`_prepare_gradient` when the gradients are there: now, or at the end of a closure."""
        closure = kwargs.get("closure") or (args[1] if len(args) > 1 else None)
        if closure is None:
            self._prepare_gradient(optimizer)
            return None

        @functools.wraps(closure)
        def prepare_after() -> Any:
            loss = closure()
            self._prepare_gradient(optimizer)
            return loss

        if "closure" in kwargs:
            return args, {**kwargs, "closure": prepare_after}
        return (args[0], prepare_after, *args[2:]), kwargs

    def _prepare_gradient(self, optimizer: Optimizer) -> None:
        """The place for whatever else than the loss moves the exponents: freezing and coupled decay."""
        exponents = self._exponents
        if self.criterion.frozen:
            exponents.grad = None  # or momentum would still move them
        elif self.coupled and exponents.grad is not None and self._pull is not None:
            pull = self._pull * self.decay
            scale = getattr(optimizer, "grad_scale", None)  # a fused optimizer unscales inside its step
            if scale is not None:
                pull = pull * scale.to(pull.device)
            sign = -1 if self.group.get("maximize") else 1
            exponents.grad.add_(distributed.shard_like(pull, exponents), alpha=sign)

    def _after_step(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        exponents, group = self._exponents, self._group_in(optimizer)
        mu = exponents.detach()
        # Set by GradScaler around the step of a fused optimizer, which runs its hooks also when it skips the update.
        found_inf: Tensor | None = getattr(optimizer, "found_inf", None)
        pull, self._pull = self._pull, None
        if pull is not None and found_inf is not None:
            pull = torch.where(found_inf.to(pull.device) > 0, 0, pull)
        moved = mu.clone() if self._recorded else None
        if exponents.grad is not None and pull is not None and not self.coupled:
            rate = group["lr"] * group[param_groups.DECAY]
            step = distributed.shard_like(pull, exponents)
            if isinstance(rate, Tensor):
                mu.sub_(step * rate)
            else:
                mu.sub_(step, alpha=rate)
        if torch.compiler.is_compiling():
            _exclude_from_graph(self._note_after)(mu, moved, group, found_inf)
        else:
            self._note_after(mu, moved, group, found_inf)

    def _note_after(self, mu: Tensor, moved: Tensor | None, group: dict[str, Any], found_inf: Tensor | None) -> None:
        last = self.criterion._last_call
        called, self._seen = last is not self._seen, last
        if moved is not None and (called or self._may_move(group)):
            self._record(moved, group, found_inf, called)
        if not called:
            self._watch.idle_step(self)
            return
        self.criterion._after_step(found_inf)
        self.steps += 1
        self._watch.after_step(self, mu)

    def _may_move(self, group: dict[str, Any]) -> bool:
        """Whether a step without a call can have moved the exponents, as far as the host knows.

        It does after ``zero_grad(set_to_none=False)``, by momentum and decay. torch.distributed.checkpoint makes such
        steps, too, at a rate of 0.
        """
        return self._exponents.grad is not None and (isinstance(group["lr"], Tensor) or group["lr"] != 0)

    def _record(self, moved: Tensor, group: dict[str, Any], found_inf: Tensor | None, called: bool) -> None:
        assert self._before is not None
        before, after = distributed.unshard(self._before), distributed.unshard(self._exponents.detach())
        moved = distributed.unshard(moved)
        losses = None if self._tally is None else self._tally.take()
        if self.history is None:
            return
        device = before.device
        if losses is None:
            losses = torch.full((len(self.criterion.terms),), math.nan, device=device)
        lr = group["lr"] if isinstance(group["lr"], Tensor) else before.new_full((1,), group["lr"])
        lr = lr.to(device)
        mark = before.new_full((1,), Mark.CALLED if called else Mark.NOT_CALLED)
        if found_inf is not None:
            mark = torch.where(found_inf.to(device) > 0, Mark.SKIPPED, mark)
        if not called:
            mark = torch.where(lr == 0, Mark.SKIPPED, mark)
        weights = self.criterion._weights_at(before)
        empirical, decay = moved - before, after - moved
        if not self.criterion.learned:  # nothing moves them; where a weight is 0 it would read inf - inf
            empirical, decay = torch.zeros_like(before), torch.zeros_like(before)
        units = self.criterion._units_row(before)
        self.history.append(row(losses, weights, before, empirical, decay, lr, units, mark))

    # Checkpoints, ranks and schedulers

    def _complete_state(self, optimizer: Optimizer, saved: dict[str, Any]) -> dict[str, Any] | None:
        index = param_groups.index_of(optimizer, self._exponents, self._index)
        completed = param_groups.add_group_to_state(saved, optimizer, index)
        if completed is not None:
            health.warn(self, health.NoSavedGroup)
        return completed

    def start_averaging(self) -> None:
        """Make the exponents equal on all ranks and average their gradient from now on; a second call does nothing.

        The criterion calls it at its first training call: the process group may be made after attach.
        """
        if not self.synced or self._averaging or not distributed.is_distributed(self.process_group):
            return
        self._averaging = True
        if self.criterion.learned:
            average = distributed.AverageGradient(self.process_group)
            self._handles.append(self._exponents.register_post_accumulate_grad_hook(average))  # type: ignore[no-untyped-call]
        difference = distributed.rank_difference(self._exponents.detach(), self.process_group).abs().max().item()
        if difference > 0:
            health.warn(self.criterion, health.RanksDiffer, difference=difference)
        distributed.broadcast_(self._exponents.detach(), self.process_group)

    def _keep_ratio(self) -> None:
        """Remember the ratio of the exponents' learning rate to the model's, as the user set it."""
        ratio = self._ratio("lr")
        self.lr_ratio = math.nan if ratio is None else ratio

    def replaced_lr_ratio(self) -> float | None:
        """The ratio now, if a scheduler or a loop over the groups has replaced the one the user set; else None.

        A scheduler shows in the initial rates. A loop that gives all groups one rate shows in the current ones.
        """
        initial, current = self._ratio("initial_lr"), self._ratio("lr")
        if math.isnan(self.lr_ratio):
            return None
        if initial is not None:
            return None if math.isclose(initial, self.lr_ratio, rel_tol=1e-6) else initial
        return 1.0 if current == 1.0 and not math.isclose(self.lr_ratio, 1.0, rel_tol=1e-6) else None

    def _ratio(self, key: str) -> float | None:
        own = param_groups.as_number(self.group.get(key))
        other = next((g for i, g in enumerate(self.optimizer.param_groups) if i != self._index), self.group)
        base = param_groups.as_number(other.get(key))
        return own / base if own is not None and base else None


def _exclude_from_graph(function: Callable[..., None]) -> Callable[..., None]:
    """The function, run outside a compiled optimizer step: counting and warnings are not arithmetic."""
    disabled: Callable[..., None] = torch.compiler.disable(function)  # type: ignore[no-untyped-call]
    return disabled


def _unwrap(criterion: Any) -> Any:
    """The criterion inside torch.compile(criterion) or a parallel wrapper of it."""
    for name in ("_orig_mod", "module"):
        inner = getattr(criterion, name, None)
        if isinstance(criterion, nn.Module) and isinstance(inner, CompositeLoss):
            return inner
    return criterion


def _check_strength(name: str, value: object) -> None:
    if not is_number(value) or not 0 <= cast("float", value) < math.inf:
        raise ValueError(f"{name} must be a number of at least 0; got {value!r}.")


def _check_criterion(optimizer: Optimizer, criterion: object) -> None:
    if not isinstance(criterion, CompositeLoss):
        raise TypeError(f"attach needs a trainonce.CompositeLoss; got {type(criterion).__name__}.")
    if criterion.attachment is not None and not criterion.attachment.has_optimizer:
        criterion.attachment.remove()
    if criterion.attachment is not None:
        same = criterion.attachment.optimizer is optimizer
        raise RuntimeError(
            f"This criterion is already attached to {'this' if same else 'another'} optimizer; decay would apply "
            "twice. Attach once, or call criterion.attachment.remove() first."
        )
    if criterion.exponents.is_meta:
        raise RuntimeError(
            "The criterion is on the meta device. Call to_empty(device=...) and reset_parameters() before attach."
        )


def _refuse_unused(criterion: CompositeLoss, **given: object) -> None:
    """Refuse what is about moving the exponents where nothing moves them but held-out data.

    Fixed and replayed weights take it, since one loop may train any of them.
    """
    if criterion.learned or criterion.meter is None:
        return
    defaults = {"preset": "paper", "coupled": False}
    for name, value in given.items():
        if value is not None and value != defaults.get(name):
            raise ValueError(
                f"attach was given {name}={value!r}, which moves nothing in gradient units: the losses do not move the "
                "exponents there. Leave it out, or let them: CompositeLoss(..., signal='loss')."
            )


def _parts(preset: Preset, regularizer: Collection[str] | None) -> tuple[str, ...]:
    if preset not in PRESETS:
        raise ValueError(f"preset must be one of {quoted(PRESETS)}; got {preset!r}.")
    if regularizer is None:
        return PRESETS[preset]
    if isinstance(regularizer, str):
        regularizer = (regularizer,)
    functional.check_parts(regularizer)
    return tuple(part for part in functional.REGULARIZER_PARTS if part in regularizer)
