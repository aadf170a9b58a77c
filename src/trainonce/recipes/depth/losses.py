"""The three loss terms: depth, the rays of the camera, and the distance between the features of two views of one image.

All are computed in float32 or wider also under autocast, and nothing here synchronises with the device. What the
original does by accident, as far as is known, is available by name: ``crossed`` and ``rounding="integer"``.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from trainonce.recipes.depth import geometry

TERMS = ("depth", "camera", "invariance")
SMALL = 1e-4  # added under every root and every logarithm
MEAN_WEIGHT = 0.15  # the weight of the squared mean error beside the variance
FLOOR = 1e-5  # added to the distance of features
Rounding = Literal["none", "integer"]
Camera = Literal["rays", "angles"]


def silog(prediction: Tensor, truth: Tensor, *, crossed: bool = False) -> Tensor:
    """The scale-aware log error: sqrt(variance + 0.15 mean² + 1e-4) of log prediction - log truth, mean over images.

    :param prediction: Depths above 0, (batch, height, width).
    :param truth: 0 where unknown. An image that is unknown everywhere is left out; without any image the loss is 0.
    :param crossed: As the original: every image's variance with every image's mean, not only with its own.
    """
    with torch.autocast(prediction.device.type, enabled=False):
        prediction, truth = _widen(prediction), _widen(truth)
        valid = truth > 0
        count = valid.sum((-2, -1))
        known = valid.to(prediction.dtype) / count.clamp(min=1)[:, None, None]
        error = (torch.where(valid, prediction, 1) + SMALL).log() - (torch.where(valid, truth, 1) + SMALL).log()
        mean = (known * error).sum((-2, -1))
        variance = (known * (error - mean[:, None, None]).square()).sum((-2, -1))
        there = count > 0
        if crossed:
            loss = (variance + MEAN_WEIGHT * mean.square()[:, None] + SMALL).sqrt()
            there = there & there[:, None]
        else:
            loss = (variance + MEAN_WEIGHT * mean.square() + SMALL).sqrt()
        return _masked_mean(loss, there)


def ray_error(predicted: Tensor, truth: Tensor) -> Tensor:
    """The root of the mean squared difference of rays in each row of pixels, mean over rows and images.

    :param predicted: Rays of length 1, (batch, 3, height, width), as are the true ones.
    """
    with torch.autocast(predicted.device.type, enabled=False):
        squared = (_widen(predicted) - _widen(truth)).square()
        return (squared.mean((1, 3)) + SMALL).sqrt().mean()


def angle_error(predicted: Tensor, truth: Tensor) -> Tensor:
    """The squared error of the rays' two angles (see :func:`geometry.angles`), summed over them, mean over pixels.

    This is what the paper prints, MSE((Θ, Φ), (Θ*, Φ*)).

    :param predicted: Rays of length 1, (batch, 3, height, width), as are the true ones.
    """
    with torch.autocast(predicted.device.type, enabled=False):
        squared = (geometry.angles(_widen(predicted)) - geometry.angles(_widen(truth))).square()
        return squared.sum(1).mean()


#: What the camera is compared by, by the name of the setting.
CAMERA_ERRORS = {"rays": ray_error, "angles": angle_error}


def invariance(
    features: Tensor,
    masks: Tensor,
    cameras: Tensor,
    flips: Tensor,
    patch: int,
    *,
    rounding: Rounding = "none",
    crossed: bool = False,
) -> Tensor:
    """The distance between the features of the two views of an image where both show the same known surface.

    The features of the even view are warped to the cells of the odd one. The result is the root mean squared difference
    of each pair, averaged over pairs; a pair without a common cell is left out; without any pair it is 0.
    Each side is drawn to the other, held fixed, with half the weight. That is what ``(loss + loss.detach()) / 2``
    does: the gradient of one side does not depend on whether the other has one.

    :param features: One vector per cell, (2 pairs, channels, rows, columns); the views of an image are neighbours.
    :param masks: Which cells count, (2 pairs, rows, columns), bool: see :func:`cells`.
    :param cameras: Of the views in pixels, (2 pairs, 3, 3).
    :param flips: Which views are mirrored, (2 pairs,), bool.
    :param patch: How many pixels wide a cell is.
    :param rounding: ``"none"``: each cell gets what lies at its position in the other view, interpolated.
        ``"integer"``, as the original: zoomed about the corner, then shifted by a whole number of cells, rounded
        towards 0, so off by up to a cell and more.
    :param crossed: As the original: every pair's mask with every pair's difference, not only with its own.
    """
    with torch.autocast(features.device.type, enabled=False):
        warped, mask = warp(_widen(features[0::2]), masks[0::2], cameras, flips, patch, rounding)
        mask = mask & masks[1::2]
        squared = (warped - _widen(features[1::2])).square().mean(1).flatten(1)
        count = mask.sum((-2, -1))
        known = mask.flatten(1).to(squared.dtype) / count.clamp(min=1)[:, None]
        there = count > 0
        distance = known @ squared.T if crossed else (known * squared).sum(1)
        loss = (distance + FLOOR + SMALL).sqrt()
        loss = _masked_mean(loss, there[:, None].expand_as(loss) if crossed else there)
        return (loss + loss.detach()) / 2


def cells(valid: Tensor, patch: int) -> Tensor:
    """The mask of cells, that of their middle pixels, (batch, height / patch, width / patch)."""
    return valid[..., patch // 2 :: patch, patch // 2 :: patch]


# From one view to the other


def warp(
    features: Tensor, masks: Tensor, cameras: Tensor, flips: Tensor, patch: int, rounding: Rounding = "none"
) -> tuple[Tensor, Tensor]:
    """The even views warped to the odd ones: features interpolated, masks of the nearest cell.

    The warp is separable, so it is a product with a small matrix on either side, whose backward pass adds in a fixed
    order. What the even view does not show is 0, and its mask is False.

    :param features: Of the even views, (pairs, channels, rows, columns).
    :param masks: Of the even views, (pairs, rows, columns).
    :param cameras: Of all views, as are ``flips``.
    """
    rows, columns = features.shape[-2:]
    fx, fy, cx, cy = (_widen(part) for part in geometry.intrinsics(cameras))
    cx, cy = cx / patch, cy / patch
    mirrored = flips[0::2] != flips[1::2]
    centre = torch.where(mirrored, columns - cx[0::2], cx[0::2])
    zoom_x = fx[1::2] / fx[0::2]
    zoom_y = zoom_x if rounding == "integer" else fy[1::2] / fy[0::2]
    across = _sampling_matrices(columns, zoom_x, centre, cx[1::2], rounding)
    down = _sampling_matrices(rows, zoom_y, cy[0::2], cy[1::2], rounding)
    by_column, mask_columns = (matrix.to(features.dtype) for matrix in across)
    by_column, mask_columns = (torch.where(mirrored[:, None, None], m.flip(-1), m) for m in (by_column, mask_columns))
    by_row, mask_rows = (matrix.to(features.dtype) for matrix in down)
    warped = by_row[:, None] @ features @ by_column.mT[:, None]
    mask = mask_rows @ masks.to(features.dtype) @ mask_columns.mT > 0.5
    return warped, mask


def _sampling_matrices(
    count: int, zoom: Tensor, ours: Tensor, theirs: Tensor, rounding: Rounding
) -> tuple[Tensor, Tensor]:
    """The weights of the even view's cells in those of the odd view along one axis: two (pairs, count, count) matrices.

    The first interpolates linearly between neighbours, with a replicated border; the second has a single 1 at the
    nearest cell. A row is 0 where the even view shows nothing.
    """
    index = torch.arange(count, device=zoom.device, dtype=zoom.dtype)
    zoom, ours, theirs = zoom[:, None], ours[:, None], theirs[:, None]
    if rounding == "none":
        place = torch.addcdiv(ours, index + 0.5 - theirs, zoom)
        nearest = place.floor()
        inside = (place >= 0) & (place < count)
    elif rounding == "integer":
        at = index - (theirs - (ours - 0.5) * zoom - 0.5).trunc()
        place = (at + 0.5) / zoom
        inside, nearest = (at >= 0) & (at < (count * zoom).floor()), (at / zoom).floor()
    else:
        raise ValueError(f'rounding is "none" or "integer"; got {rounding!r}.')
    between = (place - 0.5).clamp(0, count - 1)[..., None]
    weights = (1 - (between - index).abs()).clamp(min=0)
    single = nearest.clamp(max=count - 1)[..., None] == index
    return weights * inside[..., None], single & inside[..., None]


def _masked_mean(values: Tensor, there: Tensor) -> Tensor:
    """The mean of the values that are there, 0 without any; the others may be anything finite."""
    return torch.where(there, values, 0).sum() / there.sum().clamp(min=1)


def _widen(values: Tensor) -> Tensor:
    """Float32, or float64 where that is given."""
    return values if values.dtype == torch.float64 else values.float()
