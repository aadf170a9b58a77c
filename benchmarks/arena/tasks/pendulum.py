"""A pendulum's swing from 16 noisy readings, and a physics that leaves friction out: data, equation, energy.

A network gives the angle at a time from 0 to 10. Three terms:

- ``data``, the base: the squared error at the readings;
- ``equation``: the squared residual of the pendulum's equation without friction, at times drawn anew in each step;
- ``energy``: the variance of the energy over those times, which is constant without friction.

The real pendulum has a little friction. So both terms help between the readings and are a little wrong; and a pendulum
at rest satisfies them as well. The metric is the error against the true swing between the readings. The held-out loss
is the mean squared error against it at validation times, a labelled stand-in of the metric: the choice of the best
grid point uses the same times.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Generator, Tensor, nn

from benchmarks.arena.data import generator
from benchmarks.arena.task import Net, Task, Tensors
from benchmarks.arena.tasks._pde import draw_line, held_out_error, relative_error

LENGTH, STEPS = 10.0, 4_000  # of the swing, in units of 1 / sqrt(g / l), and of its solver
FRICTION, NOISE = 0.05, 0.15  # per unit of time; standard deviation, in radians
READINGS, INSIDE, HELD = 16, 128, 128
VALIDATION, TEST = 500, 2_000


def swing(angle: Tensor, speed: Tensor) -> Tensor:
    """The angle at equal steps from the start to the end, by the classical method of Runge and Kutta."""

    def slope(state: Tensor) -> Tensor:
        return torch.stack([state[1], -torch.sin(state[0]) - FRICTION * state[1]])

    state, step = torch.stack([angle, speed]).double(), LENGTH / STEPS
    angles = [state[0]]
    for _ in range(STEPS):
        a = slope(state)
        b = slope(state + step / 2 * a)
        c = slope(state + step / 2 * b)
        state = state + step / 6 * (a + 2 * b + 2 * c + slope(state + step * c))
        angles.append(state[0])
    return torch.stack(angles)


def data(seed: int) -> Tensors:
    """Times are from 0 to 1. The pendulum starts elsewhere with every seed, always in a wide swing."""
    rng = generator("pendulum", seed)
    angles = swing(1.5 + torch.rand((), generator=rng), torch.rand((), generator=rng) - 0.5)
    readings = ((torch.arange(READINGS) + torch.rand(READINGS, generator=rng)) / READINGS * STEPS).long()
    others = torch.randperm(STEPS + 1, generator=rng)
    others = others[~torch.isin(others, readings)][: VALIDATION + TEST]
    made: Tensors = {}
    for part, where in zip(("train", "validation", "test"), (readings, *others.split([VALIDATION, TEST])), strict=True):
        made[part], made[f"{part}_u"] = (where / STEPS)[:, None], angles[where].float()
    made["train_u"] += NOISE * torch.randn(READINGS, generator=rng)
    return made


class Model(nn.Module):
    """A network with tanh from the time, 0 to 1, to the angle; it carries two derivatives forward when asked."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(map(nn.Linear, (1, 32, 32), (32, 32, 1)))

    def forward(self, times: Tensor, what: str = "u") -> Tensor:
        """The angle, or with ``what="motion"`` the columns angle, speed and acceleration."""
        first, middle, last = cast("list[nn.Linear]", list(self.layers))
        # The layer sees times from -5 to 5, so that a swing of two or three periods is within its reach.
        motion = torch.stack([first(LENGTH * (times - 0.5)), first.weight[:, 0].expand(len(times), -1)])
        h, speed, acceleration = motion[0], motion[1], torch.zeros_like(motion[0])
        for layer in (middle, last):
            value = h.tanh()
            rise = 1 - value * value
            acceleration = rise * (acceleration - 2 * value * speed * speed)
            h, speed = layer(value), (rise * speed) @ layer.weight.T
            acceleration = acceleration @ layer.weight.T
        return torch.cat([h, speed, acceleration], -1) if what == "motion" else h[:, 0]


def model() -> nn.Module:
    return Model()


def draw(rng: Generator) -> Tensors:
    return {
        "inside": draw_line(rng, INSIDE)[:, None],
        "held": torch.randint(VALIDATION, (HELD,), generator=rng),
    }


def losses(net: Net, data: Tensors, draw: Tensors) -> Tensor:
    angle, speed, acceleration = net(draw["inside"], "motion").unbind(-1)
    energy = speed.square() / 2 - torch.cos(angle)
    return torch.stack(
        [
            (net(data["train"]) - data["train_u"]).square().mean(),
            (acceleration + torch.sin(angle)).square().mean(),
            (energy - energy.mean()).square().mean(),
        ]
    )


TASK = Task(
    name="pendulum",
    terms=("data", "equation", "energy"),
    metric="relative L2 error, %",
    higher=False,
    steps=2000,
    # Validation at 3e-4, 1e-3, 3e-3, 1e-2: 6.4, 5.7, 6.5, 6.5; with the weights 1 : 1 : 0.1 4.1, with the base
    # alone 9.9.
    lr=1e-3,
    shared=("layers.",),
    last=("layers.2.",),
    data=data,
    model=model,
    draw=draw,
    losses=losses,
    held_out=held_out_error,
    score=relative_error,
)
