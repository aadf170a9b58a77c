"""Two random views of each frame: crops at different scales, both mirrored or neither, with the same colour jitter.

A view is a window of the frame, of the shape of the batch, that may reach beyond the frame. Everything random about the
views of a frame is drawn on the CPU, as plain numbers that follow from the seed and the sample's number; then all
windows are cropped on the device at once. Cameras are transformed exactly. Depth stays in metres.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from trainonce.recipes.depth import geometry
from trainonce.recipes.depth.augmentation import sampling
from trainonce.recipes.depth.augmentation.colour_jitter import ColourJitter, apply_jitter, draw_jitter
from trainonce.recipes.vision.indices import seeded_generator

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet
CONTEXT = (0.5, 2.0)  # the window's area, in frames
JITTER = 7  # source pixels: the largest shift of a window's centre from the frame's
REFERENCE_WIDTH = 640  # pixels: the width that the jitter and the blur are meant for; they are less in narrower images
MIN_INSIDE, MAX_FIELD_OF_VIEW = 0.5, 150.0  # the part of a window in the frame; degrees
RETRIES, SHRINK = 100, 0.96
NOISE = "noise"
FILLS: tuple[float | str, ...] = (NOISE, -4.0, 4.0, 0.0)  # values outside the frame, after normalisation
NOISE_STD = 2.0


class Window(NamedTuple):
    """A part of a frame, in its pixels, that may reach beyond it, and the value outside.

    :param noise: The seed of the noise, where the value outside is :data:`NOISE`.
    """

    top: float
    left: float
    height: float
    width: float
    fill: float | str = 0.0
    noise: int = 0


class Augmentation(NamedTuple):
    """What is random about the two views of a frame."""

    windows: tuple[Window, Window]
    flip: bool = False
    jitter: ColourJitter = ColourJitter()


class Views(NamedTuple):
    """The views that a network is trained on; the two of a frame are neighbours.

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


# Random numbers, on the CPU


def draw_shape(
    seed: int,
    step: int,
    pixels: tuple[float, float] = (200_000, 400_000),
    aspect: tuple[float, float] = (0.66, 2.0),
    patch: int = 14,
    least: int = 15,
) -> tuple[int, int]:
    """A random height and width for the views of a step, in whole patches.

    :param least: The smallest number of patches on a side.

    :param pixels: About how many, from and to.
    :param aspect: Width by height, from and to.
    """
    draws = _random_numbers(seed, "shape", step)
    ratio, area = (low + (high - low) * next(draws) for low, high in (aspect, pixels))
    height, width = (
        max(least, round(side / patch)) * patch for side in (math.sqrt(area / ratio), math.sqrt(area * ratio))
    )
    return height, width


def draw_augmentation(
    seed: int, number: int, frame_size: tuple[int, int], camera: Tensor, shape: tuple[int, int]
) -> Augmentation:
    """The random numbers of the sample of that number: one colour jitter, mirrored or not, two windows.

    :param frame_size: Height and width of the frame.
    :param camera: Of the frame, (3, 3), on the CPU.
    :param shape: Height and width of the views.
    """
    draws = _random_numbers(seed, "views", number)
    flip, jitter = next(draws) < 0.5, draw_jitter(draws)
    first, second = (_draw_window(draws, frame_size, camera.tolist(), shape) for _ in range(2))
    return Augmentation((first, second), flip, jitter)


def _draw_window(
    draws: Iterator[float], size: tuple[int, int], camera: list[list[float]], shape: tuple[int, int]
) -> Window:
    """A random window: smaller until enough of it is in the frame and its field of view is narrow enough."""
    context = CONTEXT[0] + (CONTEXT[1] - CONTEXT[0]) * next(draws)
    small = min(1.0, size[1] / REFERENCE_WIDTH)
    right, down = (small * (math.floor((2 * JITTER + 1) * next(draws)) - JITTER) for _ in range(2))
    fill, noise = FILLS[math.floor(len(FILLS) * next(draws))], math.floor(2**48 * next(draws))
    for _ in range(RETRIES):
        height = math.sqrt(context * size[0] * size[1] * shape[0] / shape[1])
        width = height * shape[1] / shape[0]
        top, left = (size[0] - height) / 2 + down, (size[1] - width) / 2 + right
        window = Window(top, left, height, width, fill, noise)
        if fraction_inside(window, size) >= MIN_INSIDE and _max_field_of_view(window, camera) < MAX_FIELD_OF_VIEW:
            break
        context *= SHRINK
    return window


def fraction_inside(window: Window, size: tuple[int, int]) -> float:
    """The part of the window's area that lies in the frame."""
    down = min(size[0], window.top + window.height) - max(0.0, window.top)
    right = min(size[1], window.left + window.width) - max(0.0, window.left)
    return max(0.0, down) * max(0.0, right) / (window.height * window.width)


def _max_field_of_view(window: Window, camera: list[list[float]]) -> float:
    (fx, _, cx), (_, fy, cy), _ = camera
    across = geometry.field_of_view(fx, cx - window.left, window.width)
    return max(across, geometry.field_of_view(fy, cy - window.top, window.height))


def _random_numbers(seed: int, what: str, number: int) -> Iterator[float]:
    """64 uniform random numbers from 0 to 1, which is more than a sample needs."""
    return iter(torch.rand(64, generator=seeded_generator(seed, what, number), dtype=torch.float64).tolist())


# On the device


@torch.no_grad()
def make_views(
    images: Tensor, depths: Tensor, cameras: Tensor, augmentations: Sequence[Augmentation], shape: tuple[int, int]
) -> Views:
    """The two views of each frame, from its random numbers. Frames of other sizes need another call.

    Images are resampled by a bicubic kernel with antialiasing; depth is that of the nearest of the four neighbours that
    has one.

    :param images: uint8, (frames, 3, height, width).
    :param depths: (frames, height, width).
    :param cameras: (frames, 3, 3).
    :param shape: Height and width of the views.
    """
    if not len(images) == len(depths) == len(cameras) == len(augmentations):
        counts = (
            f"{len(images)} images, {len(depths)} depths, {len(cameras)} cameras and {len(augmentations)} augmentations"
        )
        raise ValueError(f"Every frame has an image, a depth map, a camera and an augmentation; got {counts}.")
    numbers = _window_numbers(augmentations).to(images.device, non_blocking=True)
    with torch.autocast(images.device.type, enabled=False):
        floats = images.float() / 255
        crops = [crop_windows(floats, depths, cameras, numbers[i::2], shape) for i in range(2)]
        both = Views(*(torch.stack(pair, 1).flatten(0, 1) for pair in zip(*crops, strict=True)))
        small = min(1.0, shape[1] / REFERENCE_WIDTH)
        jitters = [a.jitter._replace(blur=small * a.jitter.blur) for a in augmentations for _ in a.windows]
        jittered = apply_jitter(both.images, both.valid, jitters)
        return both._replace(
            images=_fill_outside(normalise(jittered), both.valid, [w for a in augmentations for w in a.windows])
        )


def normalise(images: Tensor) -> Tensor:
    """Normalise images of values from 0 to 1 by the mean and the standard deviation of ImageNet."""
    mean, std = (torch.tensor(v).to(images.device, non_blocking=True)[:, None, None] for v in (MEAN, STD))
    return (images - mean) / std


def crop_windows(images: Tensor, depths: Tensor, cameras: Tensor, numbers: Tensor, shape: tuple[int, int]) -> Views:
    """One window of each frame, mirrored or not; outside the frame its border is replicated.

    :param images: Values from 0 to 1, (frames, 3, height, width).
    :param numbers: Top, left, height and width of each window, and 1 where it is mirrored, (frames, 5).
    """
    top, left, height, width, flip = numbers.unbind(1)
    flips = flip > 0
    rows, columns = _pixel_centres(numbers, shape)
    resampled = sampling.resample(images, rows, columns, height / shape[0]).clamp(0, 1)
    known = sampling.nearest_known(depths.float(), rows, columns)
    moved = geometry.crop_camera(cameras.float(), top, left)
    moved = geometry.resize_camera(moved, shape[0] / height, shape[1] / width)
    moved = torch.where(flips[:, None, None], geometry.mirror_camera(moved, shape[1]), moved)
    return Views(resampled, known, moved, flips, sampling.inside(rows, columns, (images.shape[-2], images.shape[-1])))


def fewest_known(depth: Tensor, augmentation: Augmentation, shape: tuple[int, int], enough: int) -> int:
    """How many pixels of known depth the two views of a frame have, the lesser number; counting stops at ``enough``.

    :param depth: Of the frame, (height, width).
    """
    rows, columns = _pixel_centres(_window_numbers([augmentation]), shape)
    both = depth.float().expand(2, -1, -1)
    for stride in (8, 1):  # mostly an eighth of the rows and columns has enough
        known = sampling.nearest_known(both, rows[:, ::stride], columns[:, ::stride]) > 0
        count = int(known.sum((1, 2)).min())
        if count >= enough:
            break
    return count


def _window_numbers(augmentations: Sequence[Augmentation]) -> Tensor:
    """Top, left, height and width of each window, and 1 where it is mirrored, (windows, 5)."""
    return torch.tensor([[*w[:4], a.flip] for a in augmentations for w in a.windows], dtype=torch.float32)


def _pixel_centres(numbers: Tensor, shape: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """The rows and the columns of a frame at which the pixels of each window lie."""
    top, left, height, width, flip = numbers.unbind(1)
    rows = sampling.pixel_centres(top, height, shape[0], torch.zeros_like(flip, dtype=torch.bool))
    return rows, sampling.pixel_centres(left, width, shape[1], flip > 0)


def _fill_outside(images: Tensor, valid: Tensor, windows: Sequence[Window]) -> Tensor:
    """Replace what lies outside the frame by a number or by noise."""
    levels = [0.0 if isinstance(w.fill, str) else w.fill for w in windows]
    around = torch.tensor(levels).to(images.device, non_blocking=True)[:, None, None, None].expand_as(images)
    noisy = [i for i, window in enumerate(windows) if window.fill == NOISE]
    if noisy:
        around = around.clone()
        for i in noisy:
            rng = torch.Generator(images.device).manual_seed(windows[i].noise)
            around[i].normal_(0, NOISE_STD, generator=rng)
    return torch.where(valid[:, None], images, around)
