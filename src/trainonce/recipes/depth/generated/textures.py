"""Procedural surfaces: cells of a fixed metric size with a tone each, and grain.

One formula with different numbers gives planks, tiles, bricks, stripes, checks, windows, lane marks and plain paint.
Edges are averaged over a pixel's footprint, so that far surfaces turn grey and do not flicker. The pattern itself uses
only operations that round alike everywhere, so that a pixel does not depend on others in the same call.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

if TYPE_CHECKING:
    import random

#: Fixed sizes in metres, width and height, from which distance can be learned.
TILE = (0.3, 0.3)
CHECK = (0.5, 0.5)
PLANK = (0.12, 1.2)
BRICK = (0.24, 0.08)
STRIPE = (0.2, 1.0)
PAVING = (0.5, 0.5)
LANE = (3.5, 12.0)  # a lane's width, and from one dash to the next
DASH = (0.15, 4.0)
BAY = (2.4, 3.0)  # from window to window, and from storey to storey
WINDOW = (1.2, 1.5)

NOISE = 512  # texels of the noise, to a side

Colour = tuple[float, float, float]


class Surface(NamedTuple):
    """A pattern of cells.

    :param period: Width and height of a cell, in metres.
    :param inside: The part of the cell, in width and height, that has the first colour; the rest has the second.
    :param shift: By how many cells each row is moved against the one before.
    :param check: 1: whole cells take turns in colour.
    :param cell: How much cells differ in tone.
    :param grain: How strong the noise is.
    :param fine: The noise's repetitions per metre, across and up.
    :param start: Where the noise starts.
    """

    first: Colour
    second: Colour = (0.5, 0.5, 0.5)
    period: tuple[float, float] = (1.0, 1.0)
    inside: tuple[float, float] = (1.0, 1.0)
    shift: float = 0.0
    check: float = 0.0
    cell: float = 0.0
    grain: float = 0.0
    fine: tuple[float, float] = (0.7, 0.7)
    start: tuple[float, float] = (0.0, 0.0)

    def numbers(self) -> tuple[float, ...]:
        scalars = self.shift, self.check, self.cell, self.grain
        return (*self.first, *self.second, *self.period, *self.inside, *scalars, *self.fine, *self.start)


NUMBERS = len(Surface((0.0, 0.0, 0.0)).numbers())


# Kinds of surfaces


def colour(rng: random.Random, value: tuple[float, float] = (0.3, 0.9), vivid: float = 0.5) -> Colour:
    """Any colour: a brightness, and three channels that differ by at most a part of it."""
    bright = rng.uniform(*value)
    red, green, blue = (bright * (1 - vivid * rng.random()) for _ in range(3))
    return red, green, blue


def _scale_colour(base: Colour, by: float) -> Colour:
    red, green, blue = (by * part for part in base)
    return red, green, blue


def _cells_with_joints(
    rng: random.Random, period: tuple[float, float], joint: float, first: Colour, second: Colour
) -> Surface:
    inside = (1 - joint / period[0], 1 - joint / period[1])
    return Surface(first, second, period, inside, start=(rng.random(), rng.random()))


def plain(rng: random.Random, first: Colour) -> Surface:
    fine = rng.uniform(0.3, 1.5)
    return Surface(first, grain=rng.uniform(0.05, 0.3), fine=(fine, fine), start=(rng.random(), rng.random()))


def tiles(rng: random.Random, first: Colour, period: tuple[float, float] = TILE) -> Surface:
    return _cells_with_joints(rng, period, 0.015, first, _scale_colour(first, rng.choice((0.5, 1.4))))._replace(
        cell=0.2, grain=0.15
    )


def bricks(rng: random.Random, first: Colour) -> Surface:
    return _cells_with_joints(rng, BRICK, 0.012, first, (0.7, 0.68, 0.64))._replace(shift=0.5, cell=0.4, grain=0.3)


def checks(rng: random.Random, first: Colour) -> Surface:
    other = _scale_colour(first, rng.choice((0.35, 0.5, 1.8)))
    return Surface(first, other, CHECK, check=1.0, grain=0.15, start=(rng.random(), rng.random()))


def stripes(rng: random.Random, first: Colour) -> Surface:
    other = _scale_colour(first, rng.choice((0.5, 0.7, 1.4)))
    return Surface(first, other, STRIPE, (0.5, 1.0), grain=0.15, start=(rng.random(), rng.random()))


def wood(rng: random.Random, tone: tuple[float, float] = (0.35, 0.75)) -> Surface:
    bright = rng.uniform(*tone)
    first = (bright, bright * rng.uniform(0.65, 0.8), bright * rng.uniform(0.35, 0.6))
    planks = _cells_with_joints(rng, PLANK, 0.006, first, _scale_colour(first, 0.4))
    return planks._replace(shift=0.37, cell=0.35, grain=0.7, fine=(3.0, 0.25))


def board(rng: random.Random) -> Surface:
    """Wood without joints."""
    return wood(rng)._replace(inside=(1.0, 1.0), cell=0.0, period=(1.0, 1.0))


def windows(rng: random.Random, wall: Colour) -> Surface:
    inside = (WINDOW[0] / BAY[0], WINDOW[1] / BAY[1])
    glass = colour(rng, (0.12, 0.35), 0.3)
    return Surface(glass, wall, BAY, inside, cell=0.5, grain=0.15, start=(rng.random(), rng.random()))


def lanes(rng: random.Random) -> Surface:
    grey = rng.uniform(0.2, 0.38)
    inside = (DASH[0] / LANE[0], DASH[1] / LANE[1])
    return Surface((0.9, 0.9, 0.88), (grey, grey, grey), LANE, inside, grain=0.25, start=(rng.random(), rng.random()))


# Their colours


def paint(numbers: Tensor, across: Tensor, up: Tensor, footprint: Tensor) -> Tensor:
    """The colours, (3, points), of points on surfaces.

    :param numbers: :meth:`Surface.numbers` of each point's surface, (:data:`NUMBERS`, points).
    :param across: Where the points are on their surface, in metres; ``up`` likewise.
    :param footprint: How many metres of the surface a pixel covers there.
    """
    first, second = numbers[0:3], numbers[3:6]
    width, height, inside_x, inside_y, shift, check, cell, grain, fine_x, fine_y, start_x, start_y = numbers[
        6:
    ].unbind()
    y = up / height
    row = y.floor()
    x = across / width + shift * row
    column = x.floor()
    wide, high = (footprint / width).clamp_(min=1e-3), (footprint / height).clamp_(min=1e-3)
    cover = _coverage(x - column, inside_x, wide) * _coverage(y - row, inside_y, high)
    clear = (1.5 - torch.maximum(wide, high)).clamp_(0, 1)  # whether single cells can be distinguished
    odd = (row + column) * 0.5
    odd = (odd - odd.floor()) * 2
    cover = cover + check * (0.5 + (odd - 0.5) * clear - cover)
    tone = 1 + cell * clear * (_noise_at(column * 37, row * 91, "white") - 0.5)
    grainy = (1.25 - footprint * torch.maximum(fine_x, fine_y)).clamp_(0, 1)
    texels = ((across * fine_x + start_x) * NOISE, (up * fine_y + start_y) * NOISE)
    tone += grain * grainy * (_noise_at(*texels, "smooth") - 0.5)
    return (second + (first - second) * cover) * tone


def _coverage(place: Tensor, inside: Tensor, wide: Tensor) -> Tensor:
    """The part of an interval that lies in the insides of cells, each 1 long with its inside in the middle."""

    def up_to(x: Tensor) -> Tensor:
        whole = x.floor()
        rest = x - whole - (1 - inside) * 0.5
        return whole * inside + torch.minimum(rest.clamp_(min=0), inside)

    half = wide * 0.5
    return ((up_to(place + half) - up_to(place - half)) / wide).clamp_(0, 1)


def _noise_at(x: Tensor, y: Tensor, kind: str) -> Tensor:
    table = _noise(kind, x.device)
    at = (y.floor().to(torch.int32) & (NOISE - 1)) * NOISE + (x.floor().to(torch.int32) & (NOISE - 1))
    return table.index_select(0, at)


@functools.lru_cache(maxsize=16)
def _noise(kind: str, device: torch.device) -> Tensor:
    """Tileable noise from 0 to 1, :data:`NOISE` squared: white, or smooth with stronger low frequencies."""
    rng = torch.Generator().manual_seed(20240917)
    if kind == "white":
        return torch.rand(NOISE * NOISE, generator=rng).to(device)
    total = torch.zeros(1, 1, NOISE, NOISE)
    for cells in (4, 8, 16, 32, 64, 128, 256):
        spots = torch.rand(1, 1, cells, cells, generator=rng)
        padded = F.pad(spots, (1, 1, 1, 1), mode="circular")
        larger = F.interpolate(padded, scale_factor=NOISE // cells, mode="bicubic", align_corners=False)
        edge = NOISE // cells
        total += larger[..., edge:-edge, edge:-edge] * cells**-0.6
    ranked = torch.empty(NOISE * NOISE)
    ranked[total.flatten().argsort(stable=True)] = torch.linspace(0, 1, NOISE * NOISE)  # all values equally often
    return ranked.to(device)
