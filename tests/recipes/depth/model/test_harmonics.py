"""Spherical harmonics against recurrences in plain Python."""

import math

import pytest
import torch
from torch.nn import functional as F

from trainonce.recipes.depth.model.harmonics import harmonics, harmonics_table


def test_harmonics_are_orthonormal():
    """Integrated exactly: Gauss-Legendre points in z, equal steps around, enough for products of degree 16."""
    z, weights = (torch.tensor(part, dtype=torch.double) for part in _legendre(9))
    turn = torch.arange(18, dtype=torch.double) * 2 * math.pi / 18
    around = (1 - z**2).sqrt()
    x, y = around[:, None] * turn.cos(), around[:, None] * turn.sin()
    directions = torch.stack([x, y, z[:, None].expand_as(x)], -1)
    every = harmonics(directions, harmonics_table(dtype=directions.dtype)).flatten(0, 1)
    area = (weights[:, None] * 2 * math.pi / 18).expand_as(x).flatten()
    torch.testing.assert_close(every.T @ (every * area[:, None]), torch.eye(81, dtype=torch.double), atol=1e-12, rtol=0)


def _legendre(count):
    """Points and weights by Newton's method."""
    points, weights = [], []
    for i in range(count):
        z = math.cos(math.pi * (i + 0.75) / (count + 0.5))
        for _ in range(50):
            before, now = 1.0, z
            for n in range(2, count + 1):
                before, now = now, ((2 * n - 1) * z * now - (n - 1) * before) / n
            slope = count * (z * now - before) / (z * z - 1)
            z -= now / slope
        points.append(z)
        weights.append(2 / ((1 - z * z) * slope**2))
    return points, weights


def test_the_first_harmonics_are_the_coordinates():
    d = F.normalize(torch.randn(5, 3, dtype=torch.double), dim=1)
    expected = torch.stack([torch.full((5,), 0.2820948), *(0.4886025 * s for s in (-d[:, 1], d[:, 2], -d[:, 0]))], 1)
    torch.testing.assert_close(harmonics(d, harmonics_table(1)), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("degree", [0, 1, 2, 5, 8])
def test_harmonics_are_what_recurrences_give(degree):
    """One by one in Python's floats, and nearly so in float32; the poles and the equator are among them."""
    some = torch.randn(40, 3, dtype=torch.double, generator=torch.Generator().manual_seed(0))
    d = F.normalize(torch.cat([some, torch.eye(3), -torch.eye(3)]), dim=1)
    expected = torch.tensor([_harmonics(*row, degree) for row in d.tolist()], dtype=torch.double)
    torch.testing.assert_close(harmonics(d, harmonics_table(degree, dtype=d.dtype)), expected, atol=1e-13, rtol=0)
    torch.testing.assert_close(harmonics(d.float(), harmonics_table(degree)), expected.float(), atol=5e-6, rtol=0)


def _harmonics(x, y, z, degree):
    found = {}
    for m in range(degree + 1):
        around = complex(x, y) ** m
        before, now = 0.0, math.prod(range(1, 2 * m, 2))
        for n in range(m, degree + 1):
            if n > m:
                before, now = now, (z * (2 * n - 1) * now - (n + m - 1) * before) / (n - m)
            size = (2 * n + 1) / (4 * math.pi) * math.factorial(n - m) / math.factorial(n + m) * (2 if m else 1)
            value = (-1) ** m * math.sqrt(size) * now
            found[n, -m], found[n, m] = value * around.imag, value * around.real
    return [found[n, m] for n in range(degree + 1) for m in range(-n, n + 1)]
