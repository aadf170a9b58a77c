"""The images of the arena's tasks and how a seed splits them.

MNIST and Fashion-MNIST are files of others and stay outside the repository: ``mnist.npz`` and
``fashion_mnist_20k.npz``, in the folder that the environment variable ``TRAINONCE_DATA`` names, with the arrays
``x_train``, ``y_train``, ``x_test`` and ``y_test`` of uint8. Digits come with scikit-learn.
"""

from __future__ import annotations

import functools
import os
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor
from torch.nn import functional as F

if TYPE_CHECKING:
    from benchmarks.arena.task import Tensors

FILES = {"mnist": "mnist.npz", "fashion": "fashion_mnist_20k.npz"}


class Pool(NamedTuple):
    """All images of a data set, pixels from 0 to 1: those for training first, from ``first_test`` on those to test."""

    images: Tensor
    labels: Tensor
    first_test: int


def generator(task: str, seed: int) -> Generator:
    """The generator of a task's data: another one for each task, so that no two of them share a split."""
    return torch.Generator().manual_seed(zlib.crc32(f"{task}/{seed}".encode()))


def missing(name: str) -> str:
    """Why a data set cannot be read, or nothing if it can."""
    root = os.environ.get("TRAINONCE_DATA", "")
    if not root:
        return f"The arena reads {FILES[name]} from the folder that TRAINONCE_DATA names; it is not set."
    if not (Path(root) / FILES[name]).is_file():
        return f"The arena reads {FILES[name]} from the folder that TRAINONCE_DATA names; {root} has no such file."
    return ""


@functools.lru_cache(maxsize=4)
def pool(name: str, side: int = 28) -> Pool:
    """A data set with images of 28 pixels, or averaged over blocks to a side that divides 28."""
    if problem := missing(name):
        raise FileNotFoundError(problem)
    with np.load(Path(os.environ["TRAINONCE_DATA"]) / FILES[name]) as file:
        images = torch.from_numpy(np.concatenate([file["x_train"], file["x_test"]])).float() / 255
        labels = torch.from_numpy(np.concatenate([file["y_train"], file["y_test"]])).long()
        first_test = len(file["y_train"])
    return Pool(F.avg_pool2d(images, 28 // side) if side < 28 else images, labels, first_test)


def split(everything: Pool, rng: Generator, labelled: int, **counts: int) -> Tensors:
    """Where the images of each part stand in the pool; no image is in two parts.

    :param labelled: How many images have their label in training, as many of each of the ten classes; may be 0.
    :param counts: The sizes of the other parts, in the order in which they are filled. ``test`` is filled from the
        images to test, all others from those to train.
    """
    train = torch.randperm(everything.first_test, generator=rng)
    test = everything.first_test + torch.randperm(len(everything.labels) - everything.first_test, generator=rng)
    each = labelled // 10
    chosen = torch.cat([train[everything.labels[train] == c][:each] for c in range(10)])
    train = train[~torch.isin(train, chosen)]
    parts = {"labelled": chosen} if labelled else {}
    for part, count in counts.items():
        if part == "test":
            parts[part] = test[:count]
        else:
            parts[part], train = train[:count], train[count:]
    return parts


def gather(everything: Pool, parts: Tensors) -> Tensors:
    """The parts as tensors: flat images, their labels (``_y``), and where they come from (``source/``)."""
    images = {part: everything.images[where].flatten(1) for part, where in parts.items()}
    labels = {f"{part}_y": everything.labels[where] for part, where in parts.items()}
    return images | labels | {f"source/{part}": where for part, where in parts.items()}
