"""Intersection over union against counting pixels."""

import numpy as np
import pytest
import torch

from trainonce.recipes.segmentation import metrics
from trainonce.recipes.segmentation.data.scenes import IGNORE


def test_intersection_over_union_is_that_of_counting_pixels():
    rng = np.random.default_rng(0)
    truth, seen = rng.integers(0, 6, (5, 20, 30)), rng.integers(0, 6, (5, 20, 30))
    truth[truth == 5] = IGNORE  # class 4 is there, class 5 is predicted and never true
    total = sum(metrics.confusion(torch.tensor(s), torch.tensor(t), 7) for s, t in zip(seen, truth, strict=True))
    expected = []
    for c in range(7):
        both = either = 0
        for s, t in zip(seen.ravel(), truth.ravel(), strict=True):
            if t != IGNORE:
                both += s == c == t
                either += c in (s, t)
        expected.append(both / either if either else float("nan"))
    np.testing.assert_array_equal(metrics.iou_per_class(total).numpy(), expected)
    assert metrics.mean_iou(total) == pytest.approx(100 * np.nanmean(expected))
    assert np.isnan(expected[6])
    assert expected[5] == 0


def test_uint8_labels_do_not_overflow():
    counts = metrics.confusion(torch.tensor([18], dtype=torch.uint8), torch.tensor([18], dtype=torch.uint8), 19)
    assert counts[18, 18] == 1
    assert counts.sum() == 1
