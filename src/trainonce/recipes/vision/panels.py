"""Pictures in one style: the sizes of tiles and margins, and an image as a tile."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

TILE, GAP, EDGE, HEAD = 216, 8, 10, 26  # pixels: a tile's width; between tiles; around them; the titles' height
DPI, SMALL = 100, 9.0  # pixels per inch; points
LIMIT = 400_000  # bytes


def fit_tile(image: Tensor, smooth: bool) -> Tensor:
    """The image about as wide as a tile: smaller, or each pixel repeated; colours that mean a class are not mixed."""
    image = image.cpu().float()[None]
    height, width = image.shape[-2:]
    if width <= TILE:
        resized = F.interpolate(image, scale_factor=TILE // width, mode="nearest")
    else:
        size = (max(1, round(height * TILE / width)), TILE)
        how: dict[str, Any] = {"mode": "bilinear", "antialias": True} if smooth else {"mode": "nearest-exact"}
        resized = F.interpolate(image, size, **how)
    return resized[0].round().clamp(0, 255).to(torch.uint8)
