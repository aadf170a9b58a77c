"""Random furnished rooms and camera poses in them. Doors, tables and chairs have their usual sizes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from trainonce.recipes.depth.generated import textures
from trainonce.recipes.depth.generated.raycast import Light, Pose, Scene, Thing

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from trainonce.recipes.depth.generated.textures import Surface

PIECES = (4, 10)  # how many pieces of furniture
DOOR = (0.9, 2.0)
TABLE, SEAT = 0.74, 0.45  # heights
CLEAR = 0.6  # metres between the camera and the next piece


def interior(rng: random.Random) -> tuple[Scene, Pose]:
    """A room and a camera in it."""
    wide, long, high = rng.uniform(2.8, 6.0), rng.uniform(3.2, 6.8), rng.uniform(2.3, 3.0)
    low, top = (-wide / 2, -high, -long / 2), (wide / 2, 0.0, long / 2)
    pose = camera_pose(rng, wide, long, high)
    wall = textures.colour(rng, (0.45, 0.95), 0.35)
    walls = tuple(_wall(rng, wall) for _ in range(2))
    lamp = (rng.uniform(-0.3, 0.3) * wide, -high + 0.15, rng.uniform(-0.3, 0.3) * long)
    light = Light(lamp, rng.uniform(2.0, 4.0), rng.uniform(0.25, 0.5), rng.uniform(0.8, 1.4))
    things = [*_wall_items(rng, wide, long, high), *_furniture(rng, wide, long, pose)]
    ceiling = textures.plain(rng, textures.colour(rng, (0.75, 0.95), 0.1))
    return Scene(low, top, (walls[0], walls[1]), _floor(rng), ceiling, tuple(things), light), pose


def camera_pose(rng: random.Random, wide: float, long: float, high: float) -> Pose:
    """A random camera pose at the height of a hand or an eye: of several, the one farthest from the wall ahead."""
    best, farthest = Pose((0.0, -1.4, 0.0)), 0.0
    for _ in range(5):
        x, z = rng.uniform(-0.5, 0.5) * (wide - 0.6), rng.uniform(-0.5, 0.5) * (long - 0.6)
        pose = Pose((x, -rng.uniform(0.9, min(1.8, high - 0.4)), z), rng.uniform(-math.pi, math.pi))
        if (ahead := wall_distance(pose, wide, long)) > farthest:
            best, farthest = pose, ahead
    return best._replace(pitch=rng.gauss(-0.15, 0.12), roll=rng.gauss(0.0, 0.03))


def wall_distance(pose: Pose, wide: float, long: float) -> float:
    """The distance to the wall that the camera looks at."""
    (x, _, z), sin, cos = pose.place, math.sin(pose.yaw), math.cos(pose.yaw)
    return min((wide / 2 - math.copysign(1, sin) * x) / abs(sin), (long / 2 - math.copysign(1, cos) * z) / abs(cos))


def _wall(rng: random.Random, colour: textures.Colour) -> Surface:
    kinds: list[Callable[[random.Random, textures.Colour], Surface]]
    kinds = [textures.plain, textures.plain, textures.bricks, textures.stripes, textures.tiles]
    return rng.choice(kinds)(rng, colour)


def _floor(rng: random.Random) -> Surface:
    colour = textures.colour(rng, (0.35, 0.85), 0.4)
    return rng.choice([textures.wood(rng), textures.tiles(rng, colour), textures.checks(rng, colour)])


def _cover(rng: random.Random) -> Surface:
    """A random surface of furniture."""
    colour = textures.colour(rng, (0.2, 0.9), 0.8)
    return rng.choice([textures.board(rng), textures.plain(rng, colour), textures.stripes(rng, colour)])


def _wall_items(rng: random.Random, wide: float, long: float, high: float) -> list[Thing]:
    """A door and pictures, each on one of the four walls."""
    things = []
    pictures = [(rng.uniform(0.4, 1.2), rng.uniform(0.3, 0.9)) for _ in range(rng.randint(1, 3))]
    for i, (width, height) in enumerate([DOOR, *pictures]):
        middle = height / 2 if i == 0 else rng.uniform(1.3, high - 0.25 - height / 2)
        cover = textures.board(rng) if i == 0 else textures.checks(rng, textures.colour(rng, (0.2, 0.9), 0.9))
        side = rng.choice((-1, 1))
        if rng.random() < 0.5:
            along = rng.uniform(-0.5, 0.5) * (long - width)
            centre, half = (side * wide / 2, -middle, along), (0.03, height / 2, width / 2)
        else:
            along = rng.uniform(-0.5, 0.5) * (wide - width)
            centre, half = (along, -middle, side * long / 2), (width / 2, height / 2, 0.03)
        things.append(Thing("box", centre, half, cover, cover))
    return things


def _furniture(rng: random.Random, wide: float, long: float, pose: Pose) -> list[Thing]:
    """Pieces that overlap neither each other nor the camera; one for which there is no room is left out."""
    things: list[Thing] = []
    taken = [(pose.place[0], pose.place[2], CLEAR)]
    count = rng.randint(*PIECES)
    for i in range(count):
        make, radius = rng.choice(PIECE) if i else PIECE[0]
        for _ in range(12):
            x, z = _spot(rng, wide, long, pose)
            inside = abs(x) < wide / 2 - radius and abs(z) < long / 2 - radius
            if inside and all(math.hypot(x - a, z - b) > radius + r for a, b, r in taken):
                turn = rng.choice((0.0, math.pi / 2)) + (rng.uniform(-0.8, 0.8) if rng.random() < 0.5 else 0.0)
                things += [_place(thing, x, z, turn) for thing in make(rng)]
                taken.append((x, z, radius))
                break
    return things


def _spot(rng: random.Random, wide: float, long: float, pose: Pose) -> tuple[float, float]:
    """Anywhere, or before the camera."""
    if rng.random() < 0.4:
        return rng.uniform(-0.5, 0.5) * wide, rng.uniform(-0.5, 0.5) * long
    far, aside = rng.uniform(1.0, wall_distance(pose, wide, long)), pose.yaw + rng.uniform(-0.5, 0.5)
    return pose.place[0] + far * math.sin(aside), pose.place[2] + far * math.cos(aside)


def _place(thing: Thing, x: float, z: float, turn: float) -> Thing:
    cos, sin = math.cos(turn), math.sin(turn)
    a, y, b = thing.centre
    return thing._replace(centre=(x + a * cos + b * sin, y, z - a * sin + b * cos), turn=thing.turn + turn)


# Pieces of furniture, around the origin


def _box(
    x: tuple[float, float], height: tuple[float, float], z: tuple[float, float], cover: Surface, top: Surface
) -> Thing:
    half = ((x[1] - x[0]) / 2, (height[1] - height[0]) / 2, (z[1] - z[0]) / 2)
    return Thing("box", (sum(x) / 2, -sum(height) / 2, sum(z) / 2), half, cover, top)


def _table(rng: random.Random) -> list[Thing]:
    cover, leg = textures.board(rng), _cover(rng)
    a, b = rng.uniform(0.5, 0.7), rng.uniform(0.35, 0.45)
    pair = [_box((x - 0.03, x + 0.03), (0, TABLE - 0.04), (0.06 - b, b - 0.06), leg, leg) for x in (0.1 - a, a - 0.1)]
    on_it = _small(rng, TABLE, rng.uniform(-a, a) / 2, rng.uniform(-b, b) / 2)
    return [_box((-a, a), (TABLE - 0.04, TABLE), (-b, b), cover, cover), *pair, on_it]


def _small(rng: random.Random, height: float, x: float, z: float) -> Thing:
    size, cover = rng.uniform(0.06, 0.15), _cover(rng)
    shape = rng.choice(("box", "cylinder", "sphere"))
    half = (size, size if shape == "sphere" else size * rng.uniform(0.6, 1.6), size)
    return Thing(shape, (x, -height - half[1], z), half, cover, cover)


def _chair(rng: random.Random) -> list[Thing]:
    cover = _cover(rng)
    seat = _box((-0.22, 0.22), (SEAT - 0.05, SEAT), (-0.22, 0.22), cover, cover)
    back = _box((-0.22, 0.22), (SEAT, 0.9), (0.18, 0.22), cover, cover)
    foot = Thing("cylinder", (0.0, -SEAT / 2 + 0.025, 0.0), (0.05, SEAT / 2 - 0.025, 0.05), cover, cover)
    return [seat, back, foot]


def _sofa(rng: random.Random) -> list[Thing]:
    cover, half = _cover(rng), rng.uniform(0.5, 0.75)
    return [
        _box((-half, half), (0, SEAT), (-0.4, 0.4), cover, cover),
        _box((-half, half), (SEAT, 0.85), (0.22, 0.4), cover, cover),
    ]


def _cabinet(rng: random.Random) -> list[Thing]:
    cover, half, deep = _cover(rng), rng.uniform(0.25, 0.5), rng.uniform(0.2, 0.3)
    return [_box((-half, half), (0, rng.uniform(0.6, 2.1)), (-deep, deep), cover, textures.board(rng))]


def _crate(rng: random.Random) -> list[Thing]:
    cover, half = _cover(rng), rng.uniform(0.15, 0.3)
    return [_box((-half, half), (0, 2 * half), (-half, half), cover, cover)]


def _lamp(rng: random.Random) -> list[Thing]:
    height, radius = rng.uniform(1.2, 1.6), rng.uniform(0.12, 0.2)
    metal, shade = textures.plain(rng, (0.3, 0.3, 0.3)), textures.plain(rng, (1.2, 1.15, 0.95))
    pole = Thing("cylinder", (0.0, -height / 2, 0.0), (0.025, height / 2, 0.025), metal, metal)
    return [pole, Thing("sphere", (0.0, -height - radius, 0.0), (radius,) * 3, shade, shade)]


def _ball(rng: random.Random) -> list[Thing]:
    cover, radius = _cover(rng), rng.uniform(0.12, 0.35)
    return [Thing("sphere", (0.0, -radius, 0.0), (radius,) * 3, cover, cover)]


def _bin(rng: random.Random) -> list[Thing]:
    cover, radius, half = _cover(rng), rng.uniform(0.15, 0.3), rng.uniform(0.2, 0.5)
    return [Thing("cylinder", (0.0, -half, 0.0), (radius, half, radius), cover, cover)]


#: Each piece's function, and its radius from above.
PIECE: tuple[tuple[Callable[[random.Random], list[Thing]], float], ...] = (
    (_table, 0.75),
    (_chair, 0.35),
    (_chair, 0.35),
    (_sofa, 0.8),
    (_cabinet, 0.5),
    (_cabinet, 0.5),
    (_crate, 0.4),
    (_lamp, 0.25),
    (_ball, 0.36),
    (_bin, 0.31),
)
