"""StartingBuffers: buffers that begin at their start wherever they are made."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn


class StartingBuffers(nn.Module):
    """Keeps start and precision of buffers under Transformers' ``from_pretrained``.

    It puts tensors in place of those on the meta device: the file's, in the file's precision, and uninitialised memory
    for what the file does not hold.
    """

    START: ClassVar[dict[str, float]]  # of each buffer

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.START and isinstance(value, Tensor) and not value.is_meta:
            before = self._buffers.get(name)
            if before is not None and before.is_meta:
                from_file = getattr(value, "_is_hf_initialized", False)
                value = value.to(torch.promote_types(before.dtype, torch.float32))
                value = value if from_file else torch.full_like(value, self.START[name])
        super().__setattr__(name, value)

    @torch.no_grad()
    def start(self) -> None:
        """Set all buffers to their start."""
        for name, value in self.START.items():
            self.get_buffer(name).fill_(value)
