"""Digits from few labels and a teacher that hardly knows four of the ten: two terms whose balance matters.

- ``ce``, the base: cross-entropy on 20 labelled images, two of each digit;
- ``distillation``: what a larger network makes of unlabelled images, softened.

The teacher learned from 60 images of each digit up to 5 and from 3 of each above, and takes many of the rare ones for
others. Labels alone are too few; the teacher alone passes its errors on. There is one ratio to choose, so the response
to it can be drawn as a curve. The images come with scikit-learn: 1797 of 8x8 pixels, nothing to download.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from trainonce.recipes.digits import SIDE, Part, accuracy, noisy, pool
from trainonce.study import task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainonce.study import Trial

TERMS = ("ce", "distillation")
ARCHIVE = (60,) * 6 + (3,) * 4  # the teacher's images of each digit
LABELLED = (2,) * 10  # the student's
UNLABELLED, VALIDATION = 500, 450  # what is left of 1797 images is the test set
BATCH = 128
TEMPERATURE = 4.0


# Data


class Data(NamedTuple):
    archive: Part
    labelled: Part
    unlabelled: Part
    validation: Part
    test: Part


def load(seed: int) -> Data:
    """One random split. No image is in two parts; those of validation and test come with noise."""
    everything, rng = pool(), torch.Generator().manual_seed(seed)
    order = torch.randperm(len(everything.source), generator=rng)
    archive, rest = pick(order, ARCHIVE)
    labelled, rest = pick(rest, LABELLED)
    split = (archive, labelled, *rest.tensor_split([UNLABELLED, UNLABELLED + VALIDATION]))
    data = Data(*(Part(*(column[i] for column in everything)) for i in split))
    held_out = {name: getattr(data, name) for name in ("validation", "test")}
    return data._replace(**{name: part._replace(images=noisy(part.images, rng)) for name, part in held_out.items()})


def pick(source: Tensor, counts: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The first few images of each digit, and the others."""
    labels = pool().labels[source]
    chosen = torch.cat([source[labels == digit][:count] for digit, count in enumerate(counts)])
    return chosen, source[~torch.isin(source, chosen)]


# Models


def network(width: int, seed: int) -> nn.Sequential:
    """From an image to the logits of the digits; the student is narrow, the teacher wide."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, width), nn.ReLU(), nn.Linear(width, 10))


@functools.lru_cache(maxsize=16)
def advice(seed: int, steps: int = 150) -> Tensor:
    """The teacher's logits on the unlabelled images. It learns from the archive alone, always on the CPU."""
    data, rng = load(seed), torch.Generator().manual_seed(seed)
    teacher = network(128, seed)
    optimizer = torch.optim.AdamW(teacher.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        chosen = torch.randint(len(data.archive.labels), (BATCH,), generator=rng)
        logits = teacher(noisy(data.archive.images[chosen], rng))
        optimizer.zero_grad()
        F.cross_entropy(logits, data.archive.labels[chosen]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    given: Tensor = teacher(data.unlabelled.images)
    return given.detach()


# Losses


def distillation_loss(student: Tensor, teacher: Tensor) -> Tensor:
    """The divergence of the student from the teacher, both softened, times the squared temperature.

    Softening divides the gradients by about that square; the factor gives it back.
    """
    log_p, log_q = ((logits / TEMPERATURE).log_softmax(1) for logits in (teacher, student))
    return TEMPERATURE**2 * (log_p.exp() * (log_p - log_q)).sum(1).mean()


def losses(student: nn.Module, labelled: Part, images: Tensor, teacher: Tensor, rng: Generator) -> dict[str, Tensor]:
    """The two terms. The student sees every image with new noise; the teacher has seen them without."""
    seen = noisy(torch.cat([labelled.images, images]), rng)
    logits, copies = student(seen).split([len(labelled.images), len(images)])
    return {"ce": F.cross_entropy(logits, labelled.labels), "distillation": distillation_loss(copies, teacher)}


# Task


# lr: best of 0.003, 0.01, 0.03 at the ratios 1 : 0.1; init and decay: best of 0.1, 1 and of 0.2, 2, 20. All on the
# validation parts of seeds 100 to 102.
@task(
    terms=TERMS,
    metric="accuracy",
    direction="maximize",
    unit="%",
    margin=1.0,
    yoto={"init": 0.1, "decay": 2.0},
    seconds=0.6,
    preload=("sklearn.datasets",),
)
def distillation(trial: Trial, *, steps: int = 300, lr: float = 1e-2) -> dict[str, float]:
    """Digits with 20 labels and a biased teacher; cross-entropy, distillation."""
    device = trial.device
    data = Data(*(Part(*(column.to(device) for column in part)) for part in load(trial.seed)))
    teacher, rng = advice(trial.seed).to(device), torch.Generator().manual_seed(trial.seed)
    student = network(32, trial.seed).to(device)
    held_out = data.validation
    criterion = trial.criterion(validation=lambda: F.cross_entropy(student(held_out.images), held_out.labels))
    optimizer = torch.optim.AdamW(student.parameters(), lr=lr)
    trial.attach(optimizer)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for step in trial.loop([student, schedule, rng]):
        batch = torch.randint(UNLABELLED, (BATCH,), generator=rng).to(device)
        optimizer.zero_grad()
        terms = losses(student, data.labelled, data.unlabelled.images[batch], teacher[batch], rng)
        criterion(terms).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        if (step + 1) % max(1, steps // 27) == 0:
            trial.report(step + 1, accuracy=accuracy(student, data.validation))
    return {
        "validation/accuracy": accuracy(student, data.validation),
        "test/accuracy": accuracy(student, data.test),
    }
