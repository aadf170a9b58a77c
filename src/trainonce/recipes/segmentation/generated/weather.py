"""Renders a street by day, at dusk, at night and in fog.

Light is added up in linear units; the square root at the end is the gamma of the camera.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trainonce.recipes.segmentation.generated.canvas import SKY

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from trainonce.recipes.segmentation.generated.canvas import Street


def render(street: Street, condition: str, rng: Random) -> Tensor:
    """The image, uint8 (3, height, width)."""
    light, noise = CONDITIONS[condition](street, rng)
    generator = torch.Generator().manual_seed(rng.getrandbits(32))
    picture = light.clamp(0.0, 1.0).sqrt() + noise * torch.randn(light.shape, generator=generator)
    return (255 * picture.clamp(0.0, 1.0)).round().to(torch.uint8)


# The conditions: the light that arrives, and the noise of the sensor


def day(street: Street, rng: Random) -> tuple[Tensor, float]:
    """Sun and a blue sky, or clouds."""
    sunny = rng.uniform(0.1, 1.0)
    light = rgb(0.75, 0.78, 0.85) * (0.95 - 0.45 * sunny) + rgb(0.65, 0.62, 0.55) * sunny * street.sun
    clouds = (2.2 * street.cloudy - 0.6 - 0.5 * sunny).clamp(0.0, 1.0)
    blue = vertical_gradient(street, rgb(0.22, 0.42, 0.82), rgb(0.62, 0.76, 0.92))
    sky = blue + (rgb(0.82, 0.84, 0.88) - blue) * clouds
    shown = torch.where(street.label == SKY, sky, street.colour.square() * light)
    return add_haze(shown, street, sky, 600.0) * rng.uniform(0.85, 1.1), 0.01


def dusk(street: Street, rng: Random) -> tuple[Tensor, float]:
    """The sun is down: little light, warm and from everywhere, the sky aglow; some windows are lit."""
    light = rgb(0.36, 0.22, 0.13) * rng.uniform(0.6, 1.0)
    sky = vertical_gradient(street, rgb(0.07, 0.08, 0.17), rgb(0.72, 0.34, 0.13)) * rng.uniform(0.7, 1.1)
    sky = sky * (0.7 + 0.6 * street.cloudy)
    shown = torch.where(street.label == SKY, sky, 0.015 + street.colour.square() * light)
    return add_haze(shown, street, 0.5 * sky, 160.0) + 0.5 * window_light(street, 0.12), 0.02


def night(street: Street, rng: Random) -> tuple[Tensor, float]:
    """Lamps, headlights and windows, and between them next to nothing; the camera is at its limit."""
    light = rgb(0.006, 0.007, 0.012) + lamplight(street) + headlights(street)
    sky = vertical_gradient(street, rgb(0.001, 0.001, 0.003), rgb(0.012, 0.008, 0.005))
    shown = torch.where(street.label == SKY, sky, street.colour.square() * light) + window_light(
        street, rng.uniform(0.1, 0.3)
    )
    return (shown + glow(street)) * rng.uniform(0.6, 1.1), rng.uniform(0.02, 0.04)


def fog(street: Street, rng: Random) -> tuple[Tensor, float]:
    """Grey light, and greyer with every metre."""
    grey = rgb(0.50, 0.52, 0.54) * rng.uniform(0.8, 1.1)
    return add_haze(0.55 * street.colour.square(), street, grey, rng.uniform(14, 30)), 0.012


CONDITIONS: dict[str, Callable[[Street, Random], tuple[Tensor, float]]] = {
    "day": day,
    "dusk": dusk,
    "night": night,
    "fog": fog,
}


# Light


def rgb(*levels: float) -> Tensor:
    return torch.tensor(levels)[:, None, None]


def vertical_gradient(street: Street, top: Tensor, bottom: Tensor) -> Tensor:
    """A gradient from one colour at the upper border to another at the horizon."""
    below = street.camera.below
    return top + (bottom - top) * (1 - below / below[0]).clamp(max=1.0)


def add_haze(shown: Tensor, street: Street, air: Tensor, reach: float) -> Tensor:
    """Blend towards the colour of the air with distance: by 1 - exp(-depth / reach)."""
    kept = torch.exp(-street.depth.double() / reach).float()
    return air + (shown - air) * kept


def window_light(street: Street, part: float) -> Tensor:
    """The light of the windows that are lit, some brighter than others."""
    return (street.glass > 1 - part) * (0.25 + 0.3 * street.cloudy) * rgb(1.0, 0.72, 0.36)


def lamplight(street: Street) -> Tensor:
    """The light of the street lamps on what is near them."""
    camera, z = street.camera, street.depth
    x, y = camera.right * z, camera.height - camera.below * z
    total: dict[tuple[float, float, float], Tensor] = {}
    for lamp in street.lights:
        if lamp.throws:
            square = (x - lamp.x).square() + (y - lamp.y).square() + (z - lamp.z).square()
            total[lamp.colour] = total.get(lamp.colour, torch.zeros(())) + 5.0 * lamp.power / (6.0 + square)
    return sum_lights(total, street)


def headlights(street: Street) -> Tensor:
    """The light of the camera car's headlights: ahead and low."""
    aside = street.camera.right.square() / 0.12 + (street.camera.below - 0.1).square() / 0.03
    return rgb(0.5, 0.48, 0.42) / ((1 + (street.depth / 14).square()) * (1 + aside.square()))


def glow(street: Street) -> Tensor:
    """The lamps themselves, with a halo, where nothing hides them."""
    camera = street.camera
    total: dict[tuple[float, float, float], Tensor] = {}
    for lamp in street.lights:
        aside = (camera.right - lamp.x / lamp.z).square()
        under = (camera.below - (camera.height - lamp.y) / lamp.z).square()
        if float(street.depth[under.argmin(), aside.argmin()]) > lamp.z - 0.5:
            square = (aside + under) * lamp.z**2  # in metres, at the lamp's distance
            total[lamp.colour] = total.get(lamp.colour, torch.zeros(())) + 0.05 * lamp.power / (0.03 + square)
    return sum_lights(total, street)


def sum_lights(fields: dict[tuple[float, float, float], Tensor], street: Street) -> Tensor:
    """The sum of lights of single colours, each scaled by its field."""
    total = torch.zeros_like(street.colour)
    for colour, field in fields.items():
        total += rgb(*colour) * field
    return total
