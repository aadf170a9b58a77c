"""Random streets and camera poses on them: lanes, pavements, houses, cars, trees, lamp posts of usual sizes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from trainonce.recipes.depth.generated import textures
from trainonce.recipes.depth.generated.raycast import Light, Pose, Scene, Sky, Thing
from trainonce.recipes.depth.generated.textures import BAY, LANE

if TYPE_CHECKING:
    import random

    from trainonce.recipes.depth.generated.textures import Surface

ENDS = (-15.0, 90.0)  # metres along the street where houses start and end
WIDE = 150.0  # how far the ground reaches
KERB = 0.12


def road(rng: random.Random) -> tuple[Scene, Pose]:
    """A street along z and a camera on one of its lanes."""
    lanes = rng.randint(2, 4)
    half = lanes * LANE[0] / 2
    walk = rng.uniform(2.0, 4.0)
    things = [*_sides(rng, half, walk), *_traffic(rng, lanes)]
    light = _sun(rng)
    horizon = rng.uniform(0.75, 0.95)
    zenith = (horizon * rng.uniform(0.4, 0.8), horizon * rng.uniform(0.6, 0.9), horizon)
    sky = Sky(zenith, (horizon, horizon, horizon), rng.uniform(80.0, 300.0))
    surface = textures.lanes(rng)
    # The pattern's cells have their mark in their middle; the ground starts so that marks lie between lanes.
    low = (-half - LANE[0] * (40 + 0.5), -80.0, -WIDE)
    scene = Scene(low, (WIDE, 0.0, WIDE), (surface, surface), surface, surface, tuple(things), light, sky)
    lane = rng.randrange(lanes)
    x = (lane + 0.5) * LANE[0] - half + rng.uniform(-0.5, 0.5)
    yaw = rng.gauss(0.0, 0.15) if rng.random() < 0.7 else rng.uniform(-1.0, 1.0)
    return scene, Pose((x, -rng.uniform(1.2, 2.2), 0.0), yaw, rng.gauss(0.0, 0.05), rng.gauss(0.0, 0.02))


def _sun(rng: random.Random) -> Light:
    around, high = rng.uniform(-math.pi, math.pi), rng.uniform(0.5, 1.2)
    far = 1000.0
    place = (far * math.cos(high) * math.sin(around), -far * math.sin(high), far * math.cos(high) * math.cos(around))
    return Light(place, 10 * far, rng.uniform(0.35, 0.6), rng.uniform(0.5, 1.0))


def _sides(rng: random.Random, half: float, walk: float) -> list[Thing]:
    """Pavements, and houses behind them, whose walls are whole numbers of bays and storeys."""
    things = []
    paving = textures.tiles(rng, textures.colour(rng, (0.45, 0.65), 0.1), textures.PAVING)
    for side in (-1, 1):
        long = (ENDS[1] - ENDS[0]) / 2
        centre = (side * (half + walk / 2), -KERB / 2, sum(ENDS) / 2)
        things.append(Thing("box", centre, (walk / 2, KERB / 2, long), paving, paving))
        start = ENDS[0] + rng.uniform(0.0, 5.0)
        while start < ENDS[1] - 10:
            width, high = rng.randint(4, 9) * BAY[0], rng.randint(2, 6) * BAY[1]
            wall, roof = _facade(rng)
            deep = 3 * BAY[0]
            centre = (side * (half + walk + deep + rng.uniform(0.0, 0.4)), -high / 2, start + width / 2)
            things.append(Thing("box", centre, (deep, high / 2, width / 2), wall, roof))
            start += width + (rng.uniform(2.0, 8.0) if rng.random() < 0.3 else 0.0)
        for z in range(8, 60, 18):
            if rng.random() < 0.6:
                things += _upright(rng, side * (half + 0.6), z + rng.uniform(-3.0, 3.0))
    return things


def _facade(rng: random.Random) -> tuple[Surface, Surface]:
    wall = textures.colour(rng, (0.4, 0.9), 0.45)
    return textures.windows(rng, wall), textures.plain(rng, (0.4, 0.35, 0.33))


def _upright(rng: random.Random, x: float, z: float) -> list[Thing]:
    """A tree or a lamp post."""
    if rng.random() < 0.5:
        metal = textures.plain(rng, (0.35, 0.36, 0.37))
        return [Thing("cylinder", (x, -2.75, z), (0.07, 2.75, 0.07), metal, metal)]
    bark = textures.plain(rng, (0.35, 0.27, 0.2))
    leaves = textures.plain(rng, (0.2, rng.uniform(0.3, 0.5), 0.12))._replace(grain=1.2, fine=(0.6, 0.6))
    radius = rng.uniform(1.0, 1.6)
    crown = Thing("sphere", (x, -2.3 - radius, z), (radius,) * 3, leaves, leaves)
    return [Thing("cylinder", (x, -1.25, z), (0.15, 1.25, 0.15), bark, bark), crown]


def _traffic(rng: random.Random, lanes: int) -> list[Thing]:
    """Cars in their lanes, at least 7 metres from the camera and from each other, whichever lane they are on."""
    things, z = [], 7.0
    for _ in range(rng.randint(2, 5)):
        z += rng.uniform(0.0, 9.0)
        lane = rng.randrange(lanes)
        things += _car(rng, (lane + 0.5 - lanes / 2) * LANE[0] + rng.uniform(-0.4, 0.4), z + 2.2)
        z += 7.0
    return things


def _car(rng: random.Random, x: float, z: float) -> list[Thing]:
    """4.4 metres long, 1.8 wide, 1.45 high: a body and a cabin with dark windows, on a dark floor."""
    paint = textures.plain(rng, textures.colour(rng, (0.15, 0.95), 0.9))._replace(grain=0.1)
    dark = textures.plain(rng, (0.08, 0.08, 0.1))
    glass = paint._replace(first=(0.15, 0.17, 0.2), second=paint.first, period=(1.5, 0.55), inside=(0.85, 0.75))
    turn = rng.gauss(0.0, 0.03)
    return [
        Thing("box", (x, -0.62, z), (0.9, 0.3, 2.2), paint, paint, turn),
        Thing("box", (x, -1.18, z + 0.15), (0.75, 0.275, 1.2), glass, paint, turn),
        Thing("box", (x, -0.17, z), (0.8, 0.17, 1.9), dark, dark, turn),
    ]
