"""StartingBuffers: buffers that begin at their start wherever they are made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable


class StartingBuffers(nn.Module):
    """Keeps start and precision of buffers under Transformers' ``from_pretrained``.

    It puts tensors in place of those on the meta device: the file's, in the file's precision, and uninitialised memory
    for what the file does not hold.
    """

    START: ClassVar[dict[str, float]]  # of each buffer
    _loading = False  # whether load_state_dict is at work, which may put buffers in place of others, too

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.START and not self._loading and replaces_meta(self._buffers.get(name), value):
            value = materialise(value, self._buffers[name].dtype, self.START[name])  # type: ignore[union-attr]
        super().__setattr__(name, value)

    @torch.no_grad()
    def start(self) -> None:
        """Set all buffers to their start."""
        for name, value in self.START.items():
            self.get_buffer(name).fill_(value)

    def _load_from_state_dict(self, *args: Any, **options: Any) -> None:
        self._loading = True
        try:
            super()._load_from_state_dict(*args, **options)
        finally:
            self._loading = False


def replaces_meta(before: Tensor | None, value: object) -> bool:
    """Whether a tensor with values takes the place of one on the meta device."""
    return before is not None and before.is_meta and isinstance(value, Tensor) and not value.is_meta


def materialise(value: Tensor, dtype: torch.dtype, start: Tensor | float) -> Tensor:
    """The tensor if it is a file's, else the start in its place; numbers with a point are float32 or wider."""
    wide = value.to(torch.promote_types(dtype, torch.float32) if dtype.is_floating_point else dtype)
    if getattr(value, "_is_hf_initialized", False):
        return wide
    return torch.as_tensor(start, dtype=wide.dtype, device=wide.device).expand_as(wide).clone()


def at_least_float32(change: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """A change of tensors, as ``nn.Module._apply`` takes it, that moves them but makes none narrower than float32."""

    def keep_precision(tensor: Tensor) -> Tensor:
        moved = change(tensor)
        too_narrow = tensor.is_floating_point() and moved.dtype.itemsize < 4
        return tensor.to(device=moved.device) if too_narrow else moved

    return keep_precision
