"""Rooms and streets, ray-cast and not downloaded: images with exact depth, taken by cameras of many kinds.

A frame is decided by its seed, its number and its kind alone: which room, what is in it, where the camera stands, its
focal length. Floors, bricks, doors, lanes and windows have fixed sizes in metres (:mod:`.textures`, :mod:`.interiors`),
which is what tells the distance.
"""

from __future__ import annotations

import dataclasses
import math
import random
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trainonce.recipes.depth.data.frames import Examined, Frame, Range, Sets
from trainonce.recipes.depth.generated.interiors import interior
from trainonce.recipes.depth.generated.raycast import packed, rays_of, within
from trainonce.recipes.depth.generated.roads import road
from trainonce.recipes.depth.generated.shading import cast
from trainonce.text import did_you_mean, quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainonce.recipes.depth.generated.raycast import Pose, Scene

KINDS = ("room", "street", "mixed")
SIZE = (96, 128)
#: The cameras' horizontal fields of view, in degrees, and how far their centres are off, as parts of the image.
FIELD = (40.0, 90.0)
OFF_CENTRE = 0.01
#: Depths that count. What is farther away in a street has no depth, as the sky has none.
RANGES = {"room": Range(0.005, 10.0), "street": Range(0.05, 80.0)}
#: How many pixels are cast in one pass: what fits a processor's cache, or a GPU's memory.
AT_ONCE = {"cpu": 1 << 16, "cuda": 1 << 22}


def frame(seed: int, index: int, kind: str = "room", size: tuple[int, int] = SIZE) -> Frame:
    """The frame of that number.

    >>> image, depth, camera = frame(0, 3, "room", size=(24, 32))
    >>> tuple(image.shape), tuple(depth.shape), bool((depth > 0).all())
    ((3, 24, 32), (24, 32), True)
    """
    images, depths, cameras = frames(seed, [index], kind, size)
    return Frame(images[0], depths[0], cameras[0])


def frames(
    seed: int,
    indices: Sequence[int],
    kind: str = "room",
    size: tuple[int, int] = SIZE,
    device: torch.device | str = "cpu",
) -> tuple[Tensor, Tensor, Tensor]:
    """Several frames: images (uint8), depths and cameras. A frame is the same whichever others are made with it."""
    device = torch.device(device)
    _checked(kind, size)
    most = max(1, AT_ONCE.get(device.type, 1 << 20) // (size[0] * size[1]))
    numbers = list(indices)
    spans = [numbers[start : start + most] for start in range(0, len(numbers), most)]
    parts = [_cast(seed, span, kind, size, device) for span in spans]
    if not parts:
        images = torch.zeros(0, 3, *size, dtype=torch.uint8, device=device)
        return images, torch.zeros(0, *size, device=device), torch.zeros(0, 3, 3, device=device)
    images, depths, cameras = (torch.cat(column) for column in zip(*parts, strict=True))
    return images, depths, cameras


def _cast(
    seed: int, indices: Sequence[int], kind: str, size: tuple[int, int], device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    kinds = [kind_of(index, kind) for index in indices]
    scenes, poses = zip(*(scene(seed, index, each) for index, each in zip(indices, kinds, strict=True)), strict=True)
    cameras = torch.tensor([lens(seed, i, each, size) for i, each in zip(indices, kinds, strict=True)], device=device)
    there = packed(list(scenes), device)
    spans = within(there, list(poses), cameras, size) if device.type == "cpu" else None  # a GPU has no use for it
    seen = cast(there, rays_of(list(poses), cameras, size), 1 / cameras[:, 0, 0, None], spans)
    farthest = torch.tensor([[RANGES[each].farthest] for each in kinds], device=device)
    depth = seen.depth.masked_fill(seen.depth > farthest, 0.0)
    colour = (seen.colour.clamp(0, 1).sqrt() * 255 + 0.5).to(torch.uint8)
    return colour.permute(1, 0, 2).reshape(-1, 3, *size), depth.view(-1, *size), cameras


def kind_of(index: int, kind: str) -> str:
    """What the frame of that number shows: where kinds are mixed, rooms and streets take turns."""
    return ("room", "street")[index % 2] if kind == "mixed" else kind


def scene(seed: int, index: int, kind: str) -> tuple[Scene, Pose]:
    """What is there, and where the camera is."""
    return {"room": interior, "street": road}[kind](random.Random(f"{kind} {seed} {index}"))


def lens(seed: int, index: int, kind: str, size: tuple[int, int]) -> list[list[float]]:
    """The camera's intrinsics: square pixels, and a centre that is a little off."""
    rng = random.Random(f"lens {kind} {seed} {index}")
    height, width = size
    focal = width / 2 / math.tan(math.radians(rng.uniform(*FIELD)) / 2)
    x, y = (side * (0.5 + rng.uniform(-OFF_CENTRE, OFF_CENTRE)) for side in (width, height))
    return [[focal, 0.0, x], [0.0, focal, y], [0.0, 0.0, 1.0]]


def _checked(kind: str, size: tuple[int, int]) -> None:
    if kind not in KINDS:
        raise ValueError(f"Frames are made of the kinds {quoted(KINDS)}; got {kind!r}.{did_you_mean(kind, KINDS)}")
    if len(size) != 2 or min(size) < 1:
        raise ValueError(f"Frames need a size (height, width) of at least one pixel; got {size}.")


@dataclasses.dataclass(frozen=True)
class Generated:
    """Frames that are made when they are asked for: those of the numbers from ``first`` on.

    >>> made = Generated(0, 10, "street", size=(24, 32), first=5)
    >>> made.name(2), tuple(made.frame(2).depth.shape)
    ('street 0/7', (24, 32))
    """

    seed: int
    count: int
    kind: str = "room"
    size: tuple[int, int] = SIZE
    first: int = 0

    def __post_init__(self) -> None:
        _checked(self.kind, self.size)

    def __len__(self) -> int:
        return self.count

    def name(self, index: int) -> str:
        return f"{kind_of(self._number(index), self.kind)} {self.seed}/{self._number(index)}"

    def frame(self, index: int) -> Frame:
        return frame(self.seed, self._number(index), self.kind, self.size)

    def frames(self, indices: Sequence[int], device: torch.device | str = "cpu") -> tuple[Tensor, Tensor, Tensor]:
        """Several at once, which is faster, on any device: images, depths and cameras."""
        return frames(self.seed, [self._number(index) for index in indices], self.kind, self.size, device)

    def _number(self, index: int) -> int:
        if not 0 <= index < self.count:
            raise IndexError(f"There are {self.count} frames, from 0; got {index}.")
        return self.first + index


def load(
    seed: int, size: tuple[int, int] = SIZE, counts: tuple[int, int, int] = (2000, 100, 200), kind: str = "room"
) -> Sets:
    """Frames to train on, to choose by and to test with. No room or street is in two sets.

    ``"mixed"`` trains on rooms and streets, chooses and tests in rooms, and reports on streets besides.
    """
    _checked(kind, size)

    def sets(what: str) -> list[Generated]:
        starts = (0, counts[0], counts[0] + counts[1])
        return [Generated(seed, count, what, size, start) for count, start in zip(counts, starts, strict=True)]

    main = "room" if kind == "mixed" else kind
    training, validation, test = sets(main)
    names = {f"{main}s": training}
    others = {}
    if kind == "mixed":
        streets = sets("street")
        names["streets"], others["streets"] = streets[0], Examined(streets[2], RANGES["street"])
    return Sets(names, Examined(validation, RANGES[main]), Examined(test, RANGES[main]), others)
