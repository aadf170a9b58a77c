"""Each model of a stack is as if it had been trained alone: its history, reports, metrics and coefficients."""

import dataclasses
import functools

import pytest
import torch

import trainonce
from tests.study.stacked._toy import TERMS, toy
from trainonce.study.executors.base import Job
from trainonce.study.executors.run_trial import train
from trainonce.study.layout import HISTORY
from trainonce.study.rules import fixed, make
from trainonce.study.stacked.kinds import kind
from trainonce.study.stacked.reasons import NotStackableError
from trainonce.study.stacked.stackable import make as make_parts
from trainonce.study.stacked.training import StackedTraining

pytestmark = pytest.mark.filterwarnings("ignore::trainonce.health.HealthWarning")

RULES = [
    fixed((1.0, 1.0, 1.0)),
    fixed((1.0, 0.1, 0.0)),
    make("CompositeLoss", {"init": 0.1, "decay": 2.0}),
    make("CompositeLoss", {"init": {"second": 0.5, "small": 2.0}, "decay": 20.0}),
    make("CompositeLoss", {"init": 1.0, "decay": 5.0, "lr": 0.05}),
    make("CompositeLoss", {"init": 1.0, "decay": 0.5, "regularizer": ["softplus"]}),
    make("BalancedLoss", {"travel": 0.0}),
    make("BalancedLoss", {"travel": 4.0}),
    make("BalancedLoss", {"follow": 0.25, "every": 0.2, "travel": 40.0}),
    make("BalancedLoss", {"at": "last"}),
]


@pytest.fixture(autouse=True)
def wide():
    """Float64 throughout."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def stacked(task, rules, seeds):
    parts = functools.partial(make_parts, task)
    training = StackedTraining(task.terms, sorted(rules, key=kind), seeds, parts, steps=task.steps)
    assert list(training.run()) == list(range(1, task.steps + 1))
    return {(seed, repr(rule)): outcome for seed, rule, outcome in training.outcomes()}


def alone(task, rule, seed, folder):
    record = train(task, Job("key", seed, rule), folder, None, "cpu")
    assert record.status == "done", record.error
    return record, trainonce.History.load(folder / HISTORY)


@pytest.mark.parametrize("optimizer", ["AdamW", "SGD"])
def test_every_model_is_as_if_alone(tmp_path, optimizer):
    task = toy.using(optimizer=optimizer)
    seeds = [0, 3]
    found = stacked(task, RULES, seeds)
    assert len(found) == len(seeds) * len(RULES)
    for i, rule in enumerate(RULES):
        for seed in seeds:
            outcome = found[seed, repr(rule)]
            record, history = alone(task, rule, seed, tmp_path / f"{i}-{seed}")
            assert outcome.metrics == pytest.approx(record.metrics, abs=1e-9)
            assert [step for step, _ in outcome.reports] == [step for step, _ in record.reports]
            for (_, one), (_, other) in zip(outcome.reports, record.reports, strict=True):
                assert one == pytest.approx(other, abs=1e-9)
            assert outcome.coefficients == pytest.approx(record.coefficients, abs=1e-9)
            again = trainonce.History()
            again.begin(TERMS, outcome.columns)
            again.extend(outcome.rows)
            columns, expected = again.tensors(), history.tensors()
            assert list(columns) == list(expected)
            for name, column in columns.items():
                torch.testing.assert_close(column, expected[name], rtol=1e-9, atol=1e-9, equal_nan=True, msg=name)


def test_a_balance_that_is_aligned_needs_the_validation_loss():
    def parts(seed):
        return dataclasses.replace(make_parts(toy, seed), validation=None)

    rules = [make("BalancedLoss", {"travel": travel}) for travel in (0.0, 1.0)]
    assert list(StackedTraining(TERMS, rules[:1], [0], parts).run())
    with pytest.raises(NotStackableError, match="a balance is aligned by a validation loss"):
        StackedTraining(TERMS, rules, [0], parts)
