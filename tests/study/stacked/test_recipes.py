"""The recipes that can be stacked: for some steps each model is as if alone, in the recipe's own precision."""

import functools

import pytest

from trainonce import recipes
from trainonce.study.executors.base import Job
from trainonce.study.executors.run_trial import train
from trainonce.study.stacked.stackable import make
from trainonce.study.stacked.training import StackedTraining
from trainonce.study.weightings import Fixed, Learned

pytestmark = pytest.mark.filterwarnings("ignore::trainonce.health.HealthWarning")


@pytest.mark.parametrize("name", ["burgers", "digits", "distillation"])
def test_a_recipe_is_as_if_alone(tmp_path, name):
    made = recipes.load(name).using(steps=4)
    weightings, seeds = [Fixed.of((1.0,) * len(made.terms)), Learned(init=0.5)], [0, 1]
    training = StackedTraining(made.terms, weightings, seeds, functools.partial(make, made))
    assert list(training.run()) == [1, 2, 3, 4]
    for seed, weighting, outcome in training.outcomes():
        record = train(made, Job("key", seed, weighting), tmp_path / f"{weighting.kind}-{seed}", None, "cpu")
        assert outcome.metrics == pytest.approx(record.metrics, rel=1e-3)
        assert outcome.weights == pytest.approx(record.weights, rel=1e-3)
        assert [step for step, _ in outcome.reports] == [step for step, _ in record.reports]
