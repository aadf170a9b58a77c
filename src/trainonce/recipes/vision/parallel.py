"""The losses of a recipe as the training calls them: in several processes, as a CUDA graph, or as they are."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from torch.nn.parallel import DistributedDataParallel

from trainonce.recipes.vision.cuda_graphs import capture_graph
from trainonce.recipes.vision.precision import PrecisionSettings, autocast
from trainonce.study import torchrun

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from torch import Tensor, nn


def wrap_losses(
    losses: nn.Module,
    settings: PrecisionSettings,
    device: torch.device,
    example: Callable[[], tuple[Tensor, ...]],
) -> Any:
    """The module that computes the losses, in DistributedDataParallel or captured as a CUDA graph where that applies.

    :param example: Makes inputs of the shapes of a step, to capture the graph with.
    """
    if torchrun.world_size() > 1:
        return DistributedDataParallel(losses, device_ids=[device.index] if device.type == "cuda" else None)
    if settings.graphed and device.type == "cuda":
        given = example()
        with autocast(settings, device):
            return capture_graph(losses, given)
    return losses


def synchronize_if(last: bool, losses: nn.Module) -> contextlib.AbstractContextManager[None]:
    """The context of a micro-batch: gradients are averaged over the processes only in the last one of a step."""
    if last or not isinstance(losses, DistributedDataParallel):
        return contextlib.nullcontext()
    return losses.no_sync()
