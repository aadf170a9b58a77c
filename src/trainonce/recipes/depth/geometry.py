"""Pinhole cameras: the rays of their pixels, and what becomes of a camera when its image is resized, cut or mirrored.

A place in an image is continuous: the left edge is 0, the right edge the width, the middle of the first pixel
(0.5, 0.5). A camera is ((fx, 0, cx), (0, fy, cy), (0, 0, 1)) in pixels; it looks along +z, x points right, y down.
With that convention resizing scales a camera and nothing else, and cutting shifts its centre and nothing else.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor


def rays(cameras: Tensor, size: tuple[int, int]) -> Tensor:
    """The directions that the middles of pixels look in.

    :param cameras: (batch, 3, 3).
    :param size: Height and width of the image.
    :return: Of length 1, (batch, 3, height, width). Gradients flow into the cameras.
    """
    x, y = _slopes(cameras, size)
    z = (1 + x.square() + y.square()).rsqrt()
    return torch.stack((x * z, y * z, z), 1)


def points(depths: Tensor, cameras: Tensor) -> Tensor:
    """Where in space the pixels are, in metres.

    :param depths: Along the optical axis, (batch, height, width).
    :return: (batch, 3, height, width); the origin where a depth is 0.
    """
    x, y = _slopes(cameras, (depths.shape[-2], depths.shape[-1]))
    return torch.stack((x * depths, y * depths, depths), 1)


def project(places: Tensor, cameras: Tensor) -> Tensor:
    """Where in the image points of space are seen.

    :param places: In front of the camera, (batch, 3, ...).
    :return: Horizontal and vertical place, (batch, 2, ...).
    """
    x, y, z = places.unbind(1)
    one = (-1,) + (1,) * (x.dim() - 1)
    fx, fy, cx, cy = (value.reshape(one) for value in parts(cameras))
    return torch.stack((fx * x / z + cx, fy * y / z + cy), 1)


# Cameras


class Parts(NamedTuple):
    """The four numbers of each camera, (batch,)."""

    fx: Tensor
    fy: Tensor
    cx: Tensor
    cy: Tensor


def parts(cameras: Tensor) -> Parts:
    fx, _, cx, _, fy, cy, *_ = cameras.flatten(1).unbind(1)
    return Parts(fx, fy, cx, cy)


def camera(fx: Tensor, fy: Tensor, cx: Tensor, cy: Tensor) -> Tensor:
    """Cameras (batch, 3, 3) from their four numbers, (batch,)."""
    zero, one = torch.zeros_like(fx), torch.ones_like(fx)
    return torch.stack((fx, zero, cx, zero, fy, cy, zero, zero, one), -1).reshape(*fx.shape, 3, 3)


def resized(cameras: Tensor, height: float | Tensor, width: float | Tensor) -> Tensor:
    """The cameras of images whose height and width became so many times as large; numbers, or one per camera."""
    fx, fy, cx, cy = parts(cameras)
    return camera(fx * width, fy * height, cx * width, cy * height)


def cropped(cameras: Tensor, top: float | Tensor, left: float | Tensor) -> Tensor:
    """The cameras of images of which so many pixels at the top and the left went; negative: were added."""
    fx, fy, cx, cy = parts(cameras)
    return camera(fx, fy, cx - left, cy - top)


def mirrored(cameras: Tensor, width: float | Tensor) -> Tensor:
    """The cameras of images that were mirrored left to right."""
    fx, fy, cx, cy = parts(cameras)
    return camera(fx, fy, width - cx, cy)


def field_of_view(focal: float, centre: float, length: float) -> float:
    """The angle in degrees between the rays of the two edges of an image, along its width or its height.

    >>> round(field_of_view(50.0, 50.0, 100.0), 6)
    90.0
    """
    return math.degrees(math.atan((length - centre) / focal) + math.atan(centre / focal))


def _slopes(cameras: Tensor, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """x / z of every column, (batch, 1, width), and y / z of every row, (batch, height, 1)."""
    fx, fy, cx, cy = (value[:, None] for value in parts(cameras))
    rows, columns = (torch.arange(0.5, count, device=cameras.device, dtype=cameras.dtype) for count in size)
    return ((columns - cx) / fx)[:, None, :], ((rows - cy) / fy)[:, :, None]
