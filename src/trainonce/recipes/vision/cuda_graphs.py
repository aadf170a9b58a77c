"""CUDA graphs: the passes of a module captured once and replayed at every step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import Tensor, nn


def capture_graph(module: nn.Module, example: tuple[Tensor, ...]) -> Any:
    """The module as two CUDA graphs, of the forward and of the backward pass, each one launch.

    Capturing runs the module on the example; its buffers, such as batch statistics, are put back afterwards.
    """
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    warn = getattr(torch.autograd.graph, "set_warn_on_accumulate_grad_stream_mismatch", None)
    if warn is not None:
        warn(False)  # graphs are captured on a stream of their own, and torch would warn of it at every later step
    captured = torch.cuda.make_graphed_callables(module, tuple(example))
    for name, buffer in module.named_buffers():
        buffer.copy_(buffers[name])
    return captured
