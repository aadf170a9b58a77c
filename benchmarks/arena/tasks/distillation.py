"""Digits from 20 labels and a teacher that hardly knows four of the ten: cross-entropy, distillation.

The recipe ``trainonce.recipes.distillation``: its splits, teacher, student, losses, sizes, steps and learning rate. It
departs in the optimizer, which is the arena's (the recipe's AdamW also decays the weights by 0.01).
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn

from benchmarks.arena.task import Net, Task, Tensors
from benchmarks.arena.tasks._nets import Parts, class_accuracy, cross_entropy, held_out_cross_entropy, mlp
from trainonce.recipes import distillation as recipe
from trainonce.recipes.digits import NOISE, SIDE

PIXELS = SIDE**2
LABELLED = sum(recipe.LABELLED)


def data(seed: int) -> Tensors:
    parts = recipe.load(seed)._asdict()
    images = {name: part.images.flatten(1) for name, part in parts.items()}
    labels = {f"{name}_y": part.labels for name, part in parts.items()}
    sources = {f"source/{name}": part.source for name, part in parts.items()}
    return images | labels | sources | {"teacher": recipe.advice(seed)}


def model() -> nn.Module:
    return Parts(encoder=mlp(PIXELS, 32, last=True), classes=nn.Linear(32, 10))


def draw(rng: Generator) -> Tensors:
    return {
        "batch": torch.randint(recipe.UNLABELLED, (recipe.BATCH,), generator=rng),
        "noise": torch.randn(LABELLED + recipe.BATCH, PIXELS, generator=rng),
        "held": torch.randint(recipe.VALIDATION, (recipe.BATCH,), generator=rng),
    }


def losses(net: Net, data: Tensors, draw: Tensors) -> Tensor:
    batch = draw["batch"]
    seen = torch.cat([data["labelled"], data["unlabelled"][batch]]) + NOISE * draw["noise"]
    logits = net(seen, "encoder", "classes")
    base = cross_entropy(logits[:LABELLED], data["labelled_y"])
    return torch.stack([base, recipe.distillation_loss(logits[LABELLED:], data["teacher"][batch])])


TASK = Task(
    name="distillation",
    terms=recipe.TERMS,
    metric="accuracy, %",
    higher=True,
    steps=300,
    # Validation at 3e-4, 1e-3, 3e-3, 1e-2: 38.3, 65.8, 78.2, 80.6.
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
