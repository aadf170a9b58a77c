"""Few-label images with unlabelled ones, tested on shifted noisy images: cross-entropy, consistency, rotation.

- ``ce``, the base: cross-entropy on the labelled images, noisy but not shifted;
- ``consistency``: an unlabelled image should be given the same class in its place and shifted, both with noise;
- ``rotation``: by how many right angles a noisy unlabelled image was turned, through a head of its own.

Cross-entropy alone never sees a shifted image. Validation and test images are labelled, shifted and noisy, and apart
from those of training.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn

from benchmarks.arena.data import gather, generator, pool, split
from benchmarks.arena.task import Net, Task, Tensors
from benchmarks.arena.tasks._nets import Parts, class_accuracy, consistency, cross_entropy, held_out_cross_entropy, mlp
from benchmarks.arena.tasks._views import draw_moves, fixed_view, rotate, rotations, shift

TERMS = ("ce", "consistency", "rotation")
SIDE, REACH, NOISE = 14, 2, 0.3  # pixels; largest shift in pixels; standard deviation, with pixels from 0 to 1
LABELLED, UNLABELLED, VALIDATION, TEST = 200, 3_000, 1_000, 4_000
BATCH = 128


def load(name: str, seed: int) -> Tensors:
    """The data of one of these tasks."""
    everything, rng = pool(name, SIDE), generator(name, seed)
    counts = {"unlabelled": UNLABELLED, "validation": VALIDATION, "test": TEST}
    data = gather(everything, split(everything, rng, LABELLED, **counts))
    views = {part: fixed_view(data[part], REACH, NOISE, rng) for part in ("validation", "test")}
    return data | views | {"rotations": rotations(SIDE)}


def model() -> nn.Module:
    return Parts(encoder=mlp(SIDE**2, 128, 64, last=True), classes=nn.Linear(64, 10), rotation=nn.Linear(64, 4))


def draw(rng: Generator) -> Tensors:
    return {
        "batch": torch.randint(UNLABELLED, (BATCH,), generator=rng),
        "move": draw_moves(BATCH, REACH, rng),
        "turns": torch.randint(4, (BATCH,), generator=rng),
        "noise": torch.randn(LABELLED + 3 * BATCH, SIDE**2, generator=rng),
        "held": torch.randint(VALIDATION, (BATCH,), generator=rng),
    }


def losses(net: Net, data: Tensors, draw: Tensors) -> Tensor:
    images = data["unlabelled"][draw["batch"]]
    moved, turned = shift(images, draw["move"], REACH), rotate(images, draw["turns"], data["rotations"])
    seen = torch.cat([data["labelled"], images, moved, turned]) + NOISE * draw["noise"]
    codes = net(seen, "encoder")  # one pass for all
    logits = net(codes[:-BATCH], "classes")
    return torch.stack(
        [
            cross_entropy(logits[:LABELLED], data["labelled_y"]),
            consistency(logits[LABELLED:-BATCH], logits[-BATCH:]),
            cross_entropy(net(codes[-BATCH:], "rotation"), draw["turns"]),
        ]
    )


def few_labels(name: str, lr: float, sgd_lr: float) -> Task:
    """The task on the data set of its name."""
    return Task(
        name=name,
        terms=TERMS,
        metric="accuracy, %",
        higher=True,
        steps=300,
        lr=lr,
        sgd_lr=sgd_lr,
        shared=("encoder.",),
        last=("encoder.2.",),
        data=lambda seed: load(name, seed),
        model=model,
        draw=draw,
        losses=losses,
        held_out=held_out_cross_entropy,
        score=class_accuracy,
    )
