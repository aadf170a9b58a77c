"""Copying between host and device without waiting for the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


class Readback:
    """A copy on its way to the host: ask :meth:`ready` at later steps, then take :meth:`value`."""

    def __init__(self, tensor: Tensor) -> None:
        tensor = tensor.detach()
        self._event: torch.cuda.Event | None = None
        if tensor.is_cuda:
            self._host = tensor.to("cpu", non_blocking=True)  # pinned memory: does not block
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._event.record()
        else:
            self._host = tensor.to("cpu", copy=True)

    def ready(self) -> bool:
        return self._event is None or bool(self._event.query())  # type: ignore[no-untyped-call]

    def value(self) -> Tensor:
        """The copied tensor; waits if it has not arrived."""
        if self._event is not None:
            self._event.synchronize()
        return self._host


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """Return the tensor on a device."""
    if device.type == "cuda" and tensor.device.type == "cpu":
        tensor = tensor.pin_memory()  # from pageable memory the host would wait
    return tensor.to(device, non_blocking=True)


def is_capturing(tensor: Tensor) -> bool:
    """Whether a CUDA graph is being captured: nothing may be read then."""
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()
