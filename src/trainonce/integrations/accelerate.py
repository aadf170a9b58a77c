"""Accelerate: one call that attaches a criterion, puts it on the device and has it saved with the state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from trainonce import attachment as core
from trainonce import extras

if TYPE_CHECKING:
    from collections.abc import Iterable

    from accelerate import Accelerator
    from torch import Tensor
    from torch.optim import Optimizer

    from trainonce.attachment import Attachment
    from trainonce.composite import CompositeLoss

__all__ = ["attach", "keep_out_of_clipping", "refuse_unsupported", "unwrap"]

_accelerate = extras.require("accelerate", "Accelerate", "accelerate")

# Why each cannot learn the weights, and what can.
_CANNOT = {
    "DEEPSPEED": "DeepSpeed is not supported: its engine takes the optimizer's place, so the exponents would have "
    "neither their own group nor the hyperparameter decay. Train with DDP, or with FSDP2 (fsdp_version=2).",
    "MEGATRON_LM": "Megatron-LM is not supported: its engine takes the optimizer's place, so the exponents would have "
    "neither their own group nor the hyperparameter decay. Train with DDP, or with FSDP2 (fsdp_version=2).",
    "FSDP": "FSDP version 1 is not supported: it flattens the exponents together with the model's parameters. Use "
    "fsdp_version=2.",
}


def attach(
    accelerator: Accelerator,
    optimizer: Optimizer,
    criterion: CompositeLoss,
    *,
    decay: float | None = None,
    **options: Any,
) -> Attachment:
    """:func:`trainonce.attach` for a script that uses Accelerate.

    Call it before ``accelerator.prepare`` and before the scheduler is built. The criterion goes to the accelerator's
    device, and ``save_state`` and ``load_state`` include it. It may be beside the model, where it is not prepared, or
    inside it. ``accelerator.clip_grad_norm_`` and ``clip_grad_value_`` leave the exponents out.

    Under FSDP2 ``prepare`` makes new parameters. There the criterion must be inside the model, the call comes after
    ``prepare`` and takes the prepared optimizer, and the scheduler comes after the call.

    :param decay: As there: needed where the loss moves the exponents, and not in gradient units.
    :param options: ``lr``, ``preset``, ``history`` and the others of :func:`trainonce.attach`.

    >>> import accelerate, torch, trainonce
    >>> accelerator = accelerate.Accelerator(cpu=True)
    >>> model, criterion = torch.nn.Linear(2, 1), trainonce.CompositeLoss(["fit", "small"])
    >>> optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    >>> attach(accelerator, optimizer, criterion, decay=2.0)
    Attachment(terms='fit', 'small'; lr=0.1, decay=2.0, regularizer='negentropy', 'softplus', decoupled)
    >>> model, optimizer = accelerator.prepare(model, optimizer)
    """
    refuse_unsupported(accelerator)
    if accelerator.is_fsdp2:
        _check_sharded(optimizer, criterion)
        attachment = core.attach(unwrap(optimizer), criterion, decay=decay, **options)
        keep_out_of_clipping(accelerator, criterion)
        return attachment
    criterion.to(accelerator.device)
    attachment = core.attach(optimizer, criterion, decay=decay, **options)
    accelerator.register_for_checkpointing(criterion)
    keep_out_of_clipping(accelerator, criterion)
    return attachment


def keep_out_of_clipping(accelerator: Accelerator, criterion: CompositeLoss) -> None:
    """Have this accelerator clip whatever it is given but the exponents."""
    for name in ("clip_grad_norm_", "clip_grad_value_"):
        clip = getattr(accelerator, name)
        if not (isinstance(clip, _Clipping) and any(known is criterion for known in clip.criteria)):
            setattr(accelerator, name, _Clipping(accelerator, name, clip, criterion))


class _Clipping:
    """Stands in for a method of an accelerator."""

    def __init__(self, accelerator: Accelerator, name: str, clip: Any, criterion: CompositeLoss) -> None:
        self._accelerator, self._name = accelerator, name
        earlier = clip if isinstance(clip, _Clipping) else None
        self._clip: Any = clip if earlier is None else earlier._clip
        self.criteria: list[CompositeLoss] = [*([] if earlier is None else earlier.criteria), criterion]

    def __call__(self, parameters: Iterable[Tensor] | Tensor, *args: Any, **kwargs: Any) -> Any:
        given = [parameters] if isinstance(parameters, torch.Tensor) else parameters
        left_out = {id(criterion.exponents) for criterion in self.criteria}
        kept = [p for p in given if id(p) not in left_out]
        if self._name == "clip_grad_norm_" and self._accelerator.is_fsdp2:
            # Accelerate's own way unscales a second time if it is not given all parameters of a model.
            self._accelerator.unscale_gradients()
            return self._accelerator._clip_grad_norm_dtensor_aware(kept, *args, **kwargs)
        return self._clip(kept, *args, **kwargs)


def refuse_unsupported(accelerator: Accelerator) -> None:
    """Stop where something else than a torch optimizer would step, with what to use instead."""
    kind = accelerator.distributed_type.value
    if kind in _CANNOT and not accelerator.is_fsdp2:
        raise RuntimeError(_CANNOT[kind])


def unwrap(optimizer: Any) -> Any:
    """The torch optimizer inside a prepared one."""
    while isinstance(optimizer, _accelerate.optimizer.AcceleratedOptimizer):
        optimizer = optimizer.optimizer
    return optimizer


def _check_sharded(optimizer: Any, criterion: CompositeLoss) -> None:
    if unwrap(optimizer) is optimizer:
        raise RuntimeError(
            "Under FSDP2 accelerator.prepare makes new parameters, so the criterion is attached after it. Prepare the "
            "model and the optimizer, call attach with the prepared optimizer, then build and prepare the scheduler."
        )
    if not any(p is criterion.exponents for group in optimizer.param_groups for p in group["params"]):
        raise RuntimeError(
            "Under FSDP2 Accelerate saves only what is part of the prepared model, and the prepared optimizer does not "
            "hold this criterion's exponents. Make the criterion a submodule of the model and build the optimizer from "
            "model.parameters()."
        )
