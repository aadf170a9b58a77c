"""Two overlapping images, one at the top left and one at the bottom right: the classes of both.

The canvas of 36x36 pixels shows the brighter of the two images at each pixel, as in the literature on multi-task
learning, and is averaged to 18x18. ``left`` is the base and ``right`` the auxiliary term, both cross-entropies, and the
metric is the mean of their accuracies. Neither is more important, so the held-out loss is the mean of both as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from benchmarks.arena.data import Pool, generator, pool, split
from benchmarks.arena.task import Net, Split, Task, Tensors
from benchmarks.arena.tasks._nets import Parts, accuracy, cross_entropy, mlp

if TYPE_CHECKING:
    from collections.abc import Callable

TERMS = ("left", "right")
APART = 8  # pixels from one image to the other, each way
SIDE = (28 + APART) // 2
SIZES = {"train": 4_000, "validation": 1_000, "test": 4_000}
BATCH = 256


def load(name: str, images: str, seed: int) -> Tensors:
    """The data of one of these tasks. Every image of a part is once at the left and once at the right."""
    everything, rng = pool(images), generator(name, seed)
    data: Tensors = {}
    for part, left in split(everything, rng, 0, **SIZES).items():
        right = left[torch.randperm(len(left), generator=rng)]
        data[part] = overlap(everything, left, right)
        data[f"{part}_y"] = torch.stack([everything.labels[left], everything.labels[right]], 1)
        data[f"source/{part}"] = left
    return data


def overlap(everything: Pool, left: Tensor, right: Tensor) -> Tensor:
    """Pairs of images as flat canvases."""
    upper, lower = (0, APART, 0, APART), (APART, 0, APART, 0)
    canvas = torch.maximum(F.pad(everything.images[left], upper), F.pad(everything.images[right], lower))
    return F.avg_pool2d(canvas, 2).flatten(1)


def model() -> nn.Module:
    return Parts(trunk=mlp(SIDE**2, 128, 64, last=True), left=nn.Linear(64, 10), right=nn.Linear(64, 10))


def draw(rng: Generator) -> Tensors:
    return {
        "batch": torch.randint(SIZES["train"], (BATCH,), generator=rng),
        "held": torch.randint(SIZES["validation"], (BATCH,), generator=rng),
    }


def losses(net: Net, data: Tensors, draw: Tensors) -> Tensor:
    return _both(net, data["train"][draw["batch"]], data["train_y"][draw["batch"]], cross_entropy)


def held_out(net: Net, data: Tensors, draw: Tensors) -> Tensor:
    return _both(net, data["validation"][draw["held"]], data["validation_y"][draw["held"]], cross_entropy).mean()


def score(net: Net, data: Tensors, split: Split) -> Tensor:
    return _both(net, data[split], data[f"{split}_y"], accuracy).mean()


def _both(net: Net, images: Tensor, labels: Tensor, measure: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    features = net(images, "trunk")
    return torch.stack([measure(net(features, term), labels[:, i]) for i, term in enumerate(TERMS)])


def pairs(name: str, images: str, lr: float) -> Task:
    """The task on a data set."""
    return Task(
        name=name,
        terms=TERMS,
        metric="mean accuracy, %",
        higher=True,
        steps=500,
        lr=lr,
        shared=("trunk.",),
        last=("trunk.2.",),
        data=lambda seed: load(name, images, seed),
        model=model,
        draw=draw,
        losses=losses,
        held_out=held_out,
        score=score,
    )
