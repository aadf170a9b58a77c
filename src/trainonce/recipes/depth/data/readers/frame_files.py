"""Frames stored as an image file, a depth image and a camera each: reading, decoding, resizing.

Every error names the file, the rule, what was found and what to do, in one sentence.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from trainonce.recipes.depth.data.frames import Frame
from trainonce.recipes.vision.checks import format_size
from trainonce.recipes.vision.files import Place, decode, pixels

if TYPE_CHECKING:
    from collections.abc import Sequence

#: By which part the aspect ratios of an image and its depth may differ and still show the same.
ASPECT = 0.02


class Source(Protocol):
    """Encoded bytes, wherever they are; as a string, the name of their file."""

    def read(self) -> bytes: ...


class DepthFormat(NamedTuple):
    """How depth is stored: in metres, (value + ``offset``) / ``scale``.

    Without an offset, the value 0 means that the depth is not known. Images have 16 bits, or three channels of 8.

    :param eight: One channel of 8 bits instead.
    :param rotated: The 16 bits of a value are rotated to the left by 3, as those of SUN RGB-D.
    :param legacy: Three channels are blue + 255 green + 255^2 red, and not red + 256 green + 256^2 blue.
    """

    scale: float
    offset: float = 0.0
    eight: bool = False
    rotated: bool = False
    legacy: bool = False


MILLIMETRES = DepthFormat(1000.0)
LIDAR = DepthFormat(256.0)  # of driving data, as KITTI stores it


@dataclasses.dataclass(frozen=True, eq=False)
class FrameFiles:
    """Frames that are read on access.

    :param images: Where each image is; ``depths`` likewise.
    :param cameras: (frames, 3, 3), in pixels of the image as stored.
    :param window: Rows and columns (top, bottom, left, right) to cut out of what is stored.
    :param size: Height and width to bring everything to; None: those of the depth image.
    :param align: Whether an image and its depth may have different sizes, as long as both show the same.
    """

    images: Sequence[Source]
    depths: Sequence[Source]
    cameras: Tensor
    depth_format: DepthFormat
    window: tuple[int, int, int, int] | None = None
    size: tuple[int, int] | None = None
    align: bool = False

    def __post_init__(self) -> None:
        if not len(self.images) == len(self.depths) == len(self.cameras):
            counts = f"{len(self.images)}, {len(self.depths)} and {len(self.cameras)}"
            raise ValueError(f"FrameFiles needs as many depths and cameras as images; got {counts}.")
        if self.size is not None and (len(self.size) != 2 or min(self.size) < 1):
            raise ValueError(f"FrameFiles needs a size (height, width) of at least one pixel; got {self.size}.")

    def __len__(self) -> int:
        return len(self.images)

    def name(self, index: int) -> str:
        return str(self.images[index])

    def frame(self, index: int) -> Frame:
        source = self.depths[index]
        image, depth = read_image(self.images[index]), read_depth(source, self.depth_format)
        have, depth_has = tuple(image.shape[1:]), tuple(depth.shape)
        if have != depth_has and not (self.align and _same_aspect(have, depth_has)):
            text = f"The image {self.name(index)} and its depth {source} must be of one size"
            raise ValueError(f"{text}; they have {format_size(have)} and {format_size(depth_has)} pixels.")
        found = resize(Frame(image, depth, self.cameras[index].clone()), depth_has)
        if self.window is not None:
            found = crop(found, self.window)
        return found if self.size is None else resize(found, self.size)


def _same_aspect(one: Sequence[int], other: Sequence[int]) -> bool:
    return abs(one[1] * other[0] / (one[0] * other[1]) - 1) < ASPECT


# Decoding


def read_image(source: Source) -> Tensor:
    """uint8, (3, height, width); grey images are repeated."""
    image = decode(cast("Place", source), "image")
    if image.mode.startswith(("I", "F")):
        raise ValueError(f"The image {source} must have 8 bits per channel; its mode is {image.mode!r}.")
    return pixels(image.convert("RGB")).permute(2, 0, 1).contiguous()


def read_depth(source: Source, depth_format: DepthFormat) -> Tensor:
    """Metres, (height, width), 0 where unknown."""
    image = decode(cast("Place", source), "depth image")
    if depth_format.eight and image.mode == "L":
        value = pixels(image).int()
    elif image.mode.startswith("I"):
        value = _read_integers(image)
    elif image.mode == "RGB" and not depth_format.eight:
        red, green, blue = pixels(image).int().unbind(-1)
        value = blue + 255 * green + 255**2 * red if depth_format.legacy else red + (green << 8) + (blue << 16)
    else:
        rule = "one channel of 8 bits" if depth_format.eight else "one channel of 16 bits, or three of 8"
        raise ValueError(f"The depth image {source} must have {rule}; its mode is {image.mode!r}.")
    if depth_format.rotated:
        value = (value >> 3) | (value << 13 & 0xFFFF)
    return (value.float() + depth_format.offset) / depth_format.scale


def _read_integers(image: Any) -> Tensor:
    """int32, (height, width): the values of an image with one channel of 16 bits."""
    flat = torch.frombuffer(bytearray(image.convert("I").tobytes()), dtype=torch.int32)
    return flat.view(image.height, image.width)


# Cropping and resizing


def crop(frame: Frame, window: tuple[int, int, int, int]) -> Frame:
    """The part of a frame in a window (top, bottom, left, right)."""
    top, bottom, left, right = window
    camera = frame.camera.clone()
    camera[:2, 2] -= torch.tensor([float(left), float(top)])
    part = frame.image[:, top:bottom, left:right].contiguous(), frame.depth[top:bottom, left:right].contiguous()
    return Frame(*part, camera)


def resize(frame: Frame, size: Sequence[int]) -> Frame:
    """The frame at another size: the image interpolated with antialiasing, depth as in :func:`resize_depth`."""
    have, want = frame.image.shape[1:], tuple(size)
    if have != want:
        scaled = F.interpolate(
            frame.image[None].float(), want, mode="bilinear", align_corners=False, antialias=True
        ).round_()
        image = scaled[0].clamp_(0, 255).to(torch.uint8)
        factor = torch.tensor([[want[1] / have[1]], [want[0] / have[0]], [1.0]])
        frame = Frame(image, frame.depth, frame.camera * factor)
    return frame._replace(depth=resize_depth(frame.depth, want))


def resize_depth(depth: Tensor, size: Sequence[int]) -> Tensor:
    """For each pixel the known depth nearest to its centre, of the pixels in it or of the 4 around it.

    Depth is never interpolated, and where only few pixels have one, as with LiDAR, it is not lost.
    """
    have, want = depth.shape, tuple(size)
    if have == want:
        return depth
    if want[0] <= have[0] and want[1] <= have[1]:
        return _shrink_depth(depth, want)
    rows, columns = ((torch.arange(n) + 0.5) * m / n - 0.5 for n, m in zip(want, have, strict=True))
    best, nearest = torch.zeros(want), torch.full(want, torch.inf)
    for i in (rows.floor(), rows.floor() + 1):
        for j in (columns.floor(), columns.floor() + 1):
            at = i.clamp(0, have[0] - 1).long()[:, None], j.clamp(0, have[1] - 1).long()[None]
            away = (i - rows).square()[:, None] + (j - columns).square()[None]
            better = (depth[at] > 0) & (away < nearest)
            best, nearest = torch.where(better, depth[at], best), torch.where(better, away, nearest)
    return best


def _shrink_depth(depth: Tensor, want: tuple[int, ...]) -> Tensor:
    """A smaller depth map: of the known pixels that fall into one, the most central."""
    i, j = depth.nonzero().unbind(1)
    row, column = ((at + 0.5) * n / m for at, n, m in zip((i, j), want, depth.shape, strict=True))
    into = row.long() * want[1] + column.long()
    away = (row.frac() - 0.5).square() + (column.frac() - 0.5).square()
    order = away.argsort(descending=True, stable=True)
    last = torch.full((want[0] * want[1],), -1)
    last.scatter_reduce_(0, into[order], torch.arange(len(order)), "amax")
    known = last >= 0
    found = depth.new_zeros(len(last))
    found[known] = depth[i, j][order][last[known]]
    return found.view(*want)
