"""The colours that rays see in a scene: textures of surfaces, a lamp or the sun, shadows, sky and haze."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from trainonce.recipes.depth.generated.raycast import TINY, PackedScenes, Rays, is_occluded, nearest_hit
from trainonce.recipes.depth.generated.textures import paint

if TYPE_CHECKING:
    from collections.abc import Sequence

SHADOW_OFFSET = 2e-3  # metres: how far above its surface a shadow ray ends


class Rendering(NamedTuple):
    """Colours from 0 to 1, (3, scenes, rays), and depths, (scenes, rays), 0 for the sky."""

    colour: Tensor
    depth: Tensor


def render(scene: PackedScenes, rays: Rays, pixel: Tensor, candidates: Sequence[slice] | None = None) -> Rendering:
    """The colour and the depth that each ray sees.

    :param pixel: The width of a pixel at distance 1, (scenes, 1).
    :param candidates: For each thing, which rays may hit it; None: all.
    """
    depth, hit = nearest_hit(rays, scene, candidates)
    point = rays.at(depth)
    scenes, things = scene.things.shape[1:]
    flat = hit + torch.arange(scenes, device=hit.device, dtype=torch.int32)[:, None] * things
    own = scene.things.flatten(1).index_select(1, flat.flatten()).view(-1, *flat.shape).unbind()
    local, normal = local_surface(point, own)
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
    colour = paint(numbers, across.flatten(), up.flatten(), footprint.flatten()).view(3, scenes, -1)
    colour = colour * illumination(scene, point, out)
    return add_sky(scene, rays, Rendering(colour, depth), hit, face, length)


def local_surface(point: tuple[Tensor, ...], own: tuple[Tensor, ...]) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Points on things in the things' own axes, and the surface normal there, in these axes."""
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


def illumination(scene: PackedScenes, point: tuple[Tensor, ...], normal: tuple[Tensor, ...]) -> Tensor:
    """The light on points: from the lamp, where nothing occludes it, falling with distance, and ambient."""
    place, (reach, ambient, strength) = scene.lights[:3], scene.lights[3:]
    ends = (p + n * SHADOW_OFFSET for p, n in zip(point, normal, strict=True))
    beam = Rays(tuple(place), tuple(end - lamp + TINY for end, lamp in zip(ends, place, strict=True)))
    square = beam.to[0].square() + beam.to[1].square() + beam.to[2].square()
    facing = -(normal[0] * beam.to[0] + normal[1] * beam.to[1] + normal[2] * beam.to[2])
    direct = strength * facing.clamp_(min=0) / square.sqrt() / (1 + square / (reach * reach))
    direct = direct.masked_fill_(is_occluded(beam, scene), 0.0)
    everywhere = ambient * (1 - 0.25 * normal[1])
    total: Tensor = everywhere + direct
    return total


def add_sky(
    scene: PackedScenes, rays: Rays, rendering: Rendering, hit: Tensor, face: Tensor, length: Tensor
) -> Rendering:
    """Add the sky, where a ray hits nothing but the end of the ground, and haze."""
    zenith, horizon, thin = scene.skies[0:3], scene.skies[3:6], scene.skies[6]
    sky = (hit == 0) & (face != 2) & (thin > 0)
    high = (-rays.to[1] / length).clamp_(0, 1).sqrt()
    hazy = (rendering.depth * length * thin).square()
    hazy = hazy / (1 + hazy)
    colour = rendering.colour + (horizon - rendering.colour) * hazy
    colour = torch.where(sky, horizon + (zenith - horizon) * high, colour)
    return Rendering(colour, rendering.depth.masked_fill(sky, 0.0))
