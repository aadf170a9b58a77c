"""What rays see in a scene: the colours of surfaces by their textures, a lamp or the sun, shadows, sky and haze."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from trainonce.recipes.depth.generated.raycast import TINY, Packed, Rays, between, nearest
from trainonce.recipes.depth.generated.textures import painted

if TYPE_CHECKING:
    from collections.abc import Sequence

LIFTED = 2e-3  # metres: how far above its surface a point looks for the light


class Seen(NamedTuple):
    """Colours from 0 to 1, (3, scenes, rays), and depths, (scenes, rays), 0 for the sky."""

    colour: Tensor
    depth: Tensor


def cast(scene: Packed, rays: Rays, pixel: Tensor, seen: Sequence[slice] | None = None) -> Seen:
    """What each ray sees.

    :param pixel: The width of a pixel at distance 1, (scenes, 1).
    :param seen: For each thing, which rays may hit it; None: all.
    """
    depth, hit = nearest(rays, scene, seen)
    point = rays.at(depth)
    scenes, things = scene.things.shape[1:]
    flat = hit + torch.arange(scenes, device=hit.device, dtype=torch.int32)[:, None] * things
    own = scene.things.flatten(1).index_select(1, flat.flatten()).view(-1, *flat.shape).unbind()
    local, normal = surface_of(point, own)
    size = tuple(n.abs() for n in normal)
    along_x = (size[0] >= size[1]) & (size[0] >= size[2])
    along_y = (size[1] > size[0]) & (size[1] >= size[2])
    side = torch.where(along_x, 0, 1)
    face = torch.where(along_y, torch.where(normal[1] < 0, 2, 3), side)
    numbers = scene.surfaces.index_select(1, (flat * 4 + face).flatten())
    corner = (local[0] + own[3], local[1] - own[4], local[2] + own[5])
    across = torch.where(along_x, corner[2], corner[0])
    up = torch.where(along_y, corner[2], corner[1])
    cos, sin = own[6], own[7]
    out = (normal[0] * cos + normal[2] * sin, normal[1], normal[2] * cos - normal[0] * sin)
    length = (rays.to[0].square() + rays.to[1].square() + rays.to[2].square()).sqrt()
    slant = (out[0] * rays.to[0] + out[1] * rays.to[1] + out[2] * rays.to[2]).abs() / length
    footprint = pixel * depth / slant.clamp_(min=0.1)
    colour = painted(numbers, across.flatten(), up.flatten(), footprint.flatten()).view(3, scenes, -1)
    colour = colour * lit(scene, point, out)
    return under_sky(scene, rays, Seen(colour, depth), hit, face, length)


def surface_of(point: tuple[Tensor, ...], own: tuple[Tensor, ...]) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Points on things in the things' own axes, and which way their surface faces there, in these axes."""
    x, y, z = (p - c for p, c in zip(point, own[:3], strict=True))
    cos, sin, shape = own[6:9]
    local = (x * cos - z * sin, y, x * sin + z * cos)
    a, b, c = (p / h for p, h in zip(local, own[3:6], strict=True))
    flat_x, flat_y, flat_z = a.abs(), b.abs(), c.abs()
    is_x = (flat_x >= flat_y) & (flat_x >= flat_z)
    is_z = ~is_x & (flat_z >= flat_y)
    inward = torch.where(shape == 0, -1.0, 1.0)
    zero = torch.zeros((), device=a.device)
    box = (
        torch.where(is_x, a.sign() * inward, zero),
        torch.where(is_x | is_z, zero, b.sign() * inward),
        torch.where(is_z, c.sign() * inward, zero),
    )
    radius = (a * a + c * c).sqrt()
    around = radius > flat_y
    inverse = 1 / radius.clamp(min=1e-6)
    tube = (
        torch.where(around, a * inverse, zero),
        torch.where(around, zero, b.sign()),
        torch.where(around, c * inverse, zero),
    )
    normal = tuple(
        torch.where(shape < 2, i, torch.where(shape < 3, j, k)) for i, j, k in zip(box, tube, (a, b, c), strict=True)
    )
    return local, normal


def lit(scene: Packed, point: tuple[Tensor, ...], normal: tuple[Tensor, ...]) -> Tensor:
    """How bright points are: by the lamp, if they see it, less with its distance, and by what is everywhere."""
    place, (reach, ambient, strength) = scene.lights[:3], scene.lights[3:]
    ends = (p + n * LIFTED for p, n in zip(point, normal, strict=True))
    beam = Rays(tuple(place), tuple(end - lamp + TINY for end, lamp in zip(ends, place, strict=True)))
    square = beam.to[0].square() + beam.to[1].square() + beam.to[2].square()
    facing = -(normal[0] * beam.to[0] + normal[1] * beam.to[1] + normal[2] * beam.to[2])
    direct = strength * facing.clamp_(min=0) / square.sqrt() / (1 + square / (reach * reach))
    direct = direct.masked_fill_(between(beam, scene), 0.0)
    everywhere = ambient * (1 - 0.25 * normal[1])
    total: Tensor = everywhere + direct
    return total


def under_sky(scene: Packed, rays: Rays, seen: Seen, hit: Tensor, face: Tensor, length: Tensor) -> Seen:
    """The sky where the ray leaves the ground's end, and haze before it."""
    zenith, horizon, thin = scene.skies[0:3], scene.skies[3:6], scene.skies[6]
    sky = (hit == 0) & (face != 2) & (thin > 0)
    high = (-rays.to[1] / length).clamp_(0, 1).sqrt()
    hazy = (seen.depth * length * thin).square()
    hazy = hazy / (1 + hazy)
    colour = seen.colour + (horizon - seen.colour) * hazy
    colour = torch.where(sky, horizon + (zenith - horizon) * high, colour)
    return Seen(colour, seen.depth.masked_fill(sky, 0.0))
