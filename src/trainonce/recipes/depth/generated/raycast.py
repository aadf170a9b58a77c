"""Casting rays into scenes of boxes, cylinders and balls: what each hits, and how far away it is, exactly.

The world's axes are those of a camera that looks straight ahead: x right, y down, z forward; the floor is at y = 0.
Rays have length 1 along the optical axis, so how far one goes until it hits something is the depth.

Several scenes are rendered in one pass, over one thing of each at a time. Only operations that round alike everywhere
are used, so that a frame does not depend on those that are rendered with it.
"""

from __future__ import annotations

import array
import itertools
import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from trainonce.recipes.depth.generated.textures import Colour, Surface

if TYPE_CHECKING:
    from collections.abc import Sequence

Point = tuple[float, float, float]

TINY = 1e-12  # keeps directions from being 0
CORNERS = torch.tensor([[x, y, z] for x in (-1.0, 1.0) for y in (-1.0, 1.0) for z in (-1.0, 1.0)]).T


class Thing(NamedTuple):
    """A box turned about the vertical, an upright cylinder or a ball.

    :param half: Half its size along its own axes.
    :param side: The surface of its sides; ``top``: of its horizontal faces.
    """

    shape: str  # "box", "cylinder" or "sphere"
    centre: Point
    half: Point
    side: Surface
    top: Surface
    turn: float = 0.0


class Light(NamedTuple):
    """A lamp or the sun.

    :param reach: At which distance, in metres, half its light arrives.
    :param ambient: The light that is everywhere; ``strength``: the lamp's.
    """

    place: Point
    reach: float
    ambient: float
    strength: float


class Sky(NamedTuple):
    """The sky above the ground where there are no walls.

    :param haze: At which distance, in metres, half of a colour is that of the horizon.
    """

    zenith: Colour
    horizon: Colour
    haze: float


class Scene(NamedTuple):
    """A room from its lowest to its highest corner, with things in it. Under a sky only its floor is visible."""

    low: Point
    high: Point
    walls: tuple[Surface, Surface]  # those at the ends of x, and those at the ends of z
    floor: Surface
    ceiling: Surface
    things: tuple[Thing, ...]
    light: Light
    sky: Sky | None = None


class Pose(NamedTuple):
    """The position of a camera and its orientation in radians: yaw to the right, pitch up, roll."""

    place: Point
    yaw: float = 0.0
    pitch: float = 0.0
    roll: float = 0.0

    def axes(self) -> tuple[Point, Point, Point]:
        """The camera's axes in the world, as the columns of a matrix."""
        (sy, cy), (sp, cp), (sr, cr) = ((math.sin(a), math.cos(a)) for a in (self.yaw, self.pitch, self.roll))
        return (
            (cy * cr + sy * sp * sr, -cy * sr + sy * sp * cr, sy * cp),
            (cp * sr, cp * cr, -sp),
            (-sy * cr + cy * sp * sr, sy * sr + cy * sp * cr, cy * cp),
        )


# Scenes as tensors


class PackedScenes(NamedTuple):
    """Scenes as numbers. Each has the same count of things; missing ones have a negative size and are never hit.

    :param things: (9, scenes, 1 + things): centre, half, cosine and sine of the turn, shape. The first is the room.
    :param surfaces: (numbers, scenes * (1 + things) * 4): for each thing the sides along x, along z, top and bottom.
    :param lights: (6, scenes, 1).
    :param skies: (7, scenes, 1): zenith, horizon, 1 / haze; 0 for rooms.
    """

    things: Tensor
    surfaces: Tensor
    lights: Tensor
    skies: Tensor
    order: tuple[str, ...]


SHAPES = ("room", "box", "cylinder", "sphere")


def pack(scenes: list[Scene], device: torch.device) -> PackedScenes:
    """Scenes as tensors: boxes first, then cylinders, then balls, so that a pass is over things of one shape."""
    by_shape = [[[t for t in scene.things if t.shape == shape] for shape in SHAPES[1:]] for scene in scenes]
    most = [max(len(kinds[i]) for kinds in by_shape) for i in range(len(SHAPES) - 1)]
    unused = [Surface((0.5, 0.5, 0.5)).numbers()] * 4
    things: list[tuple[float, ...]] = []
    surfaces: list[tuple[float, ...]] = []  # four of each thing
    for scene, kinds in zip(scenes, by_shape, strict=True):
        centre = [(low + high) / 2 for low, high in zip(scene.low, scene.high, strict=True)]
        half = [(high - low) / 2 for low, high in zip(scene.low, scene.high, strict=True)]
        things.append((*centre, *half, 1.0, 0.0, 0.0))
        surfaces += [surface.numbers() for surface in (*scene.walls, scene.floor, scene.ceiling)]
        for number, (kind, count) in enumerate(zip(kinds, most, strict=True), 1):
            for t in kind:
                things.append((*t.centre, *t.half, math.cos(t.turn), math.sin(t.turn), float(number)))
                side, top = t.side.numbers(), t.top.numbers()
                surfaces += [side, side, top, top]
            for _ in range(count - len(kind)):
                things.append((0.0, 0.0, 0.0, -1.0, -1.0, -1.0, 1.0, 0.0, float(number)))
                surfaces += unused
    lights = [(*s.light.place, s.light.reach, s.light.ambient, s.light.strength) for s in scenes]
    skies = [(*s.sky.zenith, *s.sky.horizon, 1 / s.sky.haze) if s.sky else (0.0,) * 7 for s in scenes]
    order = tuple(shape for shape, count in zip(SHAPES[1:], most, strict=True) for _ in range(count))
    return PackedScenes(
        _to_tensor(things).view(len(scenes), -1, len(things[0])).permute(2, 0, 1).contiguous().to(device),
        _to_tensor(surfaces).t().contiguous().to(device),
        _to_tensor(lights).t()[:, :, None].contiguous().to(device),
        _to_tensor(skies).t()[:, :, None].contiguous().to(device),
        order,
    )


def _to_tensor(rows: Sequence[tuple[float, ...]]) -> Tensor:
    """Rows of numbers as a tensor. For many, torch.tensor takes three times as long."""
    numbers = array.array("f", itertools.chain.from_iterable(rows))
    return torch.frombuffer(numbers, dtype=torch.float32).view(len(rows), -1)


# Rays


class Rays(NamedTuple):
    """Where the rays of each scene start, (scenes, 1), and where each goes, (scenes, rays)."""

    start: tuple[Tensor, ...]
    to: tuple[Tensor, ...]

    def at(self, distance: Tensor) -> tuple[Tensor, ...]:
        return tuple(a + d * distance for a, d in zip(self.start, self.to, strict=True))


def camera_rays(poses: list[Pose], cameras: Tensor, size: tuple[int, int]) -> Rays:
    """The rays of all pixels, row by row."""
    height, width = size
    device = cameras.device
    axes = torch.tensor([pose.axes() for pose in poses], device=device)
    start = torch.tensor([pose.place for pose in poses], device=device)
    right = (torch.arange(width, device=device) + 0.5 - cameras[:, 0, 2, None]) / cameras[:, 0, 0, None]
    down = (torch.arange(height, device=device) + 0.5 - cameras[:, 1, 2, None]) / cameras[:, 1, 1, None]
    x, y = right[:, None, :], down[:, :, None]
    to = (
        (x * axes[:, i, 0, None, None] + (y * axes[:, i, 1, None, None] + axes[:, i, 2, None, None])).flatten(1)
        for i in range(3)
    )
    return Rays(start[:, :, None].unbind(1), tuple(d + TINY for d in to))


def intersect(rays: Rays, thing: tuple[Tensor, ...], shape: str) -> tuple[Tensor, Tensor]:
    """From where to where each ray is inside a thing; the first is the larger where it misses it."""
    x, y, z = (centre - start for start, centre in zip(rays.start, thing[:3], strict=True))
    dx, dy, dz = rays.to
    half_x, half_y, half_z, cos, sin = thing[3:8]
    if shape == "sphere":
        square = dx * dx + dy * dy + dz * dz
        nearest = (dx * x + dy * y + dz * z) / square
        beside = [(d * nearest - p).square() for p, d in ((x, dx), (y, dy), (z, dz))]
        return _round_interval(nearest, half_x * half_x.abs() - (beside[0] + beside[1] + beside[2]), square)
    above, below = _slab(y, dy, half_y)
    if shape == "cylinder":
        square = dx * dx + dz * dz + TINY
        beside_it = dz * x - dx * z
        left = half_x * half_x.abs() - beside_it * beside_it / square
        near, far = _round_interval((dx * x + dz * z) / square, left, square)
        return torch.maximum(near, above), torch.minimum(far, below)
    near, far = _slab(x * cos - z * sin, dx * cos - dz * sin, half_x)
    front, back = _slab(x * sin + z * cos, dx * sin + dz * cos, half_z)
    return torch.maximum(torch.maximum(near, front), above), torch.minimum(torch.minimum(far, back), below)


def _slab(middle: Tensor, to: Tensor, half: Tensor) -> tuple[Tensor, Tensor]:
    inverse = to.reciprocal()
    reach = inverse.abs().mul_(half)
    middle = inverse.mul_(middle)
    return middle - reach, middle.add_(reach)


def _round_interval(middle: Tensor, left: Tensor, square: Tensor) -> tuple[Tensor, Tensor]:
    reach = left.abs().div_(square).sqrt_() * left.sign()
    return middle - reach, middle + reach


def nearest_hit(rays: Rays, scene: PackedScenes, candidates: Sequence[slice] | None = None) -> tuple[Tensor, Tensor]:
    """How far each ray goes, and which thing it hits: 0 is the room. Nothing may be around the rays' start.

    :param candidates: For each thing, which rays may hit it (:func:`visible_rows`); None: all.
    """
    _, far = intersect(rays, _thing(scene, 0), "box")
    hit = torch.zeros_like(far)
    for number, shape in enumerate(scene.order, 1):
        some = slice(None) if candidates is None else candidates[number - 1]
        part, so_far, at = Rays(rays.start, tuple(d[:, some] for d in rays.to)), far[:, some], hit[:, some]
        near, until = intersect(part, _thing(scene, number), shape)
        closer = near.clamp_(min=0) < torch.minimum(until, so_far)
        so_far.copy_(torch.where(closer, near, so_far))
        at.copy_(torch.where(closer, float(number), at))
    return far, hit.to(torch.int32)


def visible_rows(scene: PackedScenes, poses: list[Pose], cameras: Tensor, size: tuple[int, int]) -> list[slice]:
    """For each thing the rays of the rows in which it is visible in any of the scenes, and a few more.

    They follow from its corners. What reaches behind the camera may be anywhere.
    """
    height, width = size
    place = torch.tensor([pose.place for pose in poses], device=cameras.device).T[:, :, None, None]
    axes = torch.tensor([pose.axes() for pose in poses], device=cameras.device).permute(1, 2, 0)[..., None, None]
    centre, half, (cos, sin, _) = (part[:, :, 1:, None] for part in scene.things.view(3, 3, *scene.things.shape[1:]))
    a, b, c = half * CORNERS.to(half.device)[:, None, None]
    corner = torch.stack([a * cos + c * sin, b, c * cos - a * sin]) + centre - place
    down, ahead = ((corner * axes[:, i]).sum(0) for i in (1, 2))
    row = down / ahead * cameras[:, 1, 1, None, None] + cameras[:, 1, 2, None, None]
    anywhere = (ahead < 0.05).any(-1)
    nowhere = (half[0, ..., 0] < 0) | (ahead < 0).all(-1)
    top = row.amin(-1).masked_fill(anywhere, 0.0).masked_fill(nowhere, float(height))
    bottom = row.amax(-1).masked_fill(anywhere, float(height)).masked_fill(nowhere, 0.0)
    first = (top.amin(0) - 2).clamp(0, height).int().tolist()
    last = (bottom.amax(0) + 2).clamp(0, height).int().tolist()
    return [slice(i * width, max(i, j) * width) for i, j in zip(first, last, strict=True)]


def is_occluded(rays: Rays, scene: PackedScenes) -> Tensor:
    """Whether something is between the start of each ray and its end, at distance 1."""
    longest = torch.full_like(rays.to[0], -1.0)
    for number, shape in enumerate(scene.order, 1):
        near, until = intersect(rays, _thing(scene, number), shape)
        longest = torch.maximum(longest, until.clamp_(max=1) - near.clamp_(min=0))
    return longest > 0


def _thing(scene: PackedScenes, number: int) -> tuple[Tensor, ...]:
    return scene.things[:, :, number, None].unbind(0)
