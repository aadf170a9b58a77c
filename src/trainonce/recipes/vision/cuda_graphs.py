"""CUDA graphs: a module's passes recorded once and replayed at every step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import Tensor, nn


def recorded(module: nn.Module, example: tuple[Tensor, ...]) -> Any:
    """The module as two recorded graphs, of the forward and of the backward pass, each one launch."""
    warn = getattr(torch.autograd.graph, "set_warn_on_accumulate_grad_stream_mismatch", None)
    if warn is not None:
        warn(False)  # recording is done on a stream of its own, which is noticed at every later step, to no use
    return torch.cuda.make_graphed_callables(module, example)
