"""How good predictions are: of each image first, then the mean over images.

Nothing is rescaled before it is compared: depth is metric. Distances of point clouds use the predicted camera, so its
errors count there too.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from trainonce.recipes.depth.geometry import points, resized

if TYPE_CHECKING:
    from trainonce.recipes.depth.frames import Frame, Range

METRICS = ("delta_1", "si_log", "f_a", "a_rel", "rmse", "rmse_log", "focal")
POINTS = 240 * 320  # of a cloud, at most
THRESHOLDS = 100
BLOCK = {"cpu": 1 << 20, "cuda": 1 << 26}  # distances held at once


def measured(
    prediction: Tensor,
    camera: Tensor,
    frame: Frame,
    reach: Range,
    window: tuple[int, int, int, int] | None = None,
    *,
    most: int = POINTS,
    squared: bool = False,
) -> dict[str, Tensor]:
    """The metrics of one image, or nothing if no depth is known that counts.

    :param prediction: Depths above 0, (height, width). Of another size than the truth they are resized bilinearly.
    :param camera: The predicted camera in pixels of the prediction, (3, 3).
    :param reach: Where depth counts: in it, and below its far end.
    :param window: Rows and columns (top, bottom, left, right) that count.
    :param most: How many points a cloud has at most; 0: without ``f_a``, whose time goes with their square.
    :param squared: As the original has it: squares of distances are compared with the thresholds, see :func:`f_a`.
    """
    truth = frame.depth.to(prediction.device).float()
    true_camera = frame.camera.to(prediction.device).float()
    with torch.autocast(prediction.device.type, enabled=False):
        prediction, camera = fitted(prediction.float(), camera.float(), (truth.shape[-2], truth.shape[-1]))
        valid = counted(truth, reach, window)
        if not valid.any():
            return {}
        found = {**depth_errors(prediction[valid], truth[valid]), "focal": focal(camera, true_camera)}
        if most > 0:
            spread = _spread(valid, most)
            ours, theirs = (
                points(depth[None], k[None])[0][:, *spread][:, valid[spread]].T
                for depth, k in ((prediction, camera), (truth, true_camera))
            )
            found["f_a"] = f_a(ours, theirs, reach, squared=squared)
        return found


def fitted(prediction: Tensor, camera: Tensor, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """A prediction and its camera at another size."""
    height, width = prediction.shape
    if (height, width) == size:
        return prediction, camera
    larger = F.interpolate(prediction[None, None], size, mode="bilinear", align_corners=False)[0, 0]
    return larger, resized(camera[None], size[0] / height, size[1] / width)[0]


def counted(truth: Tensor, reach: Range, window: tuple[int, int, int, int] | None) -> Tensor:
    """The pixels that count, (height, width), bool."""
    valid = (truth > 0) & (truth >= reach.nearest) & (truth < reach.farthest)
    if window is None:
        return valid
    (top, bottom, left, right), (height, width) = window, truth.shape
    if not (0 <= top < bottom <= height and 0 <= left < right <= width):
        raise ValueError(f"A window (top, bottom, left, right) lies in its {height}x{width} image; got {window}.")
    inside = torch.zeros_like(valid)
    inside[top:bottom, left:right] = True
    return valid & inside


def depth_errors(prediction: Tensor, truth: Tensor) -> dict[str, Tensor]:
    """What compares depth with depth, of pixels that count, (pixels,). ``si_log`` is in percent."""
    prediction = prediction.clamp(min=1e-6)
    error, log_error = prediction - truth, prediction.log() - truth.log()
    ratio = torch.maximum(prediction / truth, truth / prediction)
    around = (log_error - log_error.mean()).square().sum() / max(1, len(truth) - 1)
    return {
        "delta_1": torch.where(prediction.isnan(), torch.nan, (ratio < 1.25).float()).mean(),
        "si_log": 100 * around.sqrt(),
        "a_rel": (error.abs() / truth).mean(),
        "rmse": error.square().mean().sqrt(),
        "rmse_log": log_error.square().mean().sqrt(),
    }


def focal(camera: Tensor, truth: Tensor) -> Tensor:
    """How far the focal length is off, as part of the true one: the mean of both axes."""
    return (camera.diagonal()[:2] / truth.diagonal()[:2] - 1).abs().mean()


# Point clouds


def f_a(ours: Tensor, theirs: Tensor, reach: Range, *, squared: bool = False) -> Tensor:
    """The area under the F-score of two clouds of points over the logarithm of the threshold: from 0 to 0.99.

    At a threshold, the part of each cloud is counted that has a point of the other nearer than that; the F-score is the
    harmonic mean of both. 100 thresholds go from the nearest depth to a twentieth of the farthest.

    :param ours: (points, 3).
    :param squared: As the original has it: the squares of distances are compared with the thresholds, which favours
        distances below 1 m.
    """
    ends = math.log10(reach.nearest), math.log10(reach.farthest / 20)
    limits = torch.logspace(*ends, THRESHOLDS, dtype=torch.float64).to(ours.device, ours.dtype, non_blocking=True)
    if not squared:
        limits = limits.square()
    most = reach.farthest / 20
    distances = nearest(ours, theirs, math.sqrt(most) if squared else most)
    right, found = ((d.sort().values.contiguous(), len(d)) for d in distances)
    right_part, found_part = (torch.searchsorted(d, limits) / count for d, count in (right, found))
    score = 2 * right_part * found_part / (right_part + found_part)
    area = torch.trapezoid(score.nan_to_num(0.0)) / THRESHOLDS
    return torch.where(ours.isnan().any(), torch.nan, area)


def nearest(ours: Tensor, theirs: Tensor, within: float, block: int | None = None) -> tuple[Tensor, Tensor]:
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
            between = _squares(a[:, here], b[:, low:high])
            best_a[here] = between.amin(1)
            torch.minimum(best_b[low:high], between.amin(0), out=best_b[low:high])
    back_a, back_b = torch.empty_like(best_a), torch.empty_like(best_b)
    back_a[our_order], back_b[their_order] = best_a, best_b
    return back_a, back_b


def _squares(a: Tensor, b: Tensor) -> Tensor:
    """The squared distance of every point of one cloud (3, n) to every point of another (3, m), (n, m)."""
    total = (a[0, :, None] - b[0]).square_()
    for axis in (1, 2):
        off = a[axis, :, None] - b[axis]
        total.addcmul_(off, off)
    return total


def _spread(valid: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Rows (n, 1) and columns (m), evenly spread, such that at most so many of their pixels count."""
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
