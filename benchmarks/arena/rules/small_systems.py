"""Linear systems and quadratic programs of K + 1 unknowns, many at once, by operations that a CUDA graph can hold."""

from __future__ import annotations

import torch
from torch import Tensor


def solve(matrix: Tensor, right: Tensor) -> Tensor:
    """``matrix`` @ x = ``right`` for positive definite matrices ``(..., m, m)`` and vectors ``(..., m)``.

    Gauss-Jordan without pivoting, which such matrices do not need.
    """
    shape = torch.broadcast_shapes(matrix.shape[:-1], right.shape)
    rows = torch.cat((matrix.expand(*shape, matrix.shape[-1]), right.expand(shape).unsqueeze(-1)), dim=-1)
    for i in range(matrix.shape[-1]):
        pivot = rows[..., i : i + 1, :] / rows[..., i : i + 1, i : i + 1]
        rows = rows - rows[..., :, i : i + 1] * pivot
        rows = torch.cat((rows[..., :i, :], pivot, rows[..., i + 1 :, :]), dim=-2)
    return rows[..., -1]


def nearest_above(gram: Tensor, floor: Tensor) -> Tensor:
    """The v that minimises v' G v with v >= ``floor``, for positive definite G ``(..., m, m)``.

    Every choice of the entries that lie on their floor is tried; among those that respect all floors the smallest value
    is the minimum. With m terms these are 2^m small systems.
    """
    count = gram.shape[-1]
    place = torch.arange(count, device=gram.device)
    held = (torch.arange(2**count, device=gram.device).unsqueeze(-1) >> place) % 2 == 1
    free = ~held
    gram, floor = gram.unsqueeze(-3), floor.unsqueeze(-2)
    eye = torch.eye(count, dtype=gram.dtype, device=gram.device)
    matrix = torch.where(free.unsqueeze(-1) & free.unsqueeze(-2), gram, eye)
    on_floor = torch.where(held, floor, 0)
    pushed = (gram @ on_floor.unsqueeze(-1)).squeeze(-1)
    found = solve(matrix, torch.where(held, floor, -pushed))
    value = (found * (gram @ found.unsqueeze(-1)).squeeze(-1)).sum(-1)
    slack = 1e-9 * (1 + floor.abs().amax(-1, keepdim=True))
    value = torch.where((found >= floor - slack).all(-1), value, torch.inf)
    best = value.argmin(-1, keepdim=True).unsqueeze(-1)
    return found.gather(-2, best.expand(*best.shape[:-1], count)).squeeze(-2)
