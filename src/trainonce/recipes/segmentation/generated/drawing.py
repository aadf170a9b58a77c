"""Random streets of boxes and cut-outs, drawn from far to near, so that the near covers the far."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

import torch

from trainonce.recipes.segmentation.generated.canvas import (
    BUILDING,
    CAR,
    FAR,
    PANES,
    PAVEMENT,
    PERSON,
    ROAD,
    TREE,
    Canvas,
    Colour,
    Light,
    Pair,
    Patch,
    Street,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

STOREY, LANE, LENGTH = 3.1, 3.2, 4.2  # metres: of a house, of the road, of a car


def street(rng: Random, size: tuple[int, int]) -> Street:
    """A random street."""
    canvas = Canvas(rng, size)
    parking = rng.choice((0.3, 2.2)), rng.choice((0.3, 2.2))
    kerbs = -1.5 * LANE - parking[0], 0.5 * LANE + parking[1]
    walls = kerbs[0] - rng.uniform(1.8, 4.5), kerbs[1] + rng.uniform(1.8, 4.5)
    end, sunny = rng.uniform(50, 110), rng.choice((-1, 1))
    draw_ground_(canvas, rng, kerbs, walls[sunny > 0] - sunny * rng.uniform(0, 7), sunny)
    draw_backdrop_(canvas, rng, end)
    for wall in walls:
        draw_houses_(canvas, rng, wall, end, sun=float(wall * sunny < 0))
    for z in range(8, int(end), 16):
        canvas.lights.append(Light(kerbs[z // 16 % 2], 5.5, z + rng.uniform(-2, 2), (1.0, 0.72, 0.36), 1.0, True))
    things = [*_cars(canvas, rng, kerbs, parking), *_people(canvas, rng, kerbs, walls), *_trees(canvas, rng, kerbs)]
    for _, draw in sorted(things, key=lambda thing: -thing[0]):
        draw()
    return canvas.finish()


# The parts


def draw_ground_(canvas: Canvas, rng: Random, kerbs: Pair, shadow: float, sunny: int) -> None:
    """The road with its lines, and pavements; houses on the sun's side throw a shadow."""
    camera = canvas.camera
    rows = slice(math.ceil(camera.row), None)
    z = camera.height / camera.below[rows]
    x = camera.right * z
    patch = Patch(canvas.material[rows], canvas.depth[rows], canvas.rough[rows], x, z, z)
    grey, dark = rng.uniform(0.48, 0.66), rng.uniform(0.26, 0.42)
    asphalt, stone = (dark, dark, dark * rng.uniform(0.98, 1.08)), (grey, grey * 0.97, grey * rng.uniform(0.86, 1.0))
    paint = (0.86, 0.86, 0.82)
    surfaces = [(ROAD, asphalt, 1.0), (ROAD, paint, 1.0), (PAVEMENT, stone, 1.0), (PAVEMENT, stone, 0.84)]
    first, *_ = [canvas.add(what, colour, sun, tone) for what, colour, tone in surfaces for sun in (1.0, 0.0)]
    outside = (x < kerbs[0]) | (x > kerbs[1])
    thick = (0.45 * z / camera.focal).clamp(min=0.08)  # of a line: a pixel or more
    painted = ((x + LANE / 2).abs() < thick) & (z % 6 < rng.choice((3.0, 6.0))) & (z < 45)
    if rng.random() < 0.4:
        start = rng.uniform(7, 22)
        painted |= (z > start) & (z < start + 3) & (x % 1.0 < 0.5)
    joints = ((x % 1.2 < 0.1) | (z % 1.2 < 0.1)) & (z < 14)
    second = torch.where(outside, joints, painted)
    in_shadow = (x > shadow) if sunny > 0 else (x < shadow)
    patch.put_(z < FAR, (first + 4 * outside + 2 * second + in_shadow).int())


def draw_backdrop_(canvas: Canvas, rng: Random, end: float) -> None:
    """What closes the street far away: houses or trees."""
    green = rng.random() < 0.5
    patch = canvas.facing_plane(end, (-FAR, FAR), 16.0)
    top = 5 + 9 * (patch.rough if green else canvas.cloudy)[:1]
    patch.put_((patch.y >= 0) & (patch.y < top), canvas.add(*((TREE, leaves(rng)) if green else (BUILDING, wall(rng)))))


def draw_houses_(canvas: Canvas, rng: Random, x: float, end: float, sun: float) -> None:
    """Houses side by side along the street, now and then a hedge; of a higher one the front shows above the next."""
    starts = [-5.0]
    while starts[-1] < end:
        starts.append(starts[-1] + rng.uniform(7, 17))
    *starts, last = starts
    green = [rng.random() < 0.14 for _ in starts]
    tops = [rng.uniform(2, 5) if hedge else STOREY * rng.randint(2, 6) + 0.7 for hedge in green]
    colours = [leaves(rng) if hedge else wall(rng) for hedge in green]
    sides = [canvas.add(TREE if g else BUILDING, c, sun) for g, c in zip(green, colours, strict=True)]
    pitch, panes = rng.uniform(1.8, 3.2), (1 + PANES * canvas.noise(64, 8)).int()
    for i in reversed(range(1, len(starts))):
        if starts[i] > 2 and not green[i] and tops[i] > tops[i - 1]:
            front = canvas.facing_plane(starts[i], (min(x, 3 * x), max(x, 3 * x)), tops[i])
            front.put_(front.y >= 0, canvas.add(BUILDING, colours[i], 0.0, shade=0.9))
    patch = canvas.side_plane(x, (1.0, last), max(tops))
    which = torch.bucketize(patch.s, torch.tensor(starts[1:]))
    hedge, top = torch.tensor(green)[which], torch.tensor(tops)[which]
    side = (patch.y >= 0) & (patch.y < torch.where(hedge, top * (0.8 + 0.5 * patch.rough[:1]), top))
    patch.put_(side, torch.tensor(sides, dtype=torch.int32)[which])
    column, floor = patch.s / pitch, patch.y / STOREY
    hole = ((column % 1 - 0.5).abs() < torch.where(floor < 1, 0.4, 0.24)) & ((floor % 1 - 0.52).abs() < 0.27)
    hole &= side & (patch.y < top - 0.4) & ~hedge & (patch.s < 70)  # farther ones blur
    patch.tint_(hole, panes[column.long() % 64, floor.long().clamp(0, 7)])


def draw_car_(canvas: Canvas, rng: Random, x: float, z: float, comes: bool, drives: bool) -> None:
    """A box with a cabin: the visible side, then the end."""
    bright = rng.uniform(0.85, 1.15)
    red, green, blue = rng.choice(
        [(0.75, 0.75, 0.75), (0.12, 0.12, 0.13), (0.45, 0.47, 0.5), (0.6, 0.08, 0.08), (0.1, 0.2, 0.5), (0.8, 0.7, 0.5)]
    )
    paint = (bright * red, bright * green, bright * blue)
    rubber, window = canvas.add(CAR, (0.06, 0.06, 0.07), 0.2), canvas.add(CAR, (0.2, 0.24, 0.28), 0.3)
    half, roof = 0.9, rng.uniform(1.4, 1.75)
    if abs(x) > half:
        side = canvas.side_plane(x - half if x > 0 else x + half, (z, z + LENGTH), roof)
        s, y = side.s - z, side.y
        slope = (y - 0.9).clamp(min=0)
        cabin = (y < roof) & (s > 0.3 + 0.6 * slope) & (s < 3.5 - 0.9 * slope)
        wheels = (((s - 2.1).abs() - 1.3) / 0.33) ** 2 + ((y - 0.33) / 0.33) ** 2 < 1
        side.put_((y >= 0.28) & (cabin | (y < 0.95)) | wheels, canvas.add(CAR, paint, 0.5, shade=0.8))
        glass = (y > 1.0) & (y < roof - 0.12) & (s > 0.55 + 0.6 * slope) & (s < 3.2 - 0.9 * slope)
        side.tint_(glass & ((s - 1.9).abs() > 0.07), window)
        side.tint_(wheels, rubber)
    end = canvas.facing_plane(z, (x - half, x + half), roof)
    off, y = ((end.s - x) / half).abs(), end.y
    narrow = 1.05 - 0.3 * (y - 0.6)
    end.put_((y >= 0) & ((off < narrow) | (y < 0.9)) & ((y >= 0.12) | (off > 0.64)), canvas.add(CAR, paint, 0.6))
    end.tint_((y > 1.0) & (y < roof - 0.12) & (off < narrow - 0.15), window)
    end.tint_((y >= 0.12) & (y < 0.3) | (y >= 0) & (y < 0.3) & (off > 0.64), rubber)
    lamp = (0.9, 0.9, 0.8) if comes else (0.6, 0.06, 0.05)
    end.tint_((y > 0.62) & (y < 0.82) & (off > 0.7) & (off < 0.95), canvas.add(CAR, lamp, 0.5))
    if drives:
        shine = ((1.0, 0.95, 0.85), 0.9) if comes else ((1.0, 0.08, 0.04), 0.25)
        canvas.lights += [Light(x + at * half, 0.72, z, *shine, False) for at in (-0.8, 0.8)]


def draw_person_(canvas: Canvas, rng: Random, x: float, z: float) -> None:
    """Legs, trunk and head."""
    tall, stride, skin = rng.uniform(0.9, 1.08), rng.uniform(0.05, 0.24), rng.uniform(0.35, 0.85)
    patch = canvas.facing_plane(z, (x - 0.45, x + 0.45), 1.8 * tall)
    s, y = ((patch.s - x) / tall).abs(), patch.y / tall
    legs = (y >= 0) & (y < 0.9) & ((s - stride * (1 - y / 0.9) - 0.08).abs() < 0.085)
    trunk = (y >= 0.8) & (y < 1.48) & (s < 0.17 + 0.1 * (1.48 - y))
    head = (s / 0.13) ** 2 + ((y - 1.62) / 0.16) ** 2 < 1
    trousers, coat = ([rng.uniform(*reach) for _ in range(3)] for reach in ((0.08, 0.4), (0.1, 0.8)))
    patch.put_(legs | trunk | head, canvas.add(PERSON, (trousers[0], trousers[1], trousers[2])))
    patch.tint_(trunk, canvas.add(PERSON, (coat[0], coat[1], coat[2])))
    patch.tint_(head, canvas.add(PERSON, (skin, skin * 0.78, skin * 0.65)))


def draw_tree_(canvas: Canvas, rng: Random, x: float, z: float) -> None:
    """A stem and a ragged crown, darker below."""
    middle, wide, high, colour = rng.uniform(3.8, 5.5), rng.uniform(1.3, 2.4), rng.uniform(1.5, 2.6), leaves(rng)
    patch = canvas.facing_plane(z, (x - 1.2 * wide, x + 1.2 * wide), middle + 1.2 * high)
    s, y = patch.s - x, patch.y
    stem = (s.abs() < 0.16) & (y >= 0) & (y < middle)
    crown = (s / wide) ** 2 + ((y - middle) / high) ** 2 < 0.7 + 0.65 * patch.rough
    patch.put_(stem | crown, canvas.add(TREE, (0.28, 0.2, 0.14), 0.7))
    patch.tint_(crown, canvas.add(TREE, colour))
    patch.tint_(crown & (y < middle), canvas.add(TREE, colour, 0.5, shade=0.8))


def wall(rng: Random) -> Colour:
    """Plaster, stone or brick."""
    light, warm = rng.uniform(0.32, 0.85), rng.choice((0.0, 0.15, 0.3, 0.5))
    return light, light * (1 - 0.6 * warm), light * (1 - warm)


def leaves(rng: Random) -> Colour:
    light = rng.uniform(0.22, 0.42)
    return light * rng.uniform(0.6, 1.05), light, light * rng.uniform(0.3, 0.5)


# What stands where: its distance, and the function that draws it

Thing = tuple[float, "Callable[[], None]"]


def _cars(canvas: Canvas, rng: Random, kerbs: Pair, parking: Pair) -> list[Thing]:
    places = [
        (kerb - (1.1 if kerb > 0 else -1.1), z + rng.uniform(-0.6, 0.6), kerb < 0, False)
        for kerb, room in zip(kerbs, parking, strict=True)
        for z in range(5, 45, 6)
        if room > 1 and rng.random() < 0.45
    ]
    places += [(rng.uniform(-0.3, 0.3), rng.uniform(8, 40), False, True)] if rng.random() < 0.65 else []
    places += [(-LANE, z + rng.uniform(0, 8), True, True) for z in (6, 20, 36) if rng.random() < 0.4]
    return [(place[1], functools.partial(draw_car_, canvas, rng, *place)) for place in places]


def _people(canvas: Canvas, rng: Random, kerbs: Pair, walls: Pair) -> list[Thing]:
    pavements = (kerbs[0] - 0.4, walls[0] + 0.5), (kerbs[1] + 0.4, walls[1] - 0.5)
    places = [(rng.uniform(*rng.choice(pavements)), rng.uniform(6, 30)) for _ in range(rng.randint(2, 8))]
    places += [(rng.uniform(*kerbs), rng.uniform(7, 20)) for _ in range(rng.choice((0, 0, 1, 2)))]
    return [(z, functools.partial(draw_person_, canvas, rng, x, z)) for x, z in places]


def _trees(canvas: Canvas, rng: Random, kerbs: Pair) -> list[Thing]:
    often, lines = rng.choice((0.1, 0.5)), (kerbs[0] - 0.6, kerbs[1] + 0.6)
    places = [(x, z + rng.uniform(-2, 2)) for x in lines for z in range(9, 50, 8) if rng.random() < often]
    return [(z, functools.partial(draw_tree_, canvas, rng, x, z)) for x, z in places]
