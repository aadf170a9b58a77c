"""What the differential equations share: a network that carries its derivatives forward, points, and the metric."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple, cast

import torch
from torch import Generator, Tensor, nn

if TYPE_CHECKING:
    from benchmarks.arena.task import Net, Split, Tensors

HELD = 512  # validation points of a held-out batch


class Jet(NamedTuple):
    """u at some points, its derivatives in both coordinates, and the sum of the second ones with given factors."""

    u: Tensor
    first: Tensor
    second: Tensor
    operator: Tensor


class Field(nn.Module):
    """A network with tanh from two coordinates, each from -1 to 1, to u.

    :param factors: a and b of the operator D = a ∂²/∂p² + b ∂²/∂q².
    """

    def __init__(self, width: int, depth: int, factors: tuple[float, float]) -> None:
        super().__init__()
        sizes = [2, *[width] * depth, 1]
        self.factors = factors
        self.layers = nn.ModuleList(map(nn.Linear, sizes[:-1], sizes[1:]))
        for layer in self._linear():
            nn.init.xavier_normal_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, points: Tensor, what: str = "u") -> Tensor:
        """u, or with ``what="jet"`` the columns of a :class:`Jet`."""
        if what == "jet":
            return torch.stack(self.jet(points), -1)
        *hidden, last = self._linear()
        for layer in hidden:
            points = layer(points).tanh()
        u: Tensor = last(points)
        return u[:, 0]

    def jet(self, points: Tensor) -> Jet:
        """The derivatives go forward through the layers with the values: plain arithmetic, one backward pass.

        The chain rule reads D f(h) = f'(h) Dh + f''(h) (a h_p² + b h_q²), and tanh'' = -2 tanh tanh'.
        """
        a, b = self.factors
        initial, *others = self._linear()
        h = initial(points)
        first, second = (initial.weight[:, i].expand_as(h) for i in (0, 1))
        operator = torch.zeros_like(h)
        for layer in others:
            value = h.tanh()
            rise = 1 - value * value
            operator = rise * (operator - 2 * value * (a * first * first + b * second * second))
            streams = torch.stack([rise * first, rise * second, operator])
            h = layer(value)
            first, second, operator = (streams @ layer.weight.T).unbind()
        return Jet(h[:, 0], first[:, 0], second[:, 0], operator[:, 0])

    def _linear(self) -> list[nn.Linear]:
        return cast("list[nn.Linear]", list(self.layers))


# Points


@functools.cache
def lattice(count: int, turn: int) -> Tensor:
    """The Fibonacci lattice in the unit square, of two neighbouring Fibonacci numbers: it covers the square evenly."""
    i = torch.arange(count)
    return torch.stack([i / count, i * turn % count / count], 1)


def draw_square(rng: Generator, count: int, turn: int) -> Tensor:
    """The lattice at a random offset, so that every point of the unit square is as likely as any other."""
    return (lattice(count, turn) + torch.rand(2, generator=rng)) % 1


def draw_line(rng: Generator, count: int) -> Tensor:
    """Equal steps on the unit interval at a random offset."""
    return (torch.arange(count) / count + torch.rand(1, generator=rng)) % 1


# Metric


def held_out_error(net: Net, data: Tensors, draw: Tensors) -> Tensor:
    """The mean squared error against the solution at the validation points that were drawn as ``held``."""
    held = draw["held"]
    return (net(data["validation"][held]) - data["validation_u"][held]).square().mean()


def relative_error(net: Net, data: Tensors, split: Split) -> Tensor:
    """The distance from the solution in per cent of that solution, both as root mean squares."""
    solution = data[f"{split}_u"]
    return 100 * (net(data[split]) - solution).norm() / solution.norm()
