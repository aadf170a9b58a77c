"""Curves from histories: thinned, joined over the seeds, across gaps."""

import math

import pytest
import torch

from trainonce.report.drawing import curves


def run(steps, values):
    return {"step": torch.tensor(steps, dtype=torch.float64), "loss/a": torch.tensor(values, dtype=torch.float64)}


def test_a_curve_is_the_mean_and_the_range_up_to_the_last_common_step():
    line = curves.curve([run([1, 2, 3, 4], [1, 2, 3, 4]), run([1, 3], [3, 7])], "loss/a")
    assert line.steps == [1, 3]
    assert (line.mean, line.low, line.high, line.seeds) == ([2, 5], [1, 3], [3, 7], 2)


def test_a_line_goes_on_where_a_value_is_missing_but_not_beyond_the_last():
    """A term that is absent from some batches, a step without a call of the criterion, a run that diverged."""
    nan = math.nan
    line = curves.curve([run([1, 2, 3, 4, 5, 6], [nan, 2, nan, nan, 5, nan])], "loss/a")
    assert line.mean == pytest.approx([nan, 2, 3, 4, 5, nan], nan_ok=True)
    line = curves.curve([run([1, 2, 3], [nan, nan, nan]), run([1, 2, 3], [1, 2, 3])], "loss/a")
    assert (line.mean, line.low) == ([1, 2, 3], [1, 2, 3])


def test_no_run_with_the_column_is_no_curve():
    assert curves.curve([run([1], [1])], "loss/b") is None
