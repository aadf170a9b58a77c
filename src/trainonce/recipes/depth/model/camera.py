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
    """Four tokens attend to all cells of all maps, then to each other; each predicts one number of the camera."""

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

        :param cells: All cells of all maps with their positional encoding added, (batch, 4 * cells, dim).
        :param tokens: The image's tokens, (batch, 4, dim).
        """
        context = torch.cat([self.mix(cells), tokens], dim=1)
        x = self.across(self.ask(tokens), context, position=self.places)
        for block in self.among:
            x = block(x, position=self.places)
        with torch.autocast(x.device.type, enabled=False):
            return decode_camera(self.say(x.float())[..., 0], size)


def decode_camera(numbers: Tensor, size: tuple[int, int]) -> Tensor:
    """Cameras from four unbounded numbers each: log focal lengths by half the longer side, logits of the centre."""
    height, width = size
    focal, centre = numbers.chunk(2, -1)
    fx, fy = (focal.exp() * (max(height, width) / 2)).unbind(-1)
    cx, cy = torch.sigmoid(centre).unbind(-1)
    return geometry.camera_matrix(fx, fy, cx * width, cy * height)


def resize_rays(rays: Tensor, sizes: Sequence[tuple[int, int]]) -> Tensor:
    """Unit rays (batch, 3, height, width) resampled on other grids, concatenated: (batch, cells, 3)."""
    rays = rays.float()
    found = [F.interpolate(rays, size, mode="bilinear", antialias=True).flatten(2) for size in sizes]
    return F.normalize(torch.cat(found, dim=2).transpose(1, 2), dim=-1)
