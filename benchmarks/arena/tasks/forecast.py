"""A chaotic series told ahead: the next value, the 4th, the 16th, and a smooth path between them; generated data.

The series is the first coordinate of Lorenz' system, with noise, in units of its standard deviation. From a window of
12 values a network gives the path of the next 16. Four terms:

- ``next``, the base: the squared error of the first value of the path;
- ``fourth`` and ``last``: those of the fourth and the last, which is hardly known and has by far the largest error;
- ``smoothness``: the mean of the squared second differences along the path, the only term that sees the values between.

The metric is the root mean square error of the first 8 values of the path, without noise, in per cent of the standard
deviation. It looks at values that no error term looks at. The held-out loss is the square of the same, on a batch.
"""

from __future__ import annotations

import functools

import torch
from torch import Generator, Tensor, nn

from benchmarks.arena.data import generator
from benchmarks.arena.task import Net, Split, Task, Tensors
from benchmarks.arena.tasks._nets import Parts, mlp

TERMS = ("next", "fourth", "last", "smoothness")
WINDOW, PATH, JUDGED = 12, 16, 8  # values: seen, told, and of those told the first that the metric looks at
STEP, PARTS = 0.05, 10  # time from one value to the next, and how many steps of the solver it is
NOISE = 0.1  # standard deviation, in that of the series
SIZES = {"train": 500, "validation": 1_000, "test": 4_000}  # windows, each from a run of its own
BATCH = 128


def slope(state: Tensor) -> Tensor:
    """Of Lorenz' system, with the usual constants."""
    x, y, z = state.unbind(-1)
    return torch.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z], -1)


def advance(state: Tensor, time: float) -> Tensor:
    """One step of the classical method of Runge and Kutta."""
    a = slope(state)
    b = slope(state + time / 2 * a)
    c = slope(state + time / 2 * b)
    return state + time / 6 * (a + 2 * b + 2 * c + slope(state + time * c))


@functools.cache
def scale() -> Tensor:
    """The mean and the standard deviation of the first coordinate, which all seeds use."""
    series = runs(4_000, generator("forecast/scale", 0))
    return torch.stack([series.mean(), series.std()])


def runs(count: int, rng: Generator) -> Tensor:
    """The first coordinate of runs of the length of a window and a path, each from a point near the attractor."""
    state, series = torch.randn(count, 3, generator=rng, dtype=torch.float64) * 8 + torch.tensor([0.0, 0.0, 25.0]), []
    for value in range(100 + WINDOW + PATH):  # the first 100 are left out, until the attractor is reached
        for _ in range(PARTS):
            state = advance(state, STEP / PARTS)
        series += [state[:, 0]] if value >= 100 else []
    return torch.stack(series, 1)


def data(seed: int) -> Tensors:
    """Windows have noise; paths have it in training alone."""
    rng, (mean, deviation) = generator("forecast", seed), scale()
    series = ((runs(sum(SIZES.values()), rng) - mean) / deviation).float()
    noisy = series + NOISE * torch.randn(series.shape, generator=rng)
    made: Tensors = {}
    for part, clean, seen in zip(SIZES, series.split([*SIZES.values()]), noisy.split([*SIZES.values()]), strict=True):
        made[part], made[f"{part}_y"] = seen[:, :WINDOW], (seen if part == "train" else clean)[:, WINDOW:]
    return made


def model() -> nn.Module:
    return Parts(trunk=mlp(WINDOW, 64, 64, last=True), path=nn.Linear(64, PATH))


def draw(rng: Generator) -> Tensors:
    return {
        "batch": torch.randint(SIZES["train"], (BATCH,), generator=rng),
        "held": torch.randint(SIZES["validation"], (BATCH,), generator=rng),
    }


def losses(net: Net, data: Tensors, draw: Tensors) -> Tensor:
    batch = draw["batch"]
    path = net(data["train"][batch], "trunk", "path")
    errors = (path - data["train_y"][batch]).square().mean(0)
    bends = path[:, 2:] - 2 * path[:, 1:-1] + path[:, :-2]
    return torch.stack([errors[0], errors[3], errors[15], bends.square().mean()])


def held_out(net: Net, data: Tensors, draw: Tensors) -> Tensor:
    held = draw["held"]
    return squared_error(net, data["validation"][held], data["validation_y"][held])


def score(net: Net, data: Tensors, split: Split) -> Tensor:
    return 100 * squared_error(net, data[split], data[f"{split}_y"]).sqrt()


def squared_error(net: Net, windows: Tensor, paths: Tensor) -> Tensor:
    return (net(windows, "trunk", "path") - paths)[:, :JUDGED].square().mean()


TASK = Task(
    name="forecast",
    terms=TERMS,
    metric="error, % of the standard deviation",
    higher=False,
    steps=1000,
    # Validation at 3e-4, 1e-3, 3e-3, 1e-2: 61.2, 49.6, 46.3, 45.5; with the weights 1 : 5 : 9 : 1 44.4,
    # with the base alone 99.9.
    lr=1e-2,
    shared=("trunk.", "path."),
    last=("path.",),
    data=data,
    model=model,
    draw=draw,
    losses=losses,
    held_out=held_out,
    score=score,
)
