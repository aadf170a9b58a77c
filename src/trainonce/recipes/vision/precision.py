"""The precision of a training: float32, TF32 products, or bfloat16 by autocast."""

from __future__ import annotations

from typing import Protocol

import torch


class PrecisionSettings(Protocol):
    """The settings of a recipe that choose the precision."""

    @property
    def precision(self) -> str: ...

    @property
    def graphed(self) -> bool: ...


def allow_tf32_if_asked(settings: PrecisionSettings) -> None:
    """Allow TF32 in matrix products and convolutions for ``tf32``, and forbid it otherwise; this is global."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = settings.precision == "tf32"


def autocast(settings: PrecisionSettings, device: torch.device) -> torch.autocast:
    """The context of a training step: bfloat16, or nothing.

    CUDA graphs cannot keep the weights that autocast has converted from one call to the next, so with them nothing is
    cached.
    """
    wanted = settings.precision == "bfloat16"
    return torch.autocast(device.type, torch.bfloat16, enabled=wanted, cache_enabled=not settings.graphed)


def inference_autocast(settings: PrecisionSettings, device: torch.device) -> torch.autocast:
    """The context of an evaluation: bfloat16, or nothing."""
    return torch.autocast(device.type, torch.bfloat16, enabled=settings.precision == "bfloat16")
