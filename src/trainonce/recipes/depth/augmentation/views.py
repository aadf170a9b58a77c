"""Two views of each frame: as if seen with a longer or shorter lens, both mirrored or neither, both in the same light.

A view is a window of the frame, of the shape of the batch, that may reach beyond the frame. Everything random about the
views of a frame is drawn on the CPU, as plain numbers that follow from the seed and the sample's number; then all
windows are cut on the device at once. Cameras follow exactly. Depth stays what it is in metres.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from trainonce.recipes.depth import geometry
from trainonce.recipes.depth.augmentation import sampling
from trainonce.recipes.depth.augmentation.colour_jitter import Look, look, looking

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of the images that encoders are pretrained on
CONTEXT = (0.5, 2.0)  # the window's area, in frames
JITTER = 7  # source pixels that a window's middle is at most away from the frame's
USUAL = 640  # pixels: the width for which such numbers are meant; in narrower images they are less
LEAST_INSIDE, MOST_VIEW = 0.5, 150.0  # of a window, in the frame; degrees
RETRIES, SHRINK = 100, 0.96
NOISE = "noise"
FILLS: tuple[float | str, ...] = (NOISE, -4.0, 4.0, 0.0)  # what is around the frame, after normalisation
SPREAD = 2.0  # deviation of the noise


class Window(NamedTuple):
    """A piece of a frame, in its pixels, which it may leave; and what is where it left."""

    top: float
    left: float
    height: float
    width: float
    fill: float | str = 0.0
    noise: int = 0


class Plan(NamedTuple):
    """What is random about the two views of a frame."""

    windows: tuple[Window, Window]
    flip: bool = False
    look: Look = Look()


class Views(NamedTuple):
    """What a network is trained on. The views of a frame are neighbours.

    :param images: Normalised, (2 frames, 3, height, width).
    :param depths: In metres, 0 where unknown, (2 frames, height, width).
    :param cameras: In pixels of the view, (2 frames, 3, 3).
    :param flips: Which views are mirrored, (2 frames,), bool.
    :param valid: The pixels that lie in the frame, (2 frames, height, width), bool.
    """

    images: Tensor
    depths: Tensor
    cameras: Tensor
    flips: Tensor
    valid: Tensor


# What is random


def shape_of(
    seed: int,
    step: int,
    pixels: tuple[float, float] = (200_000, 400_000),
    aspect: tuple[float, float] = (0.66, 2.0),
    patch: int = 14,
    least: int = 15,
) -> tuple[int, int]:
    """Height and width of the views of a step: about so many pixels, whole patches, at least so many on a side.

    :param aspect: Width by height, from and to.
    """
    draws = _draws(seed, "shape", step)
    ratio, area = (low + (high - low) * next(draws) for low, high in (aspect, pixels))
    height, width = (
        max(least, round(side / patch)) * patch for side in (math.sqrt(area / ratio), math.sqrt(area * ratio))
    )
    return height, width


def plan(seed: int, number: int, frame_size: tuple[int, int], camera: Tensor, shape: tuple[int, int]) -> Plan:
    """The two views of the sample of that number: one look, one side, two windows.

    :param frame_size: Height and width of the frame.
    :param camera: Of the frame, (3, 3), not on a device that would have to be waited for.
    :param shape: Height and width of the views.
    """
    draws = _draws(seed, "views", number)
    flip, seen = next(draws) < 0.5, look(draws)
    first, second = (_window(draws, frame_size, camera.tolist(), shape) for _ in range(2))
    return Plan((first, second), flip, seen)


def _window(draws: Iterator[float], size: tuple[int, int], camera: list[list[float]], shape: tuple[int, int]) -> Window:
    """A random window: smaller until enough of it is in the frame and its field of view is narrow enough."""
    context = CONTEXT[0] + (CONTEXT[1] - CONTEXT[0]) * next(draws)
    small = min(1.0, size[1] / USUAL)
    right, down = (small * (math.floor((2 * JITTER + 1) * next(draws)) - JITTER) for _ in range(2))
    fill, noise = FILLS[math.floor(len(FILLS) * next(draws))], math.floor(2**48 * next(draws))
    for _ in range(RETRIES):
        height = math.sqrt(context * size[0] * size[1] * shape[0] / shape[1])
        width = height * shape[1] / shape[0]
        top, left = (size[0] - height) / 2 + down, (size[1] - width) / 2 + right
        window = Window(top, left, height, width, fill, noise)
        if part_inside(window, size) >= LEAST_INSIDE and _widest(window, camera) < MOST_VIEW:
            break
        context *= SHRINK
    return window


def part_inside(window: Window, size: tuple[int, int]) -> float:
    """How much of the window lies in the frame."""
    down = min(size[0], window.top + window.height) - max(0.0, window.top)
    right = min(size[1], window.left + window.width) - max(0.0, window.left)
    return max(0.0, down) * max(0.0, right) / (window.height * window.width)


def _widest(window: Window, camera: list[list[float]]) -> float:
    (fx, _, cx), (_, fy, cy), _ = camera
    across = geometry.field_of_view(fx, cx - window.left, window.width)
    return max(across, geometry.field_of_view(fy, cy - window.top, window.height))


def _draws(seed: int, what: str, number: int) -> Iterator[float]:
    """Numbers from 0 to 1 without end in sight."""
    digest = hashlib.sha256(f"{seed} {what} {number}".encode()).digest()
    rng = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
    return iter(torch.rand(64, generator=rng, dtype=torch.float64).tolist())


# On the device


@torch.no_grad()
def prepared(images: Tensor, depths: Tensor, cameras: Tensor, plans: Sequence[Plan], shape: tuple[int, int]) -> Views:
    """The two views of each frame, by its plan. Frames of other sizes go into another call.

    Images are resampled by the bicubic kernel, widened where they shrink; depth is that of the nearest of the four
    neighbours that has one.

    :param images: uint8, (frames, 3, height, width).
    :param depths: (frames, height, width).
    :param cameras: (frames, 3, 3).
    :param shape: Height and width of the views.
    """
    if not len(images) == len(depths) == len(cameras) == len(plans):
        counts = f"{len(images)} images, {len(depths)} depths, {len(cameras)} cameras and {len(plans)} plans"
        raise ValueError(f"Every frame has an image, a depth map, a camera and a plan; got {counts}.")
    numbers = torch.tensor([[*w[:4], p.flip] for p in plans for w in p.windows], dtype=torch.float32)
    numbers = numbers.to(images.device, non_blocking=True)
    with torch.autocast(images.device.type, enabled=False):
        floats = images.float() / 255
        cut = [_cut(floats, depths, cameras, numbers[i::2], shape) for i in range(2)]
        both = Views(*(torch.stack(pair, 1).flatten(0, 1) for pair in zip(*cut, strict=True)))
        small = min(1.0, shape[1] / USUAL)
        looks = [p.look._replace(blur=small * p.look.blur) for p in plans for _ in p.windows]
        seen = looking(both.images, both.valid, looks)
        return both._replace(images=_filled(normalised(seen), both.valid, [w for p in plans for w in p.windows]))


def normalised(images: Tensor) -> Tensor:
    """Images of values from 0 to 1 as encoders want them."""
    mean, deviation = (torch.tensor(v).to(images.device, non_blocking=True)[:, None, None] for v in (MEAN, DEVIATION))
    return (images - mean) / deviation


def _cut(images: Tensor, depths: Tensor, cameras: Tensor, numbers: Tensor, shape: tuple[int, int]) -> Views:
    """One window of each frame, mirrored or not; beyond the frame its rim goes on."""
    top, left, height, width, flip = numbers.unbind(1)
    flips, upright = flip > 0, torch.zeros_like(flip, dtype=torch.bool)
    rows = sampling.places(top, height, shape[0], upright)
    columns = sampling.places(left, width, shape[1], flips)
    seen = sampling.resampled(images, rows, columns, height / shape[0]).clamp(0, 1)
    known = sampling.nearest_known(depths.float(), rows, columns)
    moved = geometry.cropped(cameras.float(), top, left)
    moved = geometry.resized(moved, shape[0] / height, shape[1] / width)
    moved = torch.where(flips[:, None, None], geometry.mirrored(moved, shape[1]), moved)
    return Views(seen, known, moved, flips, sampling.inside(rows, columns, (images.shape[-2], images.shape[-1])))


def _filled(images: Tensor, valid: Tensor, windows: Sequence[Window]) -> Tensor:
    """What lies beyond the frame, replaced by a number or by noise."""
    levels = [0.0 if isinstance(w.fill, str) else w.fill for w in windows]
    around = torch.tensor(levels).to(images.device, non_blocking=True)[:, None, None, None].expand_as(images)
    noisy = [i for i, window in enumerate(windows) if window.fill == NOISE]
    if noisy:
        around = around.clone()
        for i in noisy:
            rng = torch.Generator(images.device).manual_seed(windows[i].noise)
            around[i].normal_(0, SPREAD, generator=rng)
    return torch.where(valid[:, None], images, around)


# For evaluation


@dataclasses.dataclass(frozen=True)
class Undo:
    """The way back from whole frames, fitted into a shape, to the frames.

    :param top: Where the window began in the frame: 0 or less, as ``left``.
    :param height: Of the window in pixels of the frame, as ``width``.
    """

    top: float
    left: float
    height: float
    width: float
    size: tuple[int, int]
    shape: tuple[int, int]

    def depths(self, seen: Tensor) -> Tensor:
        """Depths (batch, *shape) cut and brought to the frames' size, bilinearly."""

        def back(start: float, length: float, count: int, new: int) -> Tensor:
            at = (torch.arange(count, device=seen.device, dtype=seen.dtype) + 0.5 - start) * (new / length)
            return at.expand(len(seen), -1)

        rows = back(self.top, self.height, self.size[0], self.shape[0])
        columns = back(self.left, self.width, self.size[1], self.shape[1])
        return sampling.interpolated(seen, rows, columns)

    def cameras(self, seen: Tensor) -> Tensor:
        """Cameras of the fitted images as cameras of the frames."""
        whole = geometry.resized(seen, self.height / self.shape[0], self.width / self.shape[1])
        return geometry.cropped(whole, -self.top, -self.left)


@torch.no_grad()
def centred(images: Tensor, depths: Tensor, cameras: Tensor, shape: tuple[int, int]) -> tuple[Views, Undo]:
    """Whole frames in the middle of a shape, as large as fits, one view each, with 0 around; and the way back."""
    size = (images.shape[-2], images.shape[-1])
    shrunk = max(size[0] / shape[0], size[1] / shape[1])
    height, width = shrunk * shape[0], shrunk * shape[1]
    undo = Undo((size[0] - height) / 2, (size[1] - width) / 2, height, width, size, shape)
    numbers = torch.tensor([[undo.top, undo.left, height, width, 0.0]]).to(images.device, non_blocking=True)
    with torch.autocast(images.device.type, enabled=False):
        views = _cut(images.float() / 255, depths, cameras, numbers.expand(len(images), -1), shape)
        return views._replace(images=torch.where(views.valid[:, None], normalised(views.images), 0)), undo
