"""Few-label digits with a term that only hurts: cross-entropy, consistency, cross-entropy against random labels.

As ``digits``, but the third term asks that the unlabelled images be given labels that were drawn at random once, by the
same head that tells the classes. The best weight for it is 0.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn

from benchmarks.arena.data import generator
from benchmarks.arena.task import Net, Task, Tensors
from benchmarks.arena.tasks import digits
from benchmarks.arena.tasks._nets import Parts, class_accuracy, consistency, cross_entropy, held_out_cross_entropy, mlp
from benchmarks.arena.tasks._views import shift
from trainonce.recipes import digits as recipe


def data(seed: int) -> Tensors:
    rng = generator("harmful", seed)
    return digits.data(seed) | {"random_y": torch.randint(10, (digits.UNLABELLED,), generator=rng)}


def model() -> nn.Module:
    return Parts(encoder=mlp(digits.PIXELS, 128, 64, last=True), classes=nn.Linear(64, 10))


def draw(rng: Generator) -> Tensors:
    return digits.draw(rng)


def losses(net: Net, data: Tensors, draw: Tensors) -> Tensor:
    images = data["unlabelled"][draw["batch"]]
    labelled = data["labelled"] + recipe.NOISE * draw["noise_labelled"]
    plain = images + recipe.NOISE * draw["noise_plain"]
    moved = shift(images, draw["move"], recipe.REACH) + recipe.NOISE * draw["noise_moved"]
    logits = net(torch.cat([labelled, plain, moved]), "encoder", "classes")
    of_labelled, of_plain, of_moved = logits.split([recipe.LABELS, recipe.BATCH, recipe.BATCH])
    return torch.stack(
        [
            cross_entropy(of_labelled, data["labelled_y"]),
            consistency(of_plain, of_moved),
            cross_entropy(of_plain, data["random_y"][draw["batch"]]),
        ]
    )


TASK = Task(
    name="harmful",
    terms=("ce", "consistency", "random"),
    metric="accuracy, %",
    higher=True,
    steps=300,
    # Validation at 3e-4, 1e-3, 3e-3, 1e-2: 28.3, 35.6, 48.6, 55.6.
    lr=1e-2,
    shared=("encoder.", "classes."),
    last=("classes.",),
    data=data,
    model=model,
    draw=draw,
    losses=losses,
    held_out=held_out_cross_entropy,
    score=class_accuracy,
)
