r"""Heat that spreads at an unknown rate, from 60 noisy readings: data, residual, smoothness.

.. math:: u_t = a \, u_{xx}, \quad -1 < x < 1, \; 0 < t < 1

A network gives the temperature u, and the diffusivity a is one more parameter, trained with it: it starts at 0.2, and
the true one lies between 0.02 and 0.06. Three terms:

- ``data``, the base: the squared error at the readings, whose noise is a third of the temperatures' deviation;
- ``residual``: of the equation, at points drawn anew in each step. Nothing else reaches a;
- ``smoothness``: the mean square of u's slope in time, which only regularises.

No term knows the temperatures at the start or at the ends. The metric is the error of u without noise. The held-out
loss is the mean squared error against it at validation points, a labelled stand-in of the metric: the choice of the
best grid point uses the same points.
"""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor, nn

from benchmarks.arena.data import generator
from benchmarks.arena.task import Net, Task, Tensors
from benchmarks.arena.tasks._pde import HELD, Field, draw_square, held_out_error, relative_error

MODES = 4
SLOWEST, FASTEST, GUESS = 0.02, 0.06, 0.2  # diffusivities: between which the true one is, and where the model starts
READINGS, NOISE = 60, 0.3  # standard deviation, in that of the temperatures
INSIDE = (377, 233)  # points in a batch: two neighbouring Fibonacci numbers
VALIDATION, TEST = 2_000, 5_000


def solution(points: Tensor, diffusivity: Tensor, amplitudes: Tensor) -> Tensor:
    """Cosines in a rod whose ends are insulated, each of which fades at a rate of its own. Points are (t, x)."""
    t, x = points.T[:, :, None]
    waves = torch.arange(1, MODES + 1) * math.pi / 2
    return (amplitudes * torch.exp(-diffusivity * waves**2 * t) * torch.cos(waves * (x + 1))).sum(1)


def data(seed: int) -> Tensors:
    rng = generator("inverse_heat", seed)
    diffusivity = SLOWEST + (FASTEST - SLOWEST) * torch.rand((), generator=rng)
    amplitudes = torch.randn(MODES, generator=rng)
    made: Tensors = {}
    for part, count in {"train": READINGS, "validation": VALIDATION, "test": TEST}.items():
        made[part] = torch.rand(count, 2, generator=rng) * torch.tensor([1.0, 2.0]) - torch.tensor([0.0, 1.0])
        made[f"{part}_u"] = solution(made[part], diffusivity, amplitudes)
    made["train_u"] += NOISE * made["test_u"].std() * torch.randn(READINGS, generator=rng)
    return made


class Model(nn.Module):
    """The temperature, and the logarithm of the diffusivity."""

    def __init__(self) -> None:
        super().__init__()
        self.field = Field(width=32, depth=3, factors=(0, 1))
        self.log_diffusivity = nn.Parameter(torch.tensor([math.log(GUESS)]))

    def forward(self, points: Tensor, what: str = "u") -> Tensor:
        """u, or with ``what="flow"`` the columns residual and slope in time."""
        t, x = points.unbind(1)
        centred = torch.stack([2 * t - 1, x], 1)
        if what != "flow":
            temperature: Tensor = self.field(centred)
            return temperature
        jet = self.field.jet(centred)
        in_time = 2 * jet.first  # in time as it was before it was centred
        return torch.stack([in_time - self.log_diffusivity.exp() * jet.operator, in_time], -1)


def model() -> nn.Module:
    return Model()


def draw(rng: Generator) -> Tensors:
    square = draw_square(rng, *INSIDE)
    return {
        "inside": torch.stack([square[:, 0], 2 * square[:, 1] - 1], 1),
        "held": torch.randint(VALIDATION, (HELD,), generator=rng),
    }


def losses(net: Net, data: Tensors, draw: Tensors) -> Tensor:
    residual, in_time = net(draw["inside"], "flow").unbind(-1)
    wrong = net(data["train"]) - data["train_u"]
    return torch.stack([part.square().mean() for part in (wrong, residual, in_time)])


TASK = Task(
    name="inverse_heat",
    terms=("data", "residual", "smoothness"),
    metric="relative L2 error, %",
    higher=False,
    steps=1500,
    # Validation at 3e-4, 1e-3, 3e-3, 1e-2: 43.1, 25.5, 16.3, 18.7; with the weights 1 : 1 : 0.01 9.7, with the base
    # alone 35.1.
    lr=3e-3,
    # The field, but not its last bias, which no derivative reaches, and not the diffusivity.
    shared=("field.layers.0.", "field.layers.1.", "field.layers.2.", "field.layers.3.weight"),
    last=("field.layers.3.weight",),
    data=data,
    model=model,
    draw=draw,
    losses=losses,
    held_out=held_out_error,
    score=relative_error,
)
