"""Three outputs of very different scale from one trunk; generated data.

``middle`` is the base, of scale 1; ``large`` is of scale 10 and ``small`` of scale 0.1. So their mean squared errors
start at 1, 100 and 0.01, and equal weights train the trunk for ``large`` alone. Each output is a smooth function of its
own of the same six inputs, with noise. A grid from 0.01 to 100 holds the weights that undo the scales.

The metric is the mean over the outputs of the root mean square error in per cent of the output's standard deviation
without noise. No output is more important than another, so the held-out loss is not that of the base alone but a
differentiable stand-in of the metric: the mean over the outputs of the squared error over the variance.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn

from benchmarks.arena.data import generator
from benchmarks.arena.task import Net, Split, Task, Tensors
from benchmarks.arena.tasks._nets import Parts, mlp

TERMS = ("middle", "large", "small")
SCALES = (1.0, 10.0, 0.1)
INPUTS, FEATURES = 6, 12  # of the generating functions
NOISE = 0.3  # standard deviation, in scales
SIZES = {"train": 400, "validation": 1_000, "test": 4_000}
BATCH = 128


def data(seed: int) -> Tensors:
    """Inputs and targets; those of validation and test are without noise. The functions differ from seed to seed."""
    rng = generator("regression", seed)
    # Sines of random directions, drawn per output: each needs features of its own. Normalised on many points.
    directions = torch.randn(3, INPUTS, FEATURES, generator=rng) * INPUTS**-0.5 * 1.5
    phases = 2 * torch.pi * torch.rand(3, 1, FEATURES, generator=rng)
    amplitudes = torch.randn(3, FEATURES, generator=rng)

    def values(inputs: Tensor) -> Tensor:
        return torch.einsum("onf,of->no", torch.sin(inputs @ directions + phases), amplitudes)

    many = values(torch.randn(10_000, INPUTS, generator=rng))
    scales = torch.tensor(SCALES)
    made: Tensors = {"scales": scales}
    for part, count in SIZES.items():
        made[part] = torch.randn(count, INPUTS, generator=rng)
        clean = (values(made[part]) - many.mean(0)) / many.std(0)
        noise = NOISE * torch.randn(count, 3, generator=rng) if part == "train" else 0
        made[f"{part}_y"] = scales * (clean + noise)
    return made


def model() -> nn.Module:
    return Parts(trunk=mlp(INPUTS, 64, 64, last=True), outputs=Heads())


class Heads(nn.Module):
    """One linear layer per output."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleList(nn.Linear(64, 1) for _ in SCALES)

    def forward(self, features: Tensor) -> Tensor:
        return torch.cat([head(features) for head in self.heads], -1)


def draw(rng: Generator) -> Tensors:
    return {
        "batch": torch.randint(SIZES["train"], (BATCH,), generator=rng),
        "held": torch.randint(SIZES["validation"], (BATCH,), generator=rng),
    }


def losses(net: Net, data: Tensors, draw: Tensors) -> Tensor:
    batch = draw["batch"]
    return (net(data["train"][batch], "trunk", "outputs") - data["train_y"][batch]).square().mean(0)


def held_out(net: Net, data: Tensors, draw: Tensors) -> Tensor:
    held = draw["held"]
    return _squared_errors(net, data, data["validation"][held], data["validation_y"][held]).mean()


def score(net: Net, data: Tensors, split: Split) -> Tensor:
    return 100 * _squared_errors(net, data, data[split], data[f"{split}_y"]).sqrt().mean()


def _squared_errors(net: Net, data: Tensors, inputs: Tensor, targets: Tensor) -> Tensor:
    """Of each output, in units of its scale."""
    errors = (net(inputs, "trunk", "outputs") - targets) / data["scales"]
    return errors.square().mean(0)


TASK = Task(
    name="regression",
    terms=TERMS,
    metric="normalised error, %",
    higher=False,
    steps=1000,
    # Validation at 3e-4, 1e-3, 3e-3, 1e-2: 76.2, 65.5, 58.7, 56.1.
    lr=1e-2,
    shared=("trunk.",),
    last=("trunk.2.",),
    data=data,
    model=model,
    draw=draw,
    losses=losses,
    held_out=held_out,
    score=score,
)
