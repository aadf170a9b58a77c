"""The camera module: from the encoder's maps and tokens to focal lengths and centre."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trainonce.recipes.depth import geometry
from trainonce.recipes.depth.model.attention import MLP, Block, Norm

if TYPE_CHECKING:
    from collections.abc import Sequence


class CameraModule(nn.Module):
    """Four tokens ask all cells of all maps, then each other, and each says one number of the camera."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.mix = MLP(dim, 2)
        self.ask = nn.Sequential(Norm(dim), nn.Linear(dim, dim // 2), nn.GELU(), nn.Linear(dim // 2, dim))
        self.places = nn.Parameter(torch.randn(1, 4, dim))
        self.across = Block(dim, 1)
        self.among = nn.ModuleList(Block(dim, heads) for _ in range(2))
        self.say = MLP(dim, 2, out=1)

    def forward(self, cells: Tensor, tokens: Tensor, size: tuple[int, int]) -> Tensor:
        """The cameras, (batch, 3, 3), in pixels of an image of that size.

        :param cells: All cells of all maps with their places added, (batch, 4 * cells, dim).
        :param tokens: The image's tokens, (batch, 4, dim).
        """
        context = torch.cat([self.mix(cells), tokens], dim=1)
        x = self.across(self.ask(tokens), context, at=self.places)
        for block in self.among:
            x = block(x, at=self.places)
        with torch.autocast(x.device.type, enabled=False):
            return camera(self.say(x.float())[..., 0], size)


def camera(numbers: Tensor, size: tuple[int, int]) -> Tensor:
    """Cameras of four free numbers each: focal lengths relative to half the longer side, centre within the image."""
    height, width = size
    focal, centre = numbers.chunk(2, -1)
    fx, fy = (focal.exp() * (max(height, width) / 2)).unbind(-1)
    cx, cy = torch.sigmoid(centre).unbind(-1)
    return geometry.camera(fx, fy, cx * width, cy * height)


def resized_rays(rays: Tensor, sizes: Sequence[tuple[int, int]]) -> Tensor:
    """Rays (batch, 3, height, width) on other grids, one after the other, of length 1 again: (batch, cells, 3)."""
    rays = rays.float()
    found = [F.interpolate(rays, size, mode="bilinear", antialias=True).flatten(2) for size in sizes]
    return F.normalize(torch.cat(found, dim=2).transpose(1, 2), dim=-1)
