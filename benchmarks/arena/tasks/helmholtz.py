r"""Helmholtz' equation in the square by a physics-informed network: residual, boundary.

.. math:: u_{xx} + u_{yy} + u = q, \quad u = 0 \text{ on the boundary of } [-1, 1]^2

with q such that :math:`u = \sin \pi x \sin 4 \pi y` is the solution. Known to be badly balanced (Wang, Teng and
Perdikaris 2021): the residual is hundreds of times as large as u, and equal weights leave the boundary to itself. The
boundary is the base. The held-out loss is the mean squared error against the solution at validation points, a labelled
stand-in of the metric: the choice of the best grid point uses the same points.
"""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor, nn

from benchmarks.arena.data import generator
from benchmarks.arena.task import Net, Task, Tensors
from benchmarks.arena.tasks._pde import HELD, Field, draw_line, draw_square, held_out_error, relative_error

WAVES = (1, 4)  # half waves in x and y
INSIDE, EDGE = (610, 377), 32  # points in a batch: two neighbouring Fibonacci numbers; on each side
VALIDATION, TEST = 2_000, 5_000


def solution(points: Tensor) -> Tensor:
    a, b = WAVES
    return torch.sin(a * math.pi * points[:, 0]) * torch.sin(b * math.pi * points[:, 1])


def source(points: Tensor) -> Tensor:
    """q, the right side of the equation."""
    return (1 - math.pi**2 * sum(n * n for n in WAVES)) * solution(points)


def data(seed: int) -> Tensors:
    rng = generator("helmholtz", seed)
    points = (2 * torch.rand(VALIDATION + TEST, 2, generator=rng) - 1).tensor_split([VALIDATION])
    named = dict(zip(("validation", "test"), points, strict=True))
    return named | {f"{part}_u": solution(where) for part, where in named.items()}


def model() -> nn.Module:
    return Field(width=32, depth=4, factors=(1, 1))


def draw(rng: Generator) -> Tensors:
    along = 2 * draw_line(rng, EDGE) - 1
    end = torch.ones_like(along)
    sides = [torch.stack(side, 1) for e in (-end, end) for side in ((along, e), (e, along))]
    return {
        "inside": 2 * draw_square(rng, *INSIDE) - 1,
        "boundary": torch.cat(sides),
        "held": torch.randint(VALIDATION, (HELD,), generator=rng),
    }


def losses(net: Net, data: Tensors, draw: Tensors) -> Tensor:
    inside = draw["inside"]
    u, _, _, operator = net(inside, "jet").unbind(-1)
    return torch.stack([(operator + u - source(inside)).square().mean(), net(draw["boundary"]).square().mean()])


TASK = Task(
    name="helmholtz",
    terms=("residual", "boundary"),
    base="boundary",
    metric="relative L2 error, %",
    higher=False,
    steps=3000,
    # Validation at 3e-4, 1e-3, 3e-3, 1e-2: 911, 107, 40, 36; with 100 times the boundary at 1e-2: 2.5.
    lr=1e-2,
    betas=(0.95, 0.95),  # as burgers
    shared=("layers.",),
    last=("layers.4.",),
    data=data,
    model=model,
    draw=draw,
    losses=losses,
    held_out=held_out_error,
    score=relative_error,
)
