"""A training that is interrupted and resumed."""

import pytest
import torch
from _runs import train

from trainonce.study import layout


def check_resumed_as_straight(folder, monkeypatch, training, task, settings):
    """Train in one go, and again with an interruption at the sixth step: both must end with the same bits.

    :param training: The recipe's module that calls ``autocast`` once in each step.
    :param settings: They must keep a checkpoint every three steps.
    """
    straight, there = train(folder / "a", task, **settings)
    real, calls = training.autocast, []

    def stop_at_sixth(*given):
        calls.append(given)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return real(*given)

    monkeypatch.setattr(training, "autocast", stop_at_sixth)
    with pytest.raises(KeyboardInterrupt):
        train(folder / "b", task, **settings)
    monkeypatch.setattr(training, "autocast", real)
    (trial,) = (folder / "b" / layout.TRIALS).iterdir()
    assert torch.load(trial / layout.CHECKPOINT, weights_only=True)["steps"] == 3
    resumed, here = train(folder / "b", task, **settings)
    assert resumed.metrics == pytest.approx(straight.metrics, abs=0, nan_ok=True)
    assert resumed.coefficients == straight.coefficients
    assert resumed.reports == straight.reports
    assert (here / layout.HISTORY).read_bytes() == (there / layout.HISTORY).read_bytes()
