"""Real spherical harmonics of directions, as polynomials of their coordinates.

Few tensor operations suffice, whatever the degree: each polynomial of z is the product of its factors, and each of x
and y is a sine of a multiple of the azimuth.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

DEGREE = 8


def harmonics(directions: Tensor, table: Table) -> Tensor:
    """All real spherical harmonics up to the table's degree, of unit directions (..., 3): (..., (degree + 1)²).

    Harmonic (n, m) stands at n(n + 1) + m, and has the sign (-1)^m, so that degree 1 is proportional to (-y, z, -x).
    Not differentiable at the poles, where the azimuth has no gradient.

    >>> harmonics(torch.tensor([0.0, 0.0, 1.0]), harmonics_table(1))
    tensor([0.2821, -0.0000, 0.4886, -0.0000])
    """
    x, y, z = directions.unsqueeze(-2).unbind(-1)
    factors = torch.addcmul(table.shifts, table.slopes, z.square()[..., None])
    while factors.shape[-2] > 1:
        first, second = factors.chunk(2, dim=-2)
        factors = first * second
    by_height = factors[..., 0, :] * z**table.odd
    around = torch.hypot(x, y) ** table.orders * torch.sin(torch.addcmul(table.phases, torch.atan2(y, x), table.orders))
    return by_height.index_select(-1, table.heights) * around.index_select(-1, table.angles)


class Harmonics(nn.Module):
    """The function as a module, so that torch.compile can fuse its passes over memory."""

    def forward(self, directions: Tensor, table: Table, dtype: torch.dtype) -> Tensor:
        return harmonics(directions, table).to(dtype)


class Table(NamedTuple):
    """The numbers of all pairs of degree n and order m, 0 to n, and of all orders m, -degree to degree.

    :param slopes: Of factors that are linear in z², (factors, pairs), as are their ``shifts``.
    :param odd: Which pairs have z as a factor, 0 or 1.
    :param orders: The absolute value of the order: the power of sin(polar) and the multiple of the azimuth.
    :param phases: What turns a sine into a cosine.
    :param heights: For each harmonic its pair.
    :param angles: For each harmonic its order.
    """

    slopes: Tensor
    shifts: Tensor
    odd: Tensor
    orders: Tensor
    phases: Tensor
    heights: Tensor
    angles: Tensor


@functools.cache
def harmonics_table(
    degree: int = DEGREE, device: torch.device | None = None, dtype: torch.dtype = torch.float32
) -> Table:
    """The coefficients of the harmonics up to a degree."""
    pairs = [(n, m) for n in range(degree + 1) for m in range(n + 1)]
    every = [(n, m) for n in range(degree + 1) for m in range(-n, n + 1)]
    orders = range(-degree, degree + 1)
    rows = PAIRS if degree == DEGREE else [_factors(n, m, degree) for n, m in pairs]
    values = [
        [[slope for slope, _ in row] for row in zip(*rows, strict=True)],
        [[shift for _, shift in row] for row in zip(*rows, strict=True)],
        [(n - m) % 2 for n, m in pairs],
        [abs(m) for m in orders],
        [math.pi / 2 if m >= 0 else 0.0 for m in orders],
    ]
    places = [[pairs.index((n, abs(m))) for n, m in every], [m + degree for _, m in every]]
    return Table(
        *(torch.tensor(row, device=device, dtype=dtype) for row in values),
        *(torch.tensor(row, device=device) for row in places),
    )


def _factors(n: int, m: int, degree: int) -> list[tuple[float, float]]:
    """Slopes and shifts of the factors; as many for every pair, a power of 2, so the last ones are 1."""
    leading = math.factorial(2 * n) / (2**n * math.factorial(n) * math.factorial(n - m))
    size = leading * _normalisation(n, m) * (-1) ** m
    count = 1 << max(0, degree // 2 - 1).bit_length()
    (slope, shift), *others = ([(1.0, -(zero**2)) for zero in _zeros(n, m)] + [(0.0, 1.0)] * count)[:count]
    return [(size * slope, size * shift), *others]


def _zeros(n: int, m: int) -> list[float]:
    """The zeros above 0 of the m-th derivative of the n-th Legendre polynomial, by bisection.

    Between two neighbouring zeros of degree n, and beyond the last, lies one of degree n + 1.
    """
    if n - m < 2:
        return []
    inner = _zeros(n - 1, m)
    ends = [*([] if (n - m) % 2 else [0.0]), *inner, 1.0]
    return [_zero(n, m, low, high) for low, high in itertools.pairwise(ends)]


def _zero(n: int, m: int, low: float, high: float) -> float:
    rises = _legendre(n, m, high) > 0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if (_legendre(n, m, middle) > 0) == rises else (middle, high)
    return (low + high) / 2


def _legendre(n: int, m: int, z: float) -> float:
    """The m-th derivative of the n-th Legendre polynomial, up to a factor."""
    before, now = 0.0, 1.0
    for k in range(m + 1, n + 1):
        before, now = now, (z * (2 * k - 1) * now - (k + m - 1) * before) / (k - m)
    return now


def _normalisation(n: int, m: int) -> float:
    """The factor that makes the squares integrate to 1 over the sphere."""
    whole = (2 * n + 1) / (4 * math.pi) * math.factorial(n - m) / math.factorial(n + m)
    return math.sqrt(whole * (2 if m else 1))


PAIRS = [_factors(n, m, DEGREE) for n in range(DEGREE + 1) for m in range(n + 1)]
