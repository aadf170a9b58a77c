"""The whole network: encoder, camera module, depth module."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from trainonce.recipes.depth.geometry import rays as rays_of
from trainonce.recipes.depth.model.attention import Kind, Norm, positional_encoding
from trainonce.recipes.depth.model.camera import CameraModule
from trainonce.recipes.depth.model.convolutional import CONVOLUTIONAL, Convolutional
from trainonce.recipes.depth.model.decoder import DepthModule
from trainonce.recipes.depth.model.vit import SHAPES, ViT
from trainonce.text import did_you_mean, quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainonce.recipes.depth.flat_parameters import FlatParameters

ENCODERS = (*SHAPES, *CONVOLUTIONAL)
#: The original's width, for which its initial weights (a standard deviation of 0.02) are right. In a narrower decoder
#: activations would vanish; its last layers, which predict depth and camera, start small all the same.
WIDTH = 512
LAST = ("camera_module.say.narrow", "depth_module.heads")
TYPICAL = 2.5  # metres: the first prediction of a narrower network


class Prediction(NamedTuple):
    """The output of the network for images (batch, 3, height, width).

    :param depth: Metres along the optical axis, (batch, height, width).
    :param camera: (batch, 3, 3).
    :param rays: Of the camera, (batch, 3, height, width).
    :param features: At the grid's size, before depth is decoded, (batch, dim, rows, columns).
    """

    depth: Tensor
    camera: Tensor
    rays: Tensor
    features: Tensor


class UniDepth(nn.Module):
    """Predicts metric depth and camera of single images.

    :param encoder: One of :data:`ENCODERS`.
    :param dim: The decoder's width; a multiple of 8 times the heads.
    :param depths: Attention blocks at the decoder's three scales.
    :param kind: Of the attention at the two larger scales.
    :param recompute: As in :class:`~trainonce.recipes.depth.model.vit.ViT`.
    :param pretrained: As in :class:`~trainonce.recipes.depth.model.convolutional.Convolutional`.
    """

    def __init__(
        self,
        encoder: str = "vit-l",
        dim: int = 512,
        heads: int = 8,
        depths: Sequence[int] = (3, 2, 1),
        *,
        kind: Kind = "full",
        recompute: bool = False,
        pretrained: bool = False,
    ) -> None:
        super().__init__()
        if encoder not in ENCODERS:
            known = quoted(ENCODERS)
            raise ValueError(f"encoder is one of {known}; got {encoder!r}.{did_you_mean(encoder, ENCODERS)}")
        self.kind = encoder
        self.flat: FlatParameters | None = None
        self.encoder: ViT | Convolutional
        convolves = encoder in CONVOLUTIONAL
        if convolves:
            self.encoder = Convolutional(encoder, pretrained=pretrained)
        else:
            self.encoder = ViT(SHAPES[encoder], recompute=recompute)
        self.patch = self.encoder.patch
        self.map_adapters, self.token_adapters = (
            nn.ModuleList(nn.Sequential(Norm(c), nn.Linear(c, dim), nn.GELU()) for c in self.encoder.channels)
            for _ in range(2)
        )
        self.levels = nn.Parameter(torch.randn(4, dim))
        self.level_places = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, dim), Norm(dim))
        self.camera_module = CameraModule(dim, heads)
        self.depth_module = DepthModule(dim, heads, depths, kind)
        for name, module in self.named_modules():
            if not name.startswith("encoder") and isinstance(module, (nn.Linear, nn.Conv2d)):
                nn.init.trunc_normal_(module.weight, std=0.02 if dim >= WIDTH else _init_std(name, module.weight))
                nn.init.zeros_(module.bias)  # type: ignore[arg-type]
        if dim < WIDTH:
            for head in self.depth_module.heads:
                nn.init.constant_(head.bias, math.log(TYPICAL))  # type: ignore[arg-type]

    def forward(self, images: Tensor) -> Prediction:
        """The prediction for normalised images whose sides are multiples of the patch."""
        size = (images.shape[-2], images.shape[-1])
        encoded = self.encoder(images)
        maps = torch.stack([a(m) for a, m in zip(self.map_adapters, encoded.maps, strict=True)], dim=1)
        tokens = [a(t.detach()) for a, t in zip(self.token_adapters, encoded.tokens, strict=True)]
        places = self._cell_encodings(encoded.grid, maps)
        camera = self.camera_module(maps.flatten(1, 2) + places, torch.stack(tokens, dim=1), size)
        with torch.autocast(images.device.type, enabled=False):
            rays = rays_of(camera, size)
        depth, features = self.depth_module(maps, places, rays.detach(), encoded.grid, size)
        return Prediction(depth, camera, rays, features)

    def _cell_encodings(self, grid: tuple[int, int], like: Tensor) -> Tensor:
        """The positional encoding of the cells of all maps, with the embedding of their level, (1, 4 * cells, dim)."""
        cells = positional_encoding(*grid, self.levels.shape[1], like.device)
        levels = self.level_places(self.levels)
        places: Tensor = (cells[None] + levels[:, None]).flatten(0, 1)[None].to(like.dtype)
        return places


def _init_std(name: str, weight: Tensor) -> float:
    """The standard deviation of the initial weights of a layer of a narrow decoder."""
    return (0.1 if name.startswith(LAST) else 1.0) / math.sqrt(weight[0].numel())
