"""Pinhole cameras: the rays of their pixels, and how a camera changes when its image is resized, cropped or mirrored.

Image coordinates are continuous: the left edge is 0, the right edge the width, the centre of the first pixel
(0.5, 0.5). A camera is ((fx, 0, cx), (0, fy, cy), (0, 0, 1)) in pixels; it looks along +z, x points right, y down.
With that convention resizing scales a camera and nothing else, and cropping shifts its centre and nothing else.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor


def rays(cameras: Tensor, size: tuple[int, int]) -> Tensor:
    """The directions of the pixels' centres.

    :param cameras: (batch, 3, 3).
    :param size: Height and width of the image.
    :return: Unit vectors, (batch, 3, height, width). Gradients flow into the cameras.
    """
    x, y = _slopes(cameras, size)
    z = (1 + x.square() + y.square()).rsqrt()
    return torch.stack((x * z, y * z, z), 1)


def angles(directions: Tensor) -> Tensor:
    """The angles of rays that point forward: θ from the optical axis to the side, φ from the downward axis.

    :param directions: (batch, 3, height, width), as :func:`rays` returns them.
    :return: θ = atan2(x, z) and φ = arccos(y) of the unit vectors, (batch, 2, height, width).
    """
    x, y, z = directions.unbind(1)
    return torch.stack((torch.atan2(x, z), torch.atan2(torch.hypot(x, z), y)), 1)  # arccos has no gradient near ±1


def points(depths: Tensor, cameras: Tensor) -> Tensor:
    """The points in space that the pixels show, in metres.

    :param depths: Along the optical axis, (batch, height, width).
    :return: (batch, 3, height, width); the origin where a depth is 0.
    """
    x, y = _slopes(cameras, (depths.shape[-2], depths.shape[-1]))
    return torch.stack((x * depths, y * depths, depths), 1)


def project(places: Tensor, cameras: Tensor) -> Tensor:
    """The image coordinates of points in space.

    :param places: In front of the camera, (batch, 3, ...).
    :return: Horizontal and vertical coordinates, (batch, 2, ...).
    """
    x, y, z = places.unbind(1)
    one = (-1,) + (1,) * (x.dim() - 1)
    fx, fy, cx, cy = (value.reshape(one) for value in intrinsics(cameras))
    return torch.stack((fx * x / z + cx, fy * y / z + cy), 1)


# Cameras


class Intrinsics(NamedTuple):
    """Focal lengths and principal point of each camera, (batch,)."""

    fx: Tensor
    fy: Tensor
    cx: Tensor
    cy: Tensor


def intrinsics(cameras: Tensor) -> Intrinsics:
    """The four numbers of cameras (batch, 3, 3)."""
    fx, _, cx, _, fy, cy, *_ = cameras.flatten(1).unbind(1)
    return Intrinsics(fx, fy, cx, cy)


def camera_matrix(fx: Tensor, fy: Tensor, cx: Tensor, cy: Tensor) -> Tensor:
    """Cameras (batch, 3, 3) from their four numbers, (batch,)."""
    zero, one = torch.zeros_like(fx), torch.ones_like(fx)
    return torch.stack((fx, zero, cx, zero, fy, cy, zero, zero, one), -1).reshape(*fx.shape, 3, 3)


def resize_camera(cameras: Tensor, height: float | Tensor, width: float | Tensor) -> Tensor:
    """The cameras of images resized by factors of their height and width: numbers, or one per camera."""
    fx, fy, cx, cy = intrinsics(cameras)
    return camera_matrix(fx * width, fy * height, cx * width, cy * height)


def crop_camera(cameras: Tensor, top: float | Tensor, left: float | Tensor) -> Tensor:
    """The cameras of images cropped by so many pixels at the top and the left; negative: padded."""
    fx, fy, cx, cy = intrinsics(cameras)
    return camera_matrix(fx, fy, cx - left, cy - top)


def mirror_camera(cameras: Tensor, width: float | Tensor) -> Tensor:
    """The cameras of images that were mirrored left to right."""
    fx, fy, cx, cy = intrinsics(cameras)
    return camera_matrix(fx, fy, width - cx, cy)


def field_of_view(focal: float, centre: float, length: float) -> float:
    """The angle in degrees between the rays of the two edges of an image, along its width or its height.

    >>> round(field_of_view(50.0, 50.0, 100.0), 6)
    90.0
    """
    return math.degrees(math.atan((length - centre) / focal) + math.atan(centre / focal))


def _slopes(cameras: Tensor, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """x / z of every column, (batch, 1, width), and y / z of every row, (batch, height, 1)."""
    fx, fy, cx, cy = (value[:, None] for value in intrinsics(cameras))
    rows, columns = (torch.arange(0.5, count, device=cameras.device, dtype=cameras.dtype) for count in size)
    return ((columns - cx) / fx)[:, None, :], ((rows - cy) / fy)[:, :, None]
