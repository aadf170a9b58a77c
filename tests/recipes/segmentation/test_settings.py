"""Settings of the segmentation recipe."""

import dataclasses
import inspect

import pytest
import torch

import trainonce
from trainonce.recipes import load
from trainonce.recipes.segmentation.settings import Settings
from trainonce.recipes.settings import with_settings
from trainonce.study import plans


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"crop": (256,)}, r"crop is a height and a width, as in crop=512,1024; got \(256,\)"),
        ({"crop": (0, 8)}, "crop is a height and a width"),
        ({"size": 512}, "size is a height and a width"),
        ({"frame": (100, 100)}, r"crop must fit into frame, \(100, 100\); got \(256, 256\)"),
        ({"size": (100, 300)}, r"crop must fit into size"),
        ({"schedule": "cosine"}, "schedule is one of 'constant', 'poly'; got 'cosine'"),
        ({"precision": "half"}, "precision is one of"),
        ({"distance": "l3"}, "distance is one of 'l2', 'l1'; got 'l3'"),
        ({"over": "some"}, "over is one of 'valid', 'all'; got 'some'"),
        ({"batch": 0}, "batch is a whole number of at least 1; got 0"),
        ({"batch": 2.5}, "batch is a whole number of at least 1; got 2.5"),
        ({"readers": True}, "readers is a whole number of at least 0; got True"),
        ({"lr": -1.0}, "lr is a number of at least 0; got -1.0"),
        ({"lr": "fast"}, "lr is a number of at least 0; got 'fast'"),
        ({"flip": 2.0}, "flip is a number of at least 0 and at most 1; got 2.0"),
        ({"bandwidth": 0.7}, "bandwidth is a number of at least 0 and below 0.5; got 0.7"),
        ({"momentum": 1.0}, "momentum is a number of at least 0 and below 1; got 1.0"),
        ({"check": "no"}, "check is True or False; got 'no'"),
        ({"layers": 4}, "layers is a text; got 4"),
    ],
)
def test_settings_are_checked(given, said):
    with pytest.raises(ValueError, match=said):
        Settings(**given)


def test_as_printed_is_one_word():
    task = load("ciss-paper").preset("printed")
    assert (task.settings["optimizer"], task.settings["weight_decay"]) == ("sgdw", 2.0)
    (rule,) = plans.parse("yoto", task).rules
    made, expected = rule.build(task.terms), trainonce.CompositeLoss.as_printed(task.terms, "ciss", lr=2.5e-4)
    assert (made.decay, made.regularizer) == (expected.decay, expected.regularizer)
    assert torch.equal(made.exponents, expected.exponents)
    assert rule.settings["lr"] == task.settings["lr"]


def test_settings_become_the_parameters_of_a_task():
    @with_settings(Settings(lr=0.5))
    def function(trial, settings):
        return settings

    parameters = inspect.signature(function).parameters
    assert next(iter(parameters)) == "trial"
    assert parameters["lr"].default == 0.5
    assert [field.name for field in dataclasses.fields(Settings)] == list(parameters)[1:]
    assert function(None, batch=3) == Settings(lr=0.5, batch=3)
