"""attach: the connection between a criterion and the optimizer whose steps it follows."""

from __future__ import annotations

import math
import os
import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from trainonce import distributed, health, pace, param_groups
from trainonce.health import watch
from trainonce.history import History, Mark, Tally
from trainonce.readback import is_capturing
from trainonce.text import quoted
from trainonce.weighting import LossWeighting

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.optim import Optimizer

    from trainonce.terms import Values

    Sync = bool | torch.distributed.ProcessGroup

__all__ = ["Attachment", "attach"]


def attach(
    optimizer: Optimizer,
    criterion: LossWeighting,
    *,
    history: History | str | os.PathLike[str] | None = None,
    sync: Sync = True,
) -> Attachment:
    """Connect a criterion with the optimizer of the model.

    What the rule trains becomes a parameter group of its own, named ``"loss_weights"``, with the model's settings but
    without weight decay, and the rule's decay acts after each step that is not skipped. A rule that trains nothing
    follows the optimizer's steps. Call it before building schedulers and before wrapping the optimizer; with FSDP2,
    after sharding. Load checkpoints before or after, but load an optimizer's state from before ``attach`` first.

    :param optimizer: Any torch optimizer. One that cannot hold a vector of parameters, such as L-BFGS, takes rules that
        train nothing, and frozen ones.
    :param criterion: The rule. All its settings are its own.
    :param history: A :class:`History` that records every step, or the path of its file.
    :param sync: Average over the ranks what the rule trains and measures, when there are several. False leaves each
        rank to itself; a process group names the ranks.

    >>> import trainonce
    >>> model = nn.Linear(2, 1)
    >>> criterion = trainonce.CompositeLoss(["fit", "small"])
    >>> optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.1)
    >>> attach(optimizer, criterion)
    Attachment(CompositeLoss of 'fit', 'small'; exponents with a travel of 0.15)
    >>> [(group.get("name"), group["weight_decay"]) for group in optimizer.param_groups]
    [(None, 0.1), ('loss_weights', 0.0)]

    .. note:: An optimizer that keeps float32 copies of its parameters (master weights) writes over the decay, which is
        applied to the parameter itself. Give the criterion an optimizer of its own then.
    """
    criterion = _unwrap(criterion)
    _check_criterion(optimizer, criterion)
    name = None if criterion.frozen and param_groups.cannot_train(optimizer) else criterion.trainable
    param_groups.check_optimizer(optimizer, name, None if name is None else getattr(criterion, name))
    if isinstance(history, (str, os.PathLike)):
        history = History(history)
    if history is not None:
        history.bind(criterion)
    index = own_pace = None
    if name is not None:
        own, rate = getattr(criterion, name), criterion.lr
        if rate is None and not param_groups.made_by_hand(optimizer, own):
            own_pace = criterion.pace
        if own_pace is not None:
            rate = optimizer.param_groups[0].get("lr") or 0.0  # it has no say
        index = param_groups.own_group(optimizer, own, name, rate)
        if own_pace is not None:
            param_groups.take_pace(optimizer.param_groups[index], own_pace)
    return Attachment(optimizer, criterion, index, own_pace, sync, history)


class Attachment:
    """The connection between a criterion and its optimizer; returned by :func:`attach`.

    ``steps`` counts the steps since then, with a fused optimizer also those that GradScaler skipped. A copy of a
    criterion is not attached, so a copied attachment is None.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        criterion: LossWeighting,
        index: int | None,
        own_pace: float | None,
        sync: Sync,
        history: History | None,
    ) -> None:
        self._optimizer = weakref.ref(optimizer)
        self.criterion = criterion
        self.sync = sync
        self.history = history
        self.steps = 0  # calls of step that reached the optimizer
        self.repeats = isinstance(optimizer, torch.optim.LBFGS)  # whether a step evaluates the loss several times
        self._index = index
        self.own_pace = own_pace
        self._trained: nn.Parameter | None = None if index is None else getattr(criterion, criterion.trainable or "")
        self._pull: Tensor | None = None
        self._before: Tensor | None = None
        self._gradient: Tensor | None = None
        self._held: Tensor | None = None
        self._rate: float | Tensor = 0.0  # of the last step at a pace of its own
        self._weights: Tensor | None = None
        self._seen: Values | None = None
        self._met = False
        self._watch = watch.StepWatch()
        self._keep_ratio()
        criterion._attachment, criterion._call.tally = self, None if history is None else Tally()
        # Reading a sharded vector takes all ranks, also when only one of them records.
        sharded = self._trained is not None and distributed.is_sharded(self._trained)
        self._records = distributed.on_any_rank(history is not None) if sharded else history is not None
        self._handles: list[Any] = [
            optimizer.register_step_pre_hook(self._before_step),
            optimizer.register_step_post_hook(self._after_step),
        ]
        if self._trained is not None:
            self._trained.requires_grad_(True)
            tally = criterion._call.tally
            if tally is not None:
                register = self._trained.register_post_accumulate_grad_hook
                self._handles.append(register(tally.mark_backward))
        self.meet()

    # What a user reads

    @property
    def has_optimizer(self) -> bool:
        """Whether the optimizer still exists; the attachment does not keep it alive."""
        return self._optimizer() is not None

    @property
    def optimizer(self) -> Optimizer:
        """The optimizer whose steps the criterion follows."""
        optimizer = self._optimizer()
        if optimizer is None:
            raise RuntimeError("The optimizer this criterion was attached to no longer exists.")
        return optimizer

    def model_parameters(self) -> list[Tensor]:
        """Return what the optimizer trains besides the criterion's own; nothing once it is gone."""
        optimizer = self._optimizer()
        groups = [] if optimizer is None else optimizer.param_groups
        return [p for group in groups for p in group["params"] if p is not self._trained]

    @property
    def group(self) -> dict[str, Any] | None:
        """The parameter group of what the rule trains; None if the optimizer trains nothing of it."""
        return None if self._trained is None else self._group_in(self.optimizer)

    def _group_in(self, optimizer: Optimizer) -> dict[str, Any]:
        assert self._trained is not None
        assert self._index is not None
        self._index = param_groups.index_of(optimizer, self._trained, self._index)
        return optimizer.param_groups[self._index]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()

    def remove(self) -> None:
        """Remove the hooks. What was trained stays in the optimizer's group, without decay or averaging."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self.criterion._attachment = self.criterion._call.tally = None

    def __repr__(self) -> str:
        what = f"{self.criterion.kind} of {quoted(self.criterion.terms)}"
        if not self.has_optimizer:
            return f"Attachment({what}; its optimizer no longer exists)"
        group, own = self.group, self.own_pace
        how = "" if group is None else f" with lr={group['lr']}" if own is None else f" with a travel of {own:g}"
        return f"Attachment({what}{how and f'; {self.criterion.trainable}{how}'})"

    # Around each step of the optimizer

    def _before_step(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        criterion, own = self.criterion, self._trained
        criterion._call.inside, criterion._call.observed = True, False
        if own is None:
            return
        if criterion._parameters.get(criterion.trainable or "") is not own:
            raise RuntimeError(
                f"The criterion's {criterion.trainable} were replaced after attach (by sharding, "
                "load_state_dict(assign=True) or a device move that makes new parameters): the optimizer trains the "
                "old ones. Attach afterwards."
            )
        if torch.compiler.is_compiling():
            _exclude_from_graph(self._meet_late)()
        elif not self._met:
            self._meet_late()
        if criterion.frozen:
            own.grad = None  # or momentum would move them; where a closure makes a new one, they are put back
            self._before = own.detach().clone()
            return
        self._pull = criterion.pull()
        if self.own_pace is not None:
            self._take_gradient(optimizer, own, any(args[1:]) or any(kwargs.values()))
        if self._records or (self.own_pace is not None and self._held is None):
            self._before = own.detach().clone()
        if self._records:
            self._weights = criterion.coefficients()

    def _take_gradient(self, optimizer: Optimizer, own: nn.Parameter, closure: bool) -> None:
        """Take the gradient of a vector with a pace of its own, so that the optimizer leaves the vector as it is.

        It stays where a closure adds to it, and where the optimizer has no state for the vector yet: sharded
        checkpoints expect one.
        """
        scale = getattr(optimizer, "grad_scale", None)  # by which a fused optimizer divides the gradient, in place
        if scale is not None and own.grad is not None:
            self._gradient = own.grad / scale
        else:
            self._gradient = None if closure else own.grad
        self._held = None
        if own in optimizer.state and not closure and not torch.compiler.is_compiling():
            self._held, own.grad = own.grad, None

    def _meet_late(self) -> None:
        """Meet the other ranks now, if they came up after attach and a compiled criterion did not notice."""
        if self._met or not self._is_several():
            return
        self.meet()
        if self._trained is not None and self._trained.grad is not None and not distributed.is_sharded(self._trained):
            distributed.average_(self._trained.grad, self._group)

    def _after_step(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        call, own = self.criterion._call, self._trained
        call.inside = call.observed = False
        # Set by GradScaler around the step of a fused optimizer, which runs its hooks also when it skips the update.
        found_inf: Tensor | None = getattr(optimizer, "found_inf", None)
        moved = None
        if own is not None:
            group = self._group_in(optimizer)
            if self.own_pace is not None and not self.criterion.frozen:
                paced = _exclude_from_graph(self._pace) if torch.compiler.is_compiling() else self._pace
                paced(own, group, found_inf)
            moved = self._move(own, group["lr"] if self.own_pace is None else self._rate, found_inf)
        if torch.compiler.is_compiling():
            _exclude_from_graph(self._note)(moved, found_inf)
        else:
            self._note(moved, found_inf)

    @torch.no_grad()
    def _pace(self, own: nn.Parameter, group: dict[str, Any], found_inf: Tensor | None) -> None:
        """Move the vector at the rule's own pace, and take back what the optimizer did to it.

        A step at a rate of 0 without a call moves nothing: torch.distributed.checkpoint makes such steps to have a
        state. A rate of 0 in a schedule has no say.
        """
        criterion = self.criterion
        assert self.own_pace is not None
        if self._held is None:
            assert self._before is not None
            own.copy_(self._before)
        else:
            own.grad = self._held
        gradient = own.grad if self._gradient is None else self._gradient
        self._rate, self._gradient, self._held = 0.0, None, None
        called = criterion._call.last is not self._seen
        still = None if called else param_groups.is_zero(group["lr"])
        if gradient is None or still is True:
            return
        if is_capturing(gradient):
            raise RuntimeError(
                f"The {criterion.trainable} move at a pace of their own, which counts the steps in Python, and a "
                "CUDA graph replays none. Give the rule a learning rate, such as lr='model'."
            )
        skipped = None if found_inf is None else found_inf.to(own.device) > 0
        if isinstance(still, Tensor):
            skipped = still.to(own.device) if skipped is None else skipped | still.to(own.device)
        moments = criterion.pace_mean, criterion.pace_square
        gradient = distributed.unshard(gradient).to(criterion.pace_mean)
        if group.get("maximize"):
            gradient = -gradient
        rate: float | Tensor
        if skipped is None:
            rate = pace.rate(self.own_pace, criterion.pace_step)
            direction = pace.direction(gradient, *moments, criterion.pace_step)
        else:  # known to the device alone, as is how many steps were real
            before, step = [moment.clone() for moment in moments], criterion.pace_step - criterion.pace_skipped
            rate = pace.rate(self.own_pace, step) * skipped.logical_not()
            direction = torch.where(skipped, 0, pace.direction(gradient, *moments, step))
            for moment, old in zip(moments, before, strict=True):
                moment.copy_(torch.where(skipped, old, moment))
            criterion.pace_skipped.add_(skipped)
        criterion.pace_step += 1
        self._rate = rate
        moved = distributed.shard_like(direction, own)
        if isinstance(rate, Tensor):
            own.sub_(moved * rate)
        else:
            own.sub_(moved, alpha=rate)

    def _move(self, own: nn.Parameter, lr: float | Tensor, found_inf: Tensor | None) -> Tensor | None:
        """Apply the rule's decay, and return what the optimizer alone has moved the vector to if it is recorded."""
        value = own.detach()
        if self.criterion.frozen:
            assert self._before is not None
            value.copy_(self._before)
            return value.clone() if self._records else None
        pull, self._pull = self._pull, None
        moved = value.clone() if self._records else None
        if pull is None or own.grad is None:
            return moved
        if found_inf is not None:
            pull = torch.where(found_inf.to(pull.device) > 0, 0, pull)
        rate, step = lr * self.criterion.decay, distributed.shard_like(pull, own)
        if isinstance(rate, Tensor):
            value.sub_(step * rate)
        else:
            value.sub_(step, alpha=rate)
        return moved

    def _note(self, moved: Tensor | None, found_inf: Tensor | None) -> None:
        """Record the step, and let the rule and the health checks follow it."""
        criterion = self.criterion
        last = criterion._call.last
        called, self._seen = last is not self._seen, last
        if self._records and (called or self._may_move()):
            self._record(moved, found_inf, called)
        if not called:
            self._watch.idle_step(self)
            return
        criterion._call.idle = 0
        criterion.after_step(found_inf)
        self.steps += 1
        self._watch.after_step(self)

    def _may_move(self) -> bool:
        """Whether a step without a call can have moved what is trained, as far as the host knows.

        It does after ``zero_grad(set_to_none=False)``, by momentum and decay. torch.distributed.checkpoint makes such
        steps, too, at a rate of 0.
        """
        if self._trained is None or self._trained.grad is None:
            return False
        lr = self._group_in(self.optimizer)["lr"]
        return isinstance(lr, Tensor) or lr != 0

    def _record(self, moved: Tensor | None, found_inf: Tensor | None, called: bool) -> None:
        criterion, own = self.criterion, self._trained
        tally = criterion._call.tally
        losses = None if tally is None else tally.take()
        parts: list[Tensor] = []
        if own is None or criterion.frozen:
            self._weights = criterion.coefficients()
        weights, lr = self._weights, None
        assert weights is not None
        if own is not None:
            assert moved is not None
            assert self._before is not None
            before, after = distributed.unshard(self._before), distributed.unshard(own.detach())
            moved = distributed.unshard(moved)
            rate = self._group_in(self.optimizer)["lr"] if self.own_pace is None else self._rate
            lr = (rate if isinstance(rate, Tensor) else before.new_full((1,), rate)).to(before.device)
            parts = [before, moved - before, after - moved, lr]
        elif criterion.trainable is not None:  # frozen, in an optimizer that cannot train it
            still = criterion._whole(criterion.trainable)
            parts = [still, torch.zeros_like(still), torch.zeros_like(still), still.new_zeros(1)]
        if self.history is None:
            return
        mark = weights.new_full((1,), Mark.CALLED if called else Mark.NOT_CALLED)
        if found_inf is not None:
            mark = torch.where(found_inf.to(weights.device) > 0, Mark.SKIPPED, mark)
        if not called and lr is not None:
            mark = torch.where(lr == 0, Mark.SKIPPED, mark)
        if losses is None:
            losses = weights.new_full((len(criterion.terms),), math.nan)
        parts = [losses, weights, *parts, *criterion.columns().values(), mark]
        self.history.append(torch.cat([part.reshape(-1).to(weights.dtype) for part in parts]))

    # Ranks and schedulers

    @property
    def _group(self) -> torch.distributed.ProcessGroup | None:
        return self.criterion._ranks()[1]

    def _is_several(self) -> bool:
        return self.criterion._ranks()[0]

    def meet(self) -> None:
        """Give all ranks the first one's state, and average the gradient of what is trained from now on.

        The criterion calls it at its first training call: the process group may be made after attach. A second call
        does nothing.
        """
        if self._met or not self._is_several():
            return
        self._met = True
        own = self._trained
        if own is not None and not distributed.is_sharded(own):
            average = distributed.AverageGradient(self._group)
            self._handles.append(own.register_post_accumulate_grad_hook(average))  # type: ignore[no-untyped-call]
            difference = distributed.rank_difference(own.detach(), self._group).abs().max().item()
            if difference > 0:
                health.warn(self.criterion, health.RanksDiffer, difference=difference)
        distributed.share_state(self.criterion, self._group)

    def _keep_ratio(self) -> None:
        """Remember the ratio of the trained vector's learning rate to the model's, as the user set it."""
        ratio = self._ratio("lr")
        self.lr_ratio = math.nan if ratio is None or self.own_pace is not None else ratio

    def replaced_lr_ratio(self) -> float | None:
        """Return the ratio now, if a scheduler or a loop over the groups has replaced the one the user set; else None.

        A scheduler shows in the initial rates. A loop that gives all groups one rate shows in the current ones.
        """
        initial, current = self._ratio("initial_lr"), self._ratio("lr")
        if math.isnan(self.lr_ratio):
            return None
        if initial is not None:
            return None if math.isclose(initial, self.lr_ratio, rel_tol=1e-6) else initial
        return 1.0 if current == 1.0 and not math.isclose(self.lr_ratio, 1.0, rel_tol=1e-6) else None

    def _ratio(self, key: str) -> float | None:
        group = self.group
        if group is None:
            return None
        own = param_groups.as_number(group.get(key))
        other = next((g for i, g in enumerate(self.optimizer.param_groups) if i != self._index), group)
        base = param_groups.as_number(other.get(key))
        return own / base if own is not None and base else None


def _exclude_from_graph(function: Callable[..., None]) -> Callable[..., None]:
    """Return the function, run outside a compiled optimizer step: counting and warnings are not arithmetic."""
    disabled: Callable[..., None] = torch.compiler.disable(function)  # type: ignore[no-untyped-call]
    return disabled


def _unwrap(criterion: Any) -> Any:
    """Return the criterion inside torch.compile(criterion) or a parallel wrapper of it."""
    for name in ("_orig_mod", "module"):
        inner = getattr(criterion, name, None)
        if isinstance(criterion, nn.Module) and isinstance(inner, LossWeighting):
            return inner
    return criterion


def _check_criterion(optimizer: Optimizer, criterion: object) -> None:
    if not isinstance(criterion, LossWeighting):
        raise TypeError(f"attach needs a rule such as trainonce.CompositeLoss; got {type(criterion).__name__}.")
    if criterion.attachment is not None and not criterion.attachment.has_optimizer:
        criterion.attachment.remove()
    if criterion.attachment is not None:
        same = criterion.attachment.optimizer is optimizer
        raise RuntimeError(
            f"This criterion is already attached to {'this' if same else 'another'} optimizer; decay would apply "
            "twice. Attach once, or call criterion.attachment.remove() first."
        )
    if any(getattr(criterion, name).is_meta for name in criterion._states):
        raise RuntimeError(
            "The criterion is on the meta device. Call to_empty(device=...) and reset_parameters() before attach."
        )
    criterion.coefficients()  # raises where weigh() does not do what it must
