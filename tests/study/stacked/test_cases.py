"""What is easily stacked in a wrong way: it is as if alone, or says why it is not stacked."""

import functools

import pytest
import torch

from tests.study.stacked._cases import OPTIMIZERS, hard
from trainonce.study.executors.base import Job
from trainonce.study.executors.run_trial import train
from trainonce.study.rules import fixed, make
from trainonce.study.stacked.reasons import NotStackableError, of_error
from trainonce.study.stacked.stackable import make as make_parts
from trainonce.study.stacked.training import StackedTraining

RULES = [fixed((1.0, 1.0)), make("CompositeLoss", {"init": 0.1, "lr": 0.05})]
SEEDS = [0, 3]


@pytest.fixture(autouse=True)
def wide():
    """Float64 throughout."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def errors_of(made):
    training = StackedTraining(made.terms, RULES, SEEDS, functools.partial(make_parts, made))
    assert list(training.run())
    return {(seed, repr(rule)): outcome.metrics["test/error"] for seed, rule, outcome in training.outcomes()}


@pytest.mark.parametrize("case", ["transposed", "twice", "partly frozen", "groups", *OPTIMIZERS])
def test_is_as_if_alone(tmp_path, case):
    made = hard.using(case=case)
    found = errors_of(made)
    for i, rule in enumerate(RULES):
        for seed in SEEDS:
            record = train(made, Job("key", seed, rule), tmp_path / f"{i}-{seed}", None, "cpu")
            assert found[seed, repr(rule)] == pytest.approx(record.metrics["test/error"], abs=1e-9)


@pytest.mark.parametrize(
    ("case", "why"),
    [
        ("small batches", "what passes a dropout does not have the same size in all steps"),
        ("hook", "the optimizer has a hook, which would see all models at once"),
        ("losses by seed", "'losses' depends on the seed; what belongs to a seed must be in data"),
        ("model by seed", "'losses' depends on the seed; what belongs to a seed must be in data"),
        ("metrics by seed", "'metrics' depends on the seed; what belongs to a seed must be in data"),
        ("numbers", "'metrics' must give tensors without dimensions"),
        ("buffer", "the model assigns 'mean' in a step; what it keeps must be buffers that change in place"),
        ("attribute", "the model assigns 'mean' in a step; what it keeps must be buffers that change in place"),
        ("counter", "the model assigns 'steps' in a step; what it keeps must be buffers that change in place"),
        ("recurrent", "torch.func.vmap cannot map GRU"),
        ("plateau", "ReduceLROnPlateau follows a metric, and models side by side have one learning rate"),
        ("other size", r"'x' of data does not have the same shape in all seeds: \(32, 4\) and \(35, 4\)"),
        ("other model", r"of the model does not have the same shape in all seeds: \(3, 4\) and \(6, 4\)"),
        ("numpy", "draw must give tensors, and 'rows' is a numpy.ndarray"),
        ("few batches", "draw ran out of batches; it must give one for each step"),
    ],
)
def test_says_why_it_is_not_stacked(case, why):
    with pytest.raises(NotStackableError, match=why):
        errors_of(hard.using(case=case))


def test_random_numbers_inside_a_model_are_named():
    with pytest.raises(RuntimeError) as raised:
        errors_of(hard.using(case="attention"))
    assert of_error(raised.value) == (
        "the model or its losses draw random numbers by themselves, such as the dropout of attention"
    )
