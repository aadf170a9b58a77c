"""Which seeds are far from the others: rarely one of normally distributed results, and never one hidden by another."""

import numpy as np
import pytest

from trainonce.report.table import far_seeds, half_width


@pytest.mark.parametrize("seeds", [2, 3, 4, 5])
@pytest.mark.parametrize("plans", [1, 2, 4])
def test_normally_distributed_results_are_rarely_called_outliers(plans, seeds):
    """Of 1000 studies fewer than 15 have a plan with an outlier, by the seeds alone: the margin is none."""
    random, alarms = np.random.default_rng(0), 0
    for values in random.standard_normal((1000, plans, seeds)):
        widths = [half_width(other) for other in values[1:]]
        alarms += far_seeds(dict(enumerate(values[0])), widths, 0.0) is not None
    assert alarms < 15


@pytest.mark.parametrize(
    ("values", "widths", "far"),
    [
        ([0.7, 0.72, 0.68, 35000.0, 40000.0], [0.04, 0.05], [3, 4]),
        ([-40000.0, 0.7, 0.72, 0.68, 40000.0], [0.04, 0.05], [0, 4]),
        ([0.7, 0.72, 0.68, 0.71, 40000.0], [], [4]),
        ([0.7, 40000.0], [0.04, 0.05], [0, 1]),  # nobody knows which
        ([0.7, 0.71, 39000.0, 40000.0], [0.04, 0.05], [0, 1, 2, 3]),
        ([10.0, 80.0, 40.0, 120.0], [0.04, 0.05], None),
        ([0.7, 2.0], [0.04], None),  # one other plan says little about the usual spread
        ([0.70, 0.7001, 0.72], [0.04, 0.05], None),  # two are close by chance
        ([10.0, 80.0, 40.0, 120.0, 60.0], [0.04, 0.05], None),  # a plan whose seeds all differ
        ([1.0], [0.04, 0.05], None),
    ],
)
def test_seeds_far_from_the_majority(values, widths, far):
    assert far_seeds(dict(enumerate(values)), widths, 0.01) == far
