"""The frames of made-up data sets, rooms and streets, and their images as files.

Every layout of a data set holds the same frames, and awkward ones are among them: a grey image, a frame with almost no
depth, a sequence of one frame, cameras off centre, images larger than their depth.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import torch
from torch import Tensor

from trainonce.recipes.depth.data.frames import Frame
from trainonce.recipes.depth.data.readers.frame_files import resize
from trainonce.recipes.depth.generated import rooms
from trainonce.recipes.vision.encode import encode

Written = dict[str, list[Frame]]

SIZE = (48, 64)
SPARSE = 0.03  # the part of pixels that LiDAR reaches
FEW = 20  # pixels of a frame that has almost no depth

# Frames


class Recording(NamedTuple):
    """Frames of one camera, one after another."""

    name: str
    training: bool
    frames: list[Frame]
    large: tuple[Tensor, ...] = ()  # the images in more pixels than their depth


def make_frames(
    seed: int, count: int, kind: str, size: tuple[int, int] = SIZE, sparse: bool = False, *, one_camera: bool = False
) -> list[Frame]:
    """Frames; as LiDAR would see them, only some pixels have depth."""
    images, depths, cameras = rooms.frames(seed, range(count), kind, size, lens=0 if one_camera else None)
    if sparse:
        depths = depths * (torch.rand(depths.shape, generator=torch.Generator().manual_seed(seed)) < SPARSE)
    return [Frame(*parts) for parts in zip(images, depths, cameras, strict=True)]


def with_few(frame: Frame, count: int = FEW) -> Frame:
    """The frame, almost without depth."""
    depth = torch.zeros_like(frame.depth)
    depth.view(-1)[:count] = frame.depth.flatten()[-count:]
    return frame._replace(depth=depth)


def scannet(size: tuple[int, int] = SIZE) -> list[Recording]:
    """Scenes of four frames, of one and of four to test with, in images of twice the height and width."""
    made = []
    for seed, (name, count, training) in enumerate(
        (("scene0000_00", 4, True), ("scene0002_00", 1, True), ("scene0001_00", 4, False)), 1
    ):
        whole = make_frames(seed, count, "room", (2 * size[0], 2 * size[1]), one_camera=True)
        if seed == 1:
            whole[1] = whole[1]._replace(image=whole[1].image.float().mean(0).byte().expand(3, -1, -1).contiguous())
        frames = [resize(frame._replace(depth=frame.depth[::2, ::2].contiguous()), size) for frame in whole]
        if seed == 1:
            frames[2] = with_few(frames[2])
        made.append(Recording(name, training, frames, tuple(frame.image for frame in whole)))
    return made


def driving(seed: int, trained: str, tested: str, cameras: tuple[str, str], size: tuple[int, int]) -> list[Recording]:
    """A segment to train on and one to test with, of two cameras and three frames each."""
    made = []
    for i, (segment, training) in enumerate(((trained, True), (tested, False))):
        for j, camera in enumerate(cameras):
            frames = make_frames(seed + 10 * i + j, 3, "street", size, sparse=True, one_camera=True)
            made.append(Recording(f"{segment}/{camera}", training, frames))
    return made


def recordings(name: str, size: tuple[int, int] = SIZE) -> list[Recording]:
    """The recordings of one of the large data sets; of SUN RGB-D each has one frame."""
    match name:
        case "scannet":
            return scannet(size)
        case "argoverse2":
            return driving(100, "log0", "log1", ("ring_front_center", "ring_side_left"), size)
        case "waymo":
            return driving(200, "segment-0", "segment-1", ("FRONT", "SIDE_LEFT"), size)
        case "nuscenes":
            return driving(300, "scene-0001", "scene-0003", ("CAM_FRONT", "CAM_LEFT"), size)
    frames = make_frames(5, 5, "room", size)
    return [Recording(f"kv2/kinect2data/{i:06d}_x", i < 2, [frame]) for i, frame in enumerate(frames)]


NAMES = ("scannet", "argoverse2", "waymo", "nuscenes", "sunrgbd")
SEQUENCES = NAMES[:3]


def expected(name: str, size: tuple[int, int] = SIZE) -> Written:
    """What is read of a data set: of a sequence that is tested with, the frame in the middle."""
    made = recordings(name, size)
    held_out = [r.frames for r in made if not r.training]
    if name in SEQUENCES:
        held_out = [[frames[len(frames) // 2]] for frames in held_out]
    trained = [r.frames for r in made if r.training]
    return {"train": list(itertools.chain(*trained)), "test": list(itertools.chain(*held_out))}


# Encoding


def colour(image: Tensor, ending: str = ".png", grey: bool = False) -> bytes:
    """An image (3, height, width) as a file."""
    return encode(image[0] if grey else image.permute(1, 2, 0), ending)


def depth16(depth: Tensor, scale: float, rotated: bool = False) -> bytes:
    """Depth in one channel of 16 bits."""
    values = (depth * scale).round().int()
    return encode(((values << 3) | (values >> 13)) & 0xFFFF if rotated else values)


def depth24(depth: Tensor, scale: float, legacy: bool = False) -> bytes:
    """Depth in three channels of 8 bits; legacy: to the base of 255, the last channel counting least."""
    values, base = (depth * scale).round().long(), 255 if legacy else 256
    parts = [values % base, values // base % base, values // base**2]
    return encode(torch.stack(parts[::-1] if legacy else parts, -1).to(torch.uint8))
