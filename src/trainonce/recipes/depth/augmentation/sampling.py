"""Pieces of images at another size: what lies at a list of rows and a list of columns, which need not be whole numbers.

Rows and columns are apart, so an image is resampled by one matrix from either side: exact for any place, smooth where
it shrinks, the same in any company, and never waited for. Places are continuous, see :mod:`.geometry`.
"""

from __future__ import annotations

import torch
from torch import Tensor

CUBIC = -0.5  # the slope of the kernel at 1


def places(start: Tensor, length: Tensor, count: int, turned: Tensor) -> Tensor:
    """Where the middles of ``count`` pixels lie that share a stretch of a source; ``turned``: last first.

    :param start: (batch,), as the others: numbers of source pixels.
    :return: (batch, count).
    """
    part = (torch.arange(count, device=start.device, dtype=start.dtype) + 0.5) / count
    part = torch.where(turned[:, None], 1 - part, part)
    return start[:, None] + length[:, None] * part


def resampled(images: Tensor, rows: Tensor, columns: Tensor, shrunk: Tensor) -> Tensor:
    """Images at those rows and columns, by a bicubic kernel as wide as what a pixel covers; beyond the rim its value.

    :param images: (batch, channels, height, width).
    :param rows: (batch, new height).
    :param columns: (batch, new width).
    :param shrunk: How many source pixels a new one covers, (batch,).
    """
    high, wide = (cubic(p, shrunk, size) for p, size in zip((rows, columns), images.shape[-2:], strict=True))
    return high[:, None] @ images @ wide.mT[:, None]


def interpolated(planes: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Planes (batch, height, width) at those rows and columns, between the nearest four; beyond the rim its value."""
    high, wide = (linear(p, size) for p, size in zip((rows, columns), planes.shape[-2:], strict=True))
    return high @ planes @ wide.mT


def nearest_known(planes: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Of the four neighbours of each place the nearest that is above 0; 0 where none is, and beyond the rim.

    :param planes: (batch, height, width).
    """
    height, width = planes.shape[-2:]
    batch = torch.arange(len(planes), device=planes.device)[:, None, None]
    best = torch.zeros(len(planes), rows.shape[1], columns.shape[1], dtype=planes.dtype, device=planes.device)
    least = torch.full(best.shape, torch.inf, dtype=rows.dtype, device=planes.device)
    for down in (0, 1):
        row, far_y = _neighbour(rows, down, height)
        for right in (0, 1):
            column, far_x = _neighbour(columns, right, width)
            value = planes[batch, row[:, :, None], column[:, None, :]]
            far = far_y[:, :, None] + far_x[:, None, :]
            nearer = (value > 0) & (far < least)
            best, least = torch.where(nearer, value, best), torch.where(nearer, far, least)
    return torch.where(_inside(rows, height)[:, :, None] & _inside(columns, width)[:, None, :], best, 0)


def inside(rows: Tensor, columns: Tensor, size: tuple[int, int]) -> Tensor:
    """Which places lie in the image, (batch, new height, new width), bool."""
    return _inside(rows, size[0])[:, :, None] & _inside(columns, size[1])[:, None, :]


# Kernels along one axis


def cubic(at: Tensor, shrunk: Tensor, size: int) -> Tensor:
    """What each of ``size`` source pixels counts at each place, (batch, places, size)."""
    at, wide = at.clamp(0, size)[..., None], shrunk.clamp(min=1)[:, None, None]
    middles = torch.arange(size, device=at.device, dtype=at.dtype) + 0.5
    far = ((middles - at) / wide).abs()
    near = ((CUBIC + 2) * far - (CUBIC + 3)) * far.square() + 1
    rim = CUBIC * (((far - 5) * far + 8) * far - 4)
    weights = torch.where(far < 1, near, torch.where(far < 2, rim, 0))
    return weights / weights.sum(-1, keepdim=True)


def linear(at: Tensor, size: int) -> Tensor:
    """The same for the two neighbours of a place, without regard to what a pixel covers."""
    index = torch.arange(size, device=at.device, dtype=at.dtype)
    return (1 - ((at - 0.5).clamp(0, size - 1)[..., None] - index).abs()).clamp(min=0)


def _neighbour(at: Tensor, step: int, size: int) -> tuple[Tensor, Tensor]:
    """The source pixel before (0) or behind (1) each place, and how far it is, squared; infinitely if there is none."""
    pixel = (at - 0.5).floor() + step
    there = (pixel >= 0) & (pixel < size)
    return pixel.clamp(0, size - 1).long(), torch.where(there, (pixel + 0.5 - at).square(), torch.inf)


def _inside(at: Tensor, size: int) -> Tensor:
    return (at >= 0) & (at < size)
