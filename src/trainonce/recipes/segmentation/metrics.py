"""Intersection over union over a whole set of images."""

from __future__ import annotations

import torch
from torch import Tensor

from trainonce.recipes.segmentation.data.scenes import IGNORE


def confusion(predicted: Tensor, truth: Tensor, classes: int) -> Tensor:
    """The confusion matrix: how many pixels of each class (row) were predicted as each class (column).

    Ignored pixels are not counted.


    >>> confusion(torch.tensor([0, 1, 1, 0]), torch.tensor([0, 1, 0, 255]), 2)
    tensor([[1, 1],
            [0, 1]])
    """
    pair = truth.long().flatten() * classes + predicted.long().flatten()
    pair = torch.where(truth.flatten() == IGNORE, classes * classes, pair)  # beyond the last cell, dropped below
    return torch.bincount(pair, minlength=classes * classes + 1)[: classes * classes].reshape(classes, classes)


def iou_per_class(counts: Tensor) -> Tensor:
    """The intersection over union of each class; NaN for a class that is neither present nor predicted.

    >>> iou_per_class(torch.tensor([[1, 1], [0, 1]]))
    tensor([0.5000, 0.5000], dtype=torch.float64)
    """
    counts = counts.double()
    both = counts.diagonal()
    return both / (counts.sum(0) + counts.sum(1) - both)


def mean_iou(counts: Tensor) -> float:
    """The mean intersection over union of the classes that occur, in percent."""
    return 100 * float(iou_per_class(counts).nanmean())
