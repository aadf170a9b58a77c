"""Views of flat images, ``(n, pixels)``, as functions of what was drawn before: shifts, noise, rotations."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor
from torch.nn import functional as F


def draw_moves(count: int, reach: int, rng: Generator) -> Tensor:
    """Numbers of shifts by up to ``reach`` pixels each way, never by nothing."""
    every = (2 * reach + 1) ** 2
    move = torch.randint(every - 1, (count,), generator=rng)
    return move + (move >= every // 2)


def shift(images: Tensor, move: Tensor, reach: int) -> Tensor:
    """Each image moved by its own whole number of pixels; zeros come in at the border."""
    side, width = math.isqrt(images.shape[-1]), 2 * reach + 1
    padded = F.pad(images.unflatten(-1, (side, side)), (reach,) * 4).flatten(-2)
    steps = torch.arange(side, device=images.device)
    rows = (2 * reach - move // width)[:, None] + steps
    columns = (2 * reach - move % width)[:, None] + steps
    where = rows[:, :, None] * (side + 2 * reach) + columns[:, None, :]
    return padded.gather(1, where.flatten(1))


def rotate(images: Tensor, turns: Tensor, table: Tensor) -> Tensor:
    """Each image turned by its own number of right angles; the table is that of :func:`rotations`."""
    return images.gather(1, table[turns])


def rotations(side: int) -> Tensor:
    """Where each pixel comes from, for no turn to three."""
    places = torch.arange(side * side).reshape(side, side)
    return torch.stack([places.rot90(turns).flatten() for turns in range(4)])


def fixed_view(images: Tensor, reach: int, noise: float, rng: Generator) -> Tensor:
    """Images for validation and test: each shifted, never by nothing, and with noise."""
    moved = shift(images, draw_moves(len(images), reach, rng), reach)
    return moved + noise * torch.randn(moved.shape, generator=rng)
