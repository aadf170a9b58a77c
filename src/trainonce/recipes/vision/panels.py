"""Pictures in one style: the sizes of tiles and margins, an image as a tile, and writing a picture in one move."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

if TYPE_CHECKING:
    from pathlib import Path

TILE, GAP, EDGE, HEAD = 216, 8, 10, 26  # pixels: a tile's width; between tiles; around them; the titles' height
DPI, SMALL = 100, 9.0  # pixels per inch; points
LIMIT = 400_000  # bytes


def write_picture(content: bytes, path: Path) -> None:
    """Write a picture in one move: a kill or a full disk leaves the old one, or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.part{os.getpid()}")
    try:
        beside.write_bytes(content)
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


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
