"""The validation loss that aligns a balance: evaluated without a trace in the training."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from trainonce import random_states
from trainonce.terms import plain
from trainonce.weighting import LossWeighting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Validation = Callable[[], Tensor]


def check_validation(validation: object) -> None:
    if validation is not None and not callable(validation):
        raise TypeError(
            "validation must be a function that computes a loss on data that is not trained on, such as a lambda; got "
            f"{type(validation).__name__}."
        )


def evaluate(validation: Validation, device: torch.device, *, eval_mode: bool) -> Tensor:
    """Return the validation loss with its graph, and leave the training as it was.

    The modules that it calls are in evaluation mode meanwhile, if asked; their buffers and the random states are put
    back.
    """
    states = random_states.collect(device)
    try:
        # torch.compile cannot trace the hook below; a compiled model runs as it was written meanwhile.
        with undisturbed(eval_mode=eval_mode), torch.compiler.set_stance("force_eager"):
            value = validation()
    finally:
        random_states.put_back(states, device)
    if not isinstance(value, Tensor) or value.dim() != 0 or not value.requires_grad:
        found = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        found += " without one" if isinstance(value, Tensor) and not value.requires_grad else ""
        raise TypeError(f"validation needs to return a scalar loss with a gradient; got {found}.")
    return plain(value)


@contextlib.contextmanager
def undisturbed(*, eval_mode: bool) -> Iterator[None]:
    """Put back the mode and the buffers of every module that is called.

    A mode that the caller changes meanwhile stays as it leaves it. Criteria are in evaluation mode in either case.
    """
    modes: dict[nn.Module, tuple[bool, bool]] = {}
    buffers: dict[tuple[nn.Module, str], tuple[Tensor, Tensor]] = {}

    def protect(module: nn.Module, _: Any) -> None:
        if module in modes:
            return
        for one in module.modules():
            if one in modes or "training" not in vars(one):  # a compiled module has that of the one inside
                continue
            mode = one.training
            one.training = mode and not eval_mode and not isinstance(one, LossWeighting)
            modes[one] = mode, one.training
            for name, buffer in one._buffers.items():
                if buffer is not None:
                    buffers[one, name] = buffer, buffer.detach().clone()

    handle = register_module_forward_pre_hook(protect)
    try:
        yield
    finally:
        handle.remove()
        for module, (mode, during) in modes.items():
            if module.training == during:
                module.training = mode
        for (module, name), (buffer, before) in buffers.items():
            buffer.data.copy_(before)  # by data: the graph of the training may hold the buffer as it is
            module._buffers[name] = buffer
