"""An image in perspective, painted with materials on upright planes: the material and the depth of each pixel.

The camera stands at the origin, some height above the ground, and looks along z; x goes right, y up. Lengths are in
metres.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

if TYPE_CHECKING:
    from random import Random

SKY, BUILDING, ROAD, PAVEMENT, TREE, CAR, PERSON = range(7)
FAR = 1000.0  # metres to the sky
PANES = 16  # kinds of window panes
GRAIN = torch.tensor([0.0, 0.14, 0.22, 0.18, 0.7, 0.06, 0.12])  # the strength of noise on each class

Colour = tuple[float, float, float]
Pair = tuple[float, float]


class Light(NamedTuple):
    """A lamp: its position, colour and power, and whether it illuminates the street."""

    x: float
    y: float
    z: float
    colour: Colour
    power: float
    throws: bool


class Camera(NamedTuple):
    """Its height, its focal length in pixels, the vanishing point of the street, and the directions of pixels.

    ``right`` of the middle of the street and ``below`` the horizon are in metres, at a distance of one metre.
    """

    height: float
    focal: float
    column: float
    row: float
    right: Tensor
    below: Tensor


class Street(NamedTuple):
    """A finished street: a colour, a class and so on of every pixel.

    :param glass: 0 except in windows, where larger values are lit more often.
    :param sun: The part of the sun's light.
    :param cloudy: Smooth noise from 0 to 1.
    """

    camera: Camera
    lights: list[Light]
    colour: Tensor
    label: Tensor
    depth: Tensor
    glass: Tensor
    sun: Tensor
    cloudy: Tensor


class Material(NamedTuple):
    """The class and the appearance of a surface."""

    what: int
    colour: Colour
    sun: float = 1.0
    glass: float = 0.0


class Canvas:
    """A street being drawn: for each pixel the number of a material, and the depth."""

    def __init__(self, rng: Random, size: tuple[int, int]) -> None:
        height, width = size
        generator = torch.Generator().manual_seed(rng.getrandbits(32))
        self.noise = functools.partial(torch.rand, generator=generator)
        column, row = width * rng.uniform(0.42, 0.58), height * rng.uniform(0.42, 0.52)
        right, below = (torch.arange(width) + 0.5 - column), (torch.arange(height) + 0.5 - row)[:, None]
        focal = 0.62 * width
        self.camera = Camera(rng.uniform(1.4, 1.8), focal, column, row, right / focal, below / focal)
        self.rough, self.cloudy = (
            F.interpolate(self.noise(1, 1, n, 2 * n), size, mode="bilinear")[0, 0] for n in (24, 5)
        )
        self.material, self.depth = torch.zeros(size, dtype=torch.int32), torch.full(size, FAR)
        self.materials = [Material(SKY, (0.6, 0.7, 0.8))]
        for n in range(PANES):
            grey = 0.14 + 0.3 * (n / PANES) ** 2
            self.materials.append(Material(BUILDING, (grey, 1.08 * grey, 1.2 * grey), 0.0, (n + 1) / PANES))
        self.lights: list[Light] = []

    def add(self, what: int, colour: Colour, sun: float = 1.0, shade: float = 1.0) -> int:
        """Add a material and return its number."""
        red, green, blue = colour
        self.materials.append(Material(what, (shade * red, shade * green, shade * blue), sun))
        return len(self.materials) - 1

    def facing_plane(self, z: float, x: Pair, top: float) -> Patch:
        """The upright plane that faces the camera at a distance, between two x, from the ground to the top."""
        camera = self.camera
        rows = self._rows((top - camera.height) / z, camera.height / z)
        columns = self._columns(x[0] / z, x[1] / z)
        return self._patch(rows, columns, camera.right[columns] * z, camera.height - camera.below[rows] * z, z)

    def side_plane(self, x: float, z: Pair, top: float) -> Patch:
        """The upright plane along the street at x, between two distances."""
        camera = self.camera
        rows = self._rows(max((top - camera.height) / end for end in z), camera.height / z[0])
        columns = self._columns(min(x / z[0], x / z[1]), max(x / z[0], x / z[1]))
        depth = x / camera.right[columns]
        return self._patch(rows, columns, depth, camera.height - camera.below[rows] * depth, depth)

    def _rows(self, above: float, below: float) -> slice:
        row, focal = self.camera.row, self.camera.focal
        return _pixel_slice(row - focal * above, row + focal * below, self.material.shape[0])

    def _columns(self, first: float, last: float) -> slice:
        column, focal = self.camera.column, self.camera.focal
        return _pixel_slice(column + focal * first, column + focal * last, self.material.shape[1])

    def _patch(self, rows: slice, columns: slice, s: Tensor, y: Tensor, z: float | Tensor) -> Patch:
        return Patch(self.material[rows, columns], self.depth[rows, columns], self.rough[rows, columns], s, y, z)

    def finish(self) -> Street:
        """The street, with the grain of its surfaces."""
        of_pixel = self.material.flatten()
        size, table = self.material.shape, [(*m.colour, m.sun, m.glass) for m in self.materials]
        *colour, sun, glass = torch.tensor(table).T.index_select(1, of_pixel).view(5, *size)
        label = torch.tensor([m.what for m in self.materials]).index_select(0, of_pixel).view(size)
        grain = 1 + GRAIN[label] * (self.noise(size) - 0.5)
        shown = (torch.stack(colour) * grain).clamp_(0.0, 1.0)
        return Street(self.camera, self.lights, shown, label.to(torch.uint8), self.depth, glass, sun, self.cloudy)


class Patch(NamedTuple):
    """A part of the canvas, and where its pixels lie: ``s`` along the plane, ``y`` above the ground, ``z`` away."""

    material: Tensor
    depth: Tensor
    rough: Tensor
    s: Tensor
    y: Tensor
    z: float | Tensor

    def put_(self, where: Tensor, material: int | Tensor) -> None:
        """Draw something new: it covers what was there."""
        _fill_(self.material, where, material)
        _fill_(self.depth, where, self.z)

    def tint_(self, where: Tensor, material: int | Tensor) -> None:
        """Change the material of something already drawn."""
        _fill_(self.material, where, material)


def _fill_(plane: Tensor, where: Tensor, value: float | Tensor) -> None:
    if isinstance(value, Tensor):
        plane.copy_(torch.where(where, value, plane))
    else:
        plane.masked_fill_(where, value)


def _pixel_slice(first: float, last: float, count: int) -> slice:
    """The pixels whose centre lies between two coordinates."""
    low, high = (min(count, max(0, math.ceil(place - 0.5))) for place in (first, last))
    return slice(low, high)
