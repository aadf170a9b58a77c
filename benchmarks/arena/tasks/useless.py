"""Fashion-MNIST with 300 labels and a term that neither helps nor hurts much: cross-entropy, consistency, noise.

As ``fashion``, with other splits and sizes, but the third term asks a head of its own for a fixed random projection of
the noise that was added to the image. That can be read off the pixels, says nothing of the class, and needs a small
part of the code.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn

from benchmarks.arena.data import gather, generator, pool, split
from benchmarks.arena.task import Net, Task, Tensors
from benchmarks.arena.tasks._nets import Parts, class_accuracy, consistency, cross_entropy, held_out_cross_entropy, mlp
from benchmarks.arena.tasks._views import draw_moves, fixed_view, shift

SIDE, REACH, NOISE = 14, 2, 0.3  # pixels; largest shift in pixels; standard deviation, with pixels from 0 to 1
LABELLED, UNLABELLED, VALIDATION, TEST = 300, 2_000, 1_000, 4_000
PROJECTED = 8  # numbers to predict
BATCH = 128


def data(seed: int) -> Tensors:
    everything, rng = pool("fashion", SIDE), generator("useless", seed)
    counts = {"unlabelled": UNLABELLED, "validation": VALIDATION, "test": TEST}
    made = gather(everything, split(everything, rng, LABELLED, **counts))
    projection = torch.randn(SIDE**2, PROJECTED, generator=rng) / SIDE
    views = {part: fixed_view(made[part], REACH, NOISE, rng) for part in ("validation", "test")}
    return made | views | {"projection": projection}


def model() -> nn.Module:
    encoder = mlp(SIDE**2, 128, 64, last=True)
    return Parts(encoder=encoder, classes=nn.Linear(64, 10), noise=nn.Linear(64, PROJECTED))


def draw(rng: Generator) -> Tensors:
    return {
        "batch": torch.randint(UNLABELLED, (BATCH,), generator=rng),
        "move": draw_moves(BATCH, REACH, rng),
        "noise": torch.randn(LABELLED + 2 * BATCH, SIDE**2, generator=rng),
        "held": torch.randint(VALIDATION, (BATCH,), generator=rng),
    }


def losses(net: Net, data: Tensors, draw: Tensors) -> Tensor:
    images = data["unlabelled"][draw["batch"]]
    seen = torch.cat([data["labelled"], images, shift(images, draw["move"], REACH)]) + NOISE * draw["noise"]
    codes = net(seen, "encoder")  # one pass for all
    logits = net(codes, "classes")
    noise = draw["noise"][-BATCH:] @ data["projection"]
    return torch.stack(
        [
            cross_entropy(logits[:LABELLED], data["labelled_y"]),
            consistency(logits[LABELLED:-BATCH], logits[-BATCH:]),
            (net(codes[-BATCH:], "noise") - noise).square().mean(),
        ]
    )


TASK = Task(
    name="useless",
    terms=("ce", "consistency", "noise"),
    metric="accuracy, %",
    higher=True,
    steps=300,
    # Validation at 3e-4, 1e-3, 3e-3, 1e-2: 39.7, 49.3, 55.8, 61.1.
    lr=1e-2,
    shared=("encoder.",),
    last=("encoder.2.",),
    data=data,
    model=model,
    draw=draw,
    losses=losses,
    held_out=held_out_cross_entropy,
    score=class_accuracy,
)
