"""Directions as features: real spherical harmonics, as polynomials of the direction's coordinates."""

from __future__ import annotations

import math

import torch
from torch import Tensor

DEGREE = 8


def harmonics(directions: Tensor, degree: int = DEGREE) -> Tensor:
    """All real spherical harmonics up to a degree, of unit directions (..., 3): (..., (degree + 1)²).

    Harmonic (n, m) stands at n(n + 1) + m, and has the sign (-1)^m, so that degree 1 is proportional to (-y, z, -x).

    >>> harmonics(torch.tensor([0.0, 0.0, 1.0]), 1)
    tensor([0.2821, -0.0000, 0.4886, -0.0000])
    """
    x, y, z = directions.unbind(-1)
    found: dict[tuple[int, int], Tensor] = {}
    cosine, sine = torch.ones_like(x), torch.zeros_like(x)  # of m times the azimuth, times sin(polar)^m
    diagonal = 1.0
    for m in range(degree + 1):
        before, legendre = torch.zeros_like(z), torch.full_like(z, diagonal)
        for n in range(m, degree + 1):
            if n > m:
                before, legendre = legendre, (z * (2 * n - 1) * legendre - (n + m - 1) * before) / (n - m)
            size = _size(n, m) * (-1) ** m
            found[n, m] = size * legendre * cosine
            if m:
                found[n, -m] = size * legendre * sine
        cosine, sine = x * cosine - y * sine, x * sine + y * cosine
        diagonal *= 2 * m + 1
    return torch.stack([found[n, m] for n in range(degree + 1) for m in range(-n, n + 1)], dim=-1)


def _size(n: int, m: int) -> float:
    """What makes the squares integrate to 1 over the sphere."""
    whole = (2 * n + 1) / (4 * math.pi) * math.factorial(n - m) / math.factorial(n + m)
    return math.sqrt(whole * (2 if m else 1))
