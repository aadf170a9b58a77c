"""Resampling of images at a list of rows and a list of columns, which need not be whole numbers.

Rows and columns are separable, so an image is resampled by one matrix from either side: exact for any position, smooth
where it shrinks, independent of the rest of the batch, and without waiting for the device. Positions are continuous,
see :mod:`~trainonce.recipes.depth.geometry`.
"""

from __future__ import annotations

import torch
from torch import Tensor

CUBIC = -0.5  # the slope of the bicubic kernel at 1


def pixel_centres(start: Tensor, length: Tensor, count: int, mirrored: Tensor) -> Tensor:
    """Where the centres of ``count`` pixels lie that divide an interval of a source; ``mirrored``: in reverse order.

    :param start: (batch,), as the others: numbers of source pixels.
    :return: (batch, count).
    """
    part = (torch.arange(count, device=start.device, dtype=start.dtype) + 0.5) / count
    part = torch.where(mirrored[:, None], 1 - part, part)
    return start[:, None] + length[:, None] * part


def resample(images: Tensor, rows: Tensor, columns: Tensor, scale: Tensor) -> Tensor:
    """Images at those rows and columns, by a bicubic kernel as wide as a new pixel; the border is replicated.

    :param images: (batch, channels, height, width).
    :param rows: (batch, new height).
    :param columns: (batch, new width).
    :param scale: How many source pixels a new one covers, (batch,).
    """
    high, wide = (cubic_weights(p, scale, size) for p, size in zip((rows, columns), images.shape[-2:], strict=True))
    return high[:, None] @ images @ wide.mT[:, None]


def interpolate_linear(planes: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Planes (batch, height, width) at those rows and columns, bilinearly; the border is replicated."""
    high, wide = (linear_weights(p, size) for p, size in zip((rows, columns), planes.shape[-2:], strict=True))
    return high @ planes @ wide.mT


def nearest_known(planes: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Of the four neighbours of each position the nearest that is above 0; 0 where none is, and outside.

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
    """Which positions lie in the image, (batch, new height, new width), bool."""
    return _inside(rows, size[0])[:, :, None] & _inside(columns, size[1])[:, None, :]


# Kernels along one axis


def cubic_weights(at: Tensor, scale: Tensor, size: int) -> Tensor:
    """The weight of each of ``size`` source pixels at each position, (batch, positions, size)."""
    at, wide = at.clamp(0, size)[..., None], scale.clamp(min=1)[:, None, None]
    centres = torch.arange(size, device=at.device, dtype=at.dtype) + 0.5
    far = ((centres - at) / wide).abs()
    near = ((CUBIC + 2) * far - (CUBIC + 3)) * far.square() + 1
    outer = CUBIC * (((far - 5) * far + 8) * far - 4)
    weights = torch.where(far < 1, near, torch.where(far < 2, outer, 0))
    return weights / weights.sum(-1, keepdim=True)


def linear_weights(at: Tensor, size: int) -> Tensor:
    """The same for the two neighbours of a position, without antialiasing."""
    index = torch.arange(size, device=at.device, dtype=at.dtype)
    return (1 - ((at - 0.5).clamp(0, size - 1)[..., None] - index).abs()).clamp(min=0)


def _neighbour(at: Tensor, step: int, size: int) -> tuple[Tensor, Tensor]:
    """The source pixel before (0) or after (1) each position, and its squared distance; infinite if there is none."""
    pixel = (at - 0.5).floor() + step
    there = (pixel >= 0) & (pixel < size)
    return pixel.clamp(0, size - 1).long(), torch.where(there, (pixel + 0.5 - at).square(), torch.inf)


def _inside(at: Tensor, size: int) -> Tensor:
    return (at >= 0) & (at < size)
