"""Handwritten digits with few labels, tested on shifted and noisy images: three terms whose balance matters.

- ``ce``, the base: cross-entropy on 120 labelled images, noisy but not shifted;
- ``consistency``: an unlabelled image should be given the same class in its place and shifted, both with noise;
- ``reconstruction``: a small decoder should find the clean image, in its place, from the code of the shifted one.

Cross-entropy alone never sees a shifted digit. Too much of the others, and the classes are lost. The images come with
scikit-learn: 1797 of 8x8 pixels, nothing to download.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from trainonce.extras import require
from trainonce.study import task

if TYPE_CHECKING:
    from trainonce.study import Trial

TERMS = ("ce", "consistency", "reconstruction")
LABELS, TRAIN, VALIDATION = 120, 1000, 350  # of 1797 images; what is left is the test set
SIDE, REACH, NOISE = 8, 1, 0.2  # pixels; largest shift in pixels; standard deviation, with pixels from 0 to 1
BATCH = 128


# Data


class Part(NamedTuple):
    """Some of the images: pixels from 0 to 1, classes, and where they stand in scikit-learn's array."""

    images: Tensor
    labels: Tensor
    source: Tensor


class Data(NamedTuple):
    labelled: Part
    unlabelled: Part
    validation: Part
    test: Part


@functools.cache
def pool() -> Part:
    """All images as they come."""
    images, labels = require("sklearn.datasets", "scikit-learn", "demo").load_digits(return_X_y=True)
    pixels = torch.as_tensor(images, dtype=torch.float32).reshape(-1, SIDE, SIDE) / 16
    return Part(pixels, torch.as_tensor(labels, dtype=torch.int64), torch.arange(len(labels)))


def load(seed: int) -> Data:
    """One random split. No image is in two parts; those of validation and test are seen through one fixed view."""
    everything, rng = pool(), torch.Generator().manual_seed(seed)
    order = torch.randperm(len(everything.source), generator=rng)
    train, validation, test = order.tensor_split([TRAIN, TRAIN + VALIDATION])
    per_class = LABELS // 10
    chosen = torch.cat([train[everything.labels[train] == c][:per_class] for c in range(10)])
    rest = train[~torch.isin(train, chosen)]
    clean = [Part(*(column[i] for column in everything)) for i in (chosen, rest)]
    held_out = [Part(*(column[i] for column in everything)) for i in (validation, test)]
    return Data(*clean, *(part._replace(images=view(part.images, rng)) for part in held_out))


def shift(images: Tensor, down: Tensor, right: Tensor) -> Tensor:
    """Each image moved by its own whole number of pixels, up to :data:`REACH`; zeros come in at the border."""
    padded = F.pad(images, (REACH,) * 4)
    down, right, steps = down.to(images.device), right.to(images.device), torch.arange(SIDE, device=images.device)
    rows = (REACH - down)[:, None] + steps
    columns = (REACH - right)[:, None] + steps
    every = torch.arange(len(images), device=images.device)
    return padded[every[:, None, None], rows[:, :, None], columns[:, None, :]]


def view(images: Tensor, rng: Generator) -> Tensor:
    """Each image shifted, never by nothing, and with noise."""
    width = 2 * REACH + 1
    still = width * width // 2
    draw = torch.randint(width * width - 1, (len(images),), generator=rng)
    draw = draw + (draw >= still)
    return noisy(shift(images, draw // width - REACH, draw % width - REACH), rng)


def noisy(images: Tensor, rng: Generator) -> Tensor:
    return images + NOISE * torch.randn(images.shape, generator=rng).to(images.device)


# Model


class Model(nn.Module):
    """An encoder, and two heads on its code: the class and the clean image."""

    def __init__(self, width: int = 128, code: int = 64) -> None:
        super().__init__()
        pixels = SIDE * SIDE
        self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(pixels, width), nn.ReLU(), nn.Linear(width, code))
        self.classes = nn.Sequential(nn.ReLU(), nn.Linear(code, 10))
        self.decoder = nn.Sequential(nn.ReLU(), nn.Linear(code, width), nn.ReLU(), nn.Linear(width, pixels))

    def forward(self, images: Tensor) -> Tensor:
        """The logits of the classes."""
        logits: Tensor = self.classes(self.encoder(images))
        return logits


# Losses


def consistency(a: Tensor, b: Tensor) -> Tensor:
    """The mean of the two Kullback-Leibler divergences between what two views are taken for."""
    p, q = a.log_softmax(1), b.log_softmax(1)
    return ((p.exp() - q.exp()) * (p - q)).sum(1).mean() / 2


def losses(model: Model, labelled: Part, images: Tensor, rng: Generator) -> dict[str, Tensor]:
    """The three terms on a batch."""
    seen = (noisy(labelled.images, rng), noisy(images, rng), view(images, rng))
    codes = model.encoder(torch.cat(seen))  # one pass for all three
    logits, plain, moved = model.classes(codes).split([len(part) for part in seen])
    decoded = model.decoder(codes[-len(images) :])
    return {
        "ce": F.cross_entropy(logits, labelled.labels),
        "consistency": consistency(plain, moved),
        "reconstruction": F.mse_loss(decoded, images.flatten(1)),
    }


# Metrics


@torch.no_grad()
def accuracy(model: nn.Module, part: Part) -> float:
    """Per cent of the images that get their own class."""
    right = model(part.images).argmax(1) == part.labels
    return 100 * int(right.sum()) / len(part.labels)


# Task


# lr: best of 0.001, 0.003, 0.01 with equal weights; init and decay: best of 0.1, 1 and of 2, 20. All on the validation
# parts of seeds 100 to 102.
@task(
    terms=TERMS,
    metric="accuracy",
    direction="maximize",
    unit="%",
    margin=1.0,
    yoto={"init": 1.0, "decay": 2.0},
    seconds=1.2,
    preload=("sklearn.datasets",),
)
def digits(trial: Trial, *, steps: int = 300, lr: float = 1e-2) -> dict[str, float]:
    """Digits with 120 labels, tested on shifted noisy images; cross-entropy, consistency, reconstruction."""
    device = trial.device
    data = Data(*(Part(*(column.to(device) for column in part)) for part in load(trial.seed)))
    rng = torch.Generator().manual_seed(trial.seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(trial.seed)
        model = Model().to(device)
    held_out = data.validation
    criterion = trial.criterion(validation=lambda: F.cross_entropy(model(held_out.images), held_out.labels))
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    trial.attach(optimizer)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for step in trial.loop([model, schedule, rng]):
        batch = data.unlabelled.images[torch.randint(len(data.unlabelled.images), (BATCH,), generator=rng).to(device)]
        optimizer.zero_grad()
        criterion(losses(model, data.labelled, batch, rng)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        if (step + 1) % max(1, steps // 27) == 0:
            trial.report(step + 1, accuracy=accuracy(model, data.validation))
    return {
        "validation/accuracy": accuracy(model, data.validation),
        "test/accuracy": accuracy(model, data.test),
    }
