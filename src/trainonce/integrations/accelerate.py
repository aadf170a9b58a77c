"""Accelerate: attach a criterion, put it on the device and have it saved with the state, in one call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from trainonce import attachment as core
from trainonce import extras, parameters

if TYPE_CHECKING:
    from collections.abc import Iterable

    from accelerate import Accelerator
    from torch import Tensor
    from torch.optim import Optimizer

    from trainonce.attachment import Attachment
    from trainonce.weighting import LossWeighting

__all__ = ["attach", "keep_out_of_clipping", "refuse_unsupported", "unwrap"]

_accelerate = extras.require("accelerate", "Accelerate", "accelerate")

_ENGINE = (
    "{} is not supported: its engine takes the optimizer's place, so no rule could follow its steps or train in it. "
    "Train with DDP, or with FSDP2 (fsdp_version=2)."
)
# Why no rule can follow the steps of each, and what to use instead.
_CANNOT = {
    "DEEPSPEED": _ENGINE.format("DeepSpeed"),
    "MEGATRON_LM": _ENGINE.format("Megatron-LM"),
    "FSDP": "FSDP version 1 is not supported: it flattens parameters, those of a rule together with the model's. Use "
    "fsdp_version=2.",
}


def attach(accelerator: Accelerator, optimizer: Optimizer, criterion: LossWeighting, **options: Any) -> Attachment:
    """Do what :func:`trainonce.attach` does in a script that uses Accelerate.

    Call it before ``accelerator.prepare`` and before the scheduler is built. The criterion goes to the accelerator's
    device, and ``save_state`` and ``load_state`` include it. It may be beside the model, where it is not prepared, or
    inside it. ``accelerator.clip_grad_norm_`` and ``clip_grad_value_`` leave out what the rule trains. For a rule that
    trains nothing the order does not matter.

    Under FSDP2 ``prepare`` makes new parameters. There a criterion that trains must be inside the model, the call comes
    after ``prepare`` and takes the prepared optimizer, and the scheduler comes after the call.

    :param options: ``history`` and ``sync`` of :func:`trainonce.attach`.

    >>> import accelerate, torch, trainonce
    >>> accelerator = accelerate.Accelerator(cpu=True)
    >>> model, criterion = torch.nn.Linear(2, 1), trainonce.CompositeLoss(["fit", "small"])
    >>> optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    >>> attach(accelerator, optimizer, criterion)
    Attachment(CompositeLoss of 'fit', 'small'; exponents with a travel of 0.15)
    >>> model, optimizer = accelerator.prepare(model, optimizer)
    """
    refuse_unsupported(accelerator, criterion)
    sharded = accelerator.is_fsdp2 and criterion.trainable is not None
    if sharded:
        _check_sharded(optimizer, criterion)
    else:
        criterion.to(accelerator.device)
    if sharded or criterion.trainable is None:
        optimizer = unwrap(optimizer)
    attachment = core.attach(optimizer, criterion, **options)
    if not sharded:
        accelerator.register_for_checkpointing(criterion)
    keep_out_of_clipping(accelerator, criterion)
    return attachment


def keep_out_of_clipping(accelerator: Accelerator, criterion: LossWeighting) -> None:
    """Have this accelerator clip whatever it is given but what the rule trains."""
    if criterion.trainable is None:
        return
    for name in ("clip_grad_norm_", "clip_grad_value_"):
        clip = getattr(accelerator, name)
        if not (isinstance(clip, _Clipping) and any(known is criterion for known in clip.criteria)):
            setattr(accelerator, name, _Clipping(accelerator, name, clip, criterion))


class _Clipping:
    """Stands in for a method of an accelerator."""

    def __init__(self, accelerator: Accelerator, name: str, clip: Any, criterion: LossWeighting) -> None:
        self._accelerator, self._name = accelerator, name
        earlier = clip if isinstance(clip, _Clipping) else None
        self._clip: Any = clip if earlier is None else earlier._clip
        self.criteria: list[LossWeighting] = [*([] if earlier is None else earlier.criteria), criterion]

    def __call__(self, clipped: Iterable[Tensor] | Tensor, *args: Any, **kwargs: Any) -> Any:
        given = [clipped] if isinstance(clipped, torch.Tensor) else clipped
        left_out = {id(p) for criterion in self.criteria for p in parameters.trained_by_rules(criterion)}
        kept = [p for p in given if id(p) not in left_out]
        if self._name == "clip_grad_norm_" and self._accelerator.is_fsdp2:
            # Accelerate's own way unscales a second time if it is not given all parameters of a model.
            self._accelerator.unscale_gradients()
            return self._accelerator._clip_grad_norm_dtensor_aware(kept, *args, **kwargs)
        return self._clip(kept, *args, **kwargs)


def refuse_unsupported(accelerator: Accelerator, criterion: LossWeighting) -> None:
    """Raise where the rule follows steps that something else than a torch optimizer takes, with what to use instead."""
    kind = accelerator.distributed_type.value
    if criterion.follows_steps and kind in _CANNOT and not accelerator.is_fsdp2:
        raise RuntimeError(_CANNOT[kind])


def unwrap(optimizer: Any) -> Any:
    """Return the torch optimizer inside a prepared one."""
    while isinstance(optimizer, _accelerate.optimizer.AcceleratedOptimizer):
        optimizer = optimizer.optimizer
    return optimizer


def _check_sharded(optimizer: Any, criterion: LossWeighting) -> None:
    if unwrap(optimizer) is optimizer:
        raise RuntimeError(
            "Under FSDP2 accelerator.prepare makes new parameters, so the criterion is attached after it. Prepare the "
            "model and the optimizer, call attach with the prepared optimizer, then build and prepare the scheduler."
        )
    own = next(parameters.trained_by_rules(criterion))
    if not any(p is own for group in optimizer.param_groups for p in group["params"]):
        raise RuntimeError(
            "Under FSDP2 Accelerate saves only what is part of the prepared model, and the prepared optimizer does not "
            f"hold this criterion's {criterion.trainable}. Make the criterion a submodule of the model and build the "
            "optimizer from model.parameters()."
        )
