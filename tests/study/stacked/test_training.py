"""Each model of a stack is as if it had been trained alone: losses, weights, exponents, reports and metrics."""

import functools

import pytest
import torch

import trainonce
from tests.study.stacked._toy import TERMS, toy
from trainonce.study.executors.base import Job
from trainonce.study.executors.run_trial import train
from trainonce.study.layout import HISTORY
from trainonce.study.stacked.stackable import make
from trainonce.study.stacked.training import StackedTraining, kind
from trainonce.study.weightings import Fixed, Learned

pytestmark = pytest.mark.filterwarnings("ignore::trainonce.health.HealthWarning")

WEIGHTINGS = [
    Fixed.of((1.0, 1.0, 1.0)),
    Fixed.of((1.0, 0.1, 0.0)),
    Learned(init=0.1, decay=2.0),
    Learned(init={"second": 0.5, "small": 2.0}, decay=20.0),
    Learned(init=1.0, decay=5.0, lr=0.05),
    Learned(init=1.0, decay=0.5, preset="softplus"),
    Learned(init=1.0, units="gradient"),
    Learned(init=0.3, units="gradient", blend=0.25, limit=3.0),
    Learned(init=1.0, units="gradient", at="last"),
]


@pytest.fixture(autouse=True)
def wide():
    """Float64 throughout."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def stacked(task, weightings, seeds):
    training = StackedTraining(task.terms, sorted(weightings, key=kind), seeds, functools.partial(make, task))
    assert list(training.run()) == list(range(1, task.steps + 1))
    return {(seed, repr(weighting)): outcome for seed, weighting, outcome in training.outcomes()}


def alone(task, weighting, seed, folder):
    record = train(task, Job("key", seed, weighting), folder, None, "cpu")
    assert record.status == "done", record.error
    return record, trainonce.History.load(folder / HISTORY)


@pytest.mark.parametrize("optimizer", ["AdamW", "SGD"])
def test_every_model_is_as_if_alone(tmp_path, optimizer):
    task = toy.using(optimizer=optimizer)
    seeds = [0, 3]
    found = stacked(task, WEIGHTINGS, seeds)
    assert len(found) == len(seeds) * len(WEIGHTINGS)
    for i, weighting in enumerate(WEIGHTINGS):
        for seed in seeds:
            outcome = found[seed, repr(weighting)]
            record, history = alone(task, weighting, seed, tmp_path / f"{i}-{seed}")
            assert outcome.metrics == pytest.approx(record.metrics, abs=1e-9)
            assert [step for step, _ in outcome.reports] == [step for step, _ in record.reports]
            for (_, one), (_, other) in zip(outcome.reports, record.reports, strict=True):
                assert one == pytest.approx(other, abs=1e-9)
            assert outcome.weights == pytest.approx(record.weights, abs=1e-9)
            assert outcome.total == pytest.approx(record.total, abs=1e-9)
            again = trainonce.History()
            again.begin(TERMS, outcome.units)
            again.extend(outcome.rows)
            columns, expected = again.tensors(), history.tensors()
            assert list(columns) == list(expected)
            for name, column in columns.items():
                torch.testing.assert_close(column, expected[name], rtol=1e-9, atol=1e-9, equal_nan=True, msg=name)
