"""Metrics of depth and camera, per image; a set's metric is the mean over its images.

Depth is metric and not rescaled before it is compared. Distances of point clouds use the predicted camera, so its
errors count there too.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from trainonce.recipes.depth.geometry import intrinsics, points, resize_camera

if TYPE_CHECKING:
    from trainonce.recipes.depth.data.frames import Frame, Range

METRICS = ("delta_1", "si_log", "f_a", "a_rel", "rmse", "rmse_log", "focal")
POINTS = 240 * 320  # of a cloud, at most
THRESHOLDS = 100
BLOCK = {"cpu": 1 << 20, "cuda": 1 << 26}  # distances held at once


def measure(
    predictions: Tensor,
    cameras: Tensor,
    frames: Frame,
    reach: Range,
    window: tuple[int, int, int, int] | None = None,
    *,
    most: int = POINTS,
    squared: bool = False,
) -> dict[str, Tensor]:
    """The metrics of images of one size, each (images,), and under ``"pixels"`` how many pixels of each count.

    The metrics of an image without any such pixel are meaningless.

    :param predictions: Depths above 0, (images, height, width). Of another size than the truth they are resized
        bilinearly.
    :param cameras: The predicted cameras in pixels of the predictions, (images, 3, 3).
    :param frames: The truth, stacked, on the predictions' device.
    :param reach: The depths that count, without the far end.
    :param window: Rows and columns (top, bottom, left, right) that count.
    :param most: How many points a cloud has at most; 0: without ``f_a``, whose time goes with their square.
    :param squared: As the original has it: squares of distances are compared with the thresholds, see :func:`f_a`.
    """
    truths, true_cameras = frames.depth.float(), frames.camera.float()
    with torch.autocast(predictions.device.type, enabled=False):
        size = (truths.shape[-2], truths.shape[-1])
        predictions, cameras = resize_predictions(predictions.float(), cameras.float(), size)
        valid = valid_pixels(truths, reach, window)
        found = {**depth_errors(predictions, truths, valid), "focal": focal_error(cameras, true_cameras)}
        if most > 0:
            each = zip(predictions, cameras, truths, true_cameras, valid, strict=True)
            found["f_a"] = torch.stack([f_a(*_clouds(*one, most), reach, squared=squared) for one in each])
        return {"pixels": valid.sum((1, 2)), **found}


def resize_predictions(predictions: Tensor, cameras: Tensor, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Predictions and their cameras at another size."""
    height, width = predictions.shape[1:]
    if (height, width) == size:
        return predictions, cameras
    larger = F.interpolate(predictions[:, None], size, mode="bilinear", align_corners=False)[:, 0]
    return larger, resize_camera(cameras, size[0] / height, size[1] / width)


def valid_pixels(truths: Tensor, reach: Range, window: tuple[int, int, int, int] | None) -> Tensor:
    """The pixels that count, (images, height, width), bool."""
    valid = (truths > 0) & (truths >= reach.nearest) & (truths < reach.farthest)
    if window is None:
        return valid
    (top, bottom, left, right), (height, width) = window, truths.shape[1:]
    if not (0 <= top < bottom <= height and 0 <= left < right <= width):
        raise ValueError(f"A window (top, bottom, left, right) lies in its {height}x{width} image; got {window}.")
    inside = torch.zeros_like(valid)
    inside[:, top:bottom, left:right] = True
    return valid & inside


def depth_errors(predictions: Tensor, truths: Tensor, valid: Tensor) -> dict[str, Tensor]:
    """The metrics that compare depth with depth, over the valid pixels of each image. ``si_log`` is in percent."""
    count = valid.sum((1, 2))
    predictions, truths = predictions.clamp(min=1e-6), torch.where(valid, truths, 1.0)

    def total(values: Tensor) -> Tensor:
        return torch.where(valid, values, 0.0).sum((1, 2))

    def mean(values: Tensor) -> Tensor:
        return total(values) / count

    error, log_error = predictions - truths, predictions.log() - truths.log()
    ratio = torch.maximum(predictions / truths, truths / predictions)
    around = total((log_error - mean(log_error)[:, None, None]).square()) / (count - 1).clamp(min=1)
    return {
        "delta_1": mean(torch.where(predictions.isnan(), torch.nan, (ratio < 1.25).float())),
        "si_log": 100 * around.sqrt(),
        "a_rel": mean(error.abs() / truths),
        "rmse": mean(error.square()).sqrt(),
        "rmse_log": mean(log_error.square()).sqrt(),
    }


def focal_error(cameras: Tensor, truths: Tensor) -> Tensor:
    """The relative error of focal lengths, the mean of both axes."""
    ours, theirs = (torch.stack(intrinsics(k)[:2], 1) for k in (cameras, truths))
    return (ours / theirs - 1).abs().mean(1)


# Point clouds


def _clouds(
    prediction: Tensor, camera: Tensor, truth: Tensor, true_camera: Tensor, valid: Tensor, most: int
) -> tuple[Tensor, Tensor]:
    """The valid points of an image, (points, 3), predicted and true, evenly subsampled."""
    grid = _subsample(valid, most)
    kept = valid[grid]
    both = ((prediction, camera), (truth, true_camera))
    ours, theirs = (points(depth[None], k[None])[0][:, *grid][:, kept].T for depth, k in both)
    return ours, theirs


def f_a(ours: Tensor, theirs: Tensor, reach: Range, *, squared: bool = False) -> Tensor:
    """The area under the F-score of two clouds of points over the logarithm of the threshold: from 0 to 0.99.

    At a threshold, the part of each cloud is counted that has a point of the other nearer than that; the F-score is the
    harmonic mean of both. The 100 thresholds range from the nearest depth to a twentieth of the farthest.

    :param ours: (points, 3).
    :param squared: As the original has it: the squares of distances are compared with the thresholds, which favours
        distances below 1 m.
    """
    ends = math.log10(reach.nearest), math.log10(reach.farthest / 20)
    limits = torch.logspace(*ends, THRESHOLDS, dtype=torch.float64).to(ours.device, ours.dtype, non_blocking=True)
    if not squared:
        limits = limits.square()
    most = reach.farthest / 20
    distances = nearest_distances(ours, theirs, math.sqrt(most) if squared else most)
    right, found = ((d.sort().values.contiguous(), len(d)) for d in distances)
    right_part, found_part = (torch.searchsorted(d, limits) / count for d, count in (right, found))
    score = 2 * right_part * found_part / (right_part + found_part)
    area = torch.trapezoid(score.nan_to_num(0.0)) / THRESHOLDS
    return torch.where(ours.isnan().any(), torch.nan, area)


def nearest_distances(ours: Tensor, theirs: Tensor, within: float, block: int | None = None) -> tuple[Tensor, Tensor]:
    """The squared distance of each point to the nearest of the other cloud, both ways.

    Points are compared a block at a time, in order of depth, with those that are not too far away along that axis: what
    is farther than ``within`` may come out farther, or infinite. Differences are squared, not taken between squares,
    which would cost the small distances of far points their digits.

    :param block: How many distances are held at once.
    """
    block = block or BLOCK.get(ours.device.type, BLOCK["cpu"])
    our_order, their_order = ours[:, 2].argsort(), theirs[:, 2].argsort()
    a, b = ours[our_order].T.contiguous(), theirs[their_order].T.contiguous()
    step = max(1, block // max(1, len(theirs)))
    starts = torch.arange(0, len(ours), step, device=ours.device)
    lasts = (starts + step).clamp(max=len(ours)) - 1
    lows = torch.searchsorted(b[2], a[2, starts] - within)
    highs = torch.searchsorted(b[2], a[2, lasts] + within, right=True)
    best_a, best_b = (torch.full_like(cloud[0], torch.inf) for cloud in (a, b))
    for i, (low, high) in enumerate(torch.stack((lows, highs), 1).tolist()):
        here = slice(i * step, (i + 1) * step)
        if low < high:
            between = _squared_distances(a[:, here], b[:, low:high])
            best_a[here] = between.amin(1)
            torch.minimum(best_b[low:high], between.amin(0), out=best_b[low:high])
    back_a, back_b = torch.empty_like(best_a), torch.empty_like(best_b)
    back_a[our_order], back_b[their_order] = best_a, best_b
    return back_a, back_b


def _squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """The squared distance of every point of one cloud (3, n) to every point of another (3, m), (n, m)."""
    total = (a[0, :, None] - b[0]).square_()
    for axis in (1, 2):
        off = a[axis, :, None] - b[axis]
        total.addcmul_(off, off)
    return total


def _subsample(valid: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Evenly spaced rows (n, 1) and columns (m) at which at most so many pixels are valid."""
    scale = 1.0
    while True:
        sizes = [max(1, int(size * scale)) for size in valid.shape]
        rows, columns = (
            ((torch.arange(n, device=valid.device) + 0.5) * (size / n)).long().clamp(max=size - 1)
            for n, size in zip(sizes, valid.shape, strict=True)
        )
        count = int(valid[rows[:, None], columns].sum())
        if count <= most:
            return rows[:, None], columns
        scale = min(0.99 * scale, scale * math.sqrt(most / count))
