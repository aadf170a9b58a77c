"""The recipes that can be stacked: for some steps each model is as if alone, in the recipe's own precision."""

import functools

import pytest

from trainonce import recipes
from trainonce.study.executors.base import Job
from trainonce.study.executors.run_trial import train
from trainonce.study.rules import fixed, make
from trainonce.study.stacked.stackable import make as make_parts
from trainonce.study.stacked.training import StackedTraining

pytestmark = pytest.mark.filterwarnings("ignore::trainonce.health.HealthWarning")


@pytest.mark.parametrize("name", ["burgers", "digits", "distillation"])
def test_a_recipe_is_as_if_alone(tmp_path, name):
    made = recipes.load(name).using(steps=4)
    rules = [
        make("BalancedLoss", {"travel": 4.0}),
        make("CompositeLoss", {"init": 0.5}),
        fixed((1.0,) * len(made.terms)),
    ]
    parts = functools.partial(make_parts, made)
    training = StackedTraining(made.terms, rules, [0, 1], parts, steps=made.steps)
    assert list(training.run()) == [1, 2, 3, 4]
    for seed, rule, outcome in training.outcomes():
        record = train(made, Job("key", seed, rule), tmp_path / f"{rule.name}-{seed}", None, "cpu")
        assert outcome.metrics == pytest.approx(record.metrics, rel=1e-3)
        assert outcome.coefficients == pytest.approx(record.coefficients, rel=1e-3)
        assert [step for step, _ in outcome.reports] == [step for step, _ in record.reports]
