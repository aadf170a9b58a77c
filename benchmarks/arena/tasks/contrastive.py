"""MNIST with 100 labels, tested on shifted noisy images: cross-entropy, contrastive loss.

- ``ce``, the base: cross-entropy on the labelled images, noisy but not shifted;
- ``contrastive``: of two shifted noisy views of each unlabelled image, each should find the other among all views of
  the batch, through a projection of its own (NT-Xent; Chen et al. 2020).

Data, splits and sizes are others than those of ``mnist``.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from benchmarks.arena.data import gather, generator, pool, split
from benchmarks.arena.task import Net, Task, Tensors
from benchmarks.arena.tasks._nets import Parts, class_accuracy, cross_entropy, held_out_cross_entropy, mlp
from benchmarks.arena.tasks._views import draw_moves, fixed_view, shift

SIDE, REACH, NOISE = 14, 1, 0.2  # pixels; largest shift in pixels; standard deviation, with pixels from 0 to 1
LABELLED, UNLABELLED, VALIDATION, TEST = 100, 2_000, 1_000, 4_000
TEMPERATURE = 0.5
BATCH = 128


def data(seed: int) -> Tensors:
    everything, rng = pool("mnist", SIDE), generator("contrastive", seed)
    counts = {"unlabelled": UNLABELLED, "validation": VALIDATION, "test": TEST}
    made = gather(everything, split(everything, rng, LABELLED, **counts))
    return made | {part: fixed_view(made[part], REACH, NOISE, rng) for part in ("validation", "test")}


def model() -> nn.Module:
    return Parts(encoder=mlp(SIDE**2, 128, 64, last=True), classes=nn.Linear(64, 10), projection=mlp(64, 64, 32))


def draw(rng: Generator) -> Tensors:
    return {
        "batch": torch.randint(UNLABELLED, (BATCH,), generator=rng),
        "move": draw_moves(2 * BATCH, REACH, rng),
        "noise": torch.randn(LABELLED + 2 * BATCH, SIDE**2, generator=rng),
        "held": torch.randint(VALIDATION, (BATCH,), generator=rng),
    }


def losses(net: Net, data: Tensors, draw: Tensors) -> Tensor:
    views = shift(data["unlabelled"][draw["batch"]].repeat(2, 1), draw["move"], REACH)
    codes = net(torch.cat([data["labelled"], views]) + NOISE * draw["noise"], "encoder")  # one pass for both
    base = cross_entropy(net(codes[:LABELLED], "classes"), data["labelled_y"])
    return torch.stack([base, contrast(net(codes[LABELLED:], "projection"))])


def contrast(projected: Tensor) -> Tensor:
    """NT-Xent: the two views of an image are half the batch apart."""
    z, count = F.normalize(projected, dim=-1), len(projected)
    itself = torch.eye(count, device=z.device, dtype=z.dtype)
    other = (torch.arange(count, device=z.device) + count // 2) % count
    return cross_entropy(z @ z.T / TEMPERATURE - 1e4 * itself, other)


TASK = Task(
    name="contrastive",
    terms=("ce", "contrastive"),
    metric="accuracy, %",
    higher=True,
    steps=300,
    # Validation at 3e-4, 1e-3, 3e-3, 1e-2: 37.3, 41.7, 43.0, 46.7.
    lr=1e-2,
    # With SGD at 0.01, 0.03, 0.1, 0.3, 1: 31.0, 41.8, 42.8, 44.7, 46.4.
    sgd_lr=1.0,
    shared=("encoder.",),
    last=("encoder.2.",),
    data=data,
    model=model,
    draw=draw,
    losses=losses,
    held_out=held_out_cross_entropy,
    score=class_accuracy,
)
