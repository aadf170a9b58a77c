"""Values as JSON: the same in every process, and different where trainings differ."""

import enum
import functools
import json
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from trainonce.study.identity import Describer, UnstableError


def describe(value):
    return json.dumps(Describer().describe(value), sort_keys=True)


class Colour(enum.Enum):
    RED = 1


class Config:
    def __init__(self, width):
        self.width = width


def scale(x, by=2):
    return x * by


def make(factor):
    return lambda x: factor * x


def changed(tensor, at=1000):
    other = tensor.clone()
    other[at] += 1
    return other


LONG = torch.arange(5000.0)
LOOP_OBJECT = Config(1)
LOOP_OBJECT.width = LOOP_OBJECT


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 2),
        (1, 1.5),
        (0, False),
        (None, "None"),
        ("a", b"a"),
        (b"a", b"b"),
        ([1, 2], [2, 1]),
        ({"a": 1}, {"a": 2}),
        ({1: "a"}, {"1": "a"}),
        ({"x", "y"}, {"x", "z"}),
        ({"x"}, ["x"]),
        (Path("x"), Path("y")),
        (Colour.RED, 1),
        (range(3), range(4)),
        (1 + 2j, 1 + 3j),
        (torch.float32, torch.float64),
        (torch.device("cpu"), torch.device("cuda")),
        (LONG, changed(LONG)),  # printed alike
        (torch.zeros(2), torch.zeros(2, dtype=torch.float64)),
        (torch.zeros(2, 3), torch.zeros(3, 2)),
        (np.arange(5000), np.arange(5000) + (np.arange(5000) == 1000)),
        (np.float32(1), np.float32(2)),
        (Config(1), Config(2)),
        (SimpleNamespace(a=1), SimpleNamespace(a=2)),
        (F.l1_loss, F.mse_loss),
        (torch.relu, torch.tanh),
        (scale, make),
        (lambda x: x + 1, lambda x: x + 2),  # on one line
        (lambda x, by=1: x, lambda x, by=2: x),
        (make(1), make(2)),
        (functools.partial(scale, by=2), functools.partial(scale, by=3)),
        (Config(1).__init__, Config(2).__init__),
        (torch.nn.Linear, torch.nn.Conv2d),
        (torch.nn.Dropout(0.1), torch.nn.Dropout(0.2)),
        (Config, SimpleNamespace),
        (json, enum),
    ],
)
def test_different_values_are_described_differently(one, other):
    assert describe(one) == describe(one)
    assert describe(one) != describe(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((1, 2), [1, 2]),  # as JSON has it
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"x", "y", "z"}, {"z", "y", "x"}),
        (LONG, LONG.clone().requires_grad_()),
        (LONG.reshape(50, 100).T, LONG.reshape(50, 100).T.contiguous()),
        (make(1), make(1)),
        (Config(1), Config(1)),
        (torch.empty(0), torch.empty(0)),
    ],
)
def test_equal_values_are_described_alike(one, other):
    assert describe(one) == describe(other)


def test_values_that_contain_themselves_have_an_end():
    assert describe(LOOP_OBJECT) != describe(Config(LOOP_OBJECT))


@pytest.mark.parametrize("value", [object(), threading.Lock(), (x for x in [1]), sys.stdout, torch.eye(2).to_sparse()])
def test_what_cannot_be_told_apart_is_refused(value):
    with pytest.raises(UnstableError):
        describe({"in": [value]})


def test_the_code_of_own_functions_counts_and_their_file_is_collected():
    describer = Describer()
    text = json.dumps(describer.describe([scale, F.mse_loss, Config]))
    assert describer.files == {Path(__file__)}
    assert "Mult" in text
    assert "torch.nn.functional.mse_loss" in text


def test_functions_and_classes_without_a_file_count_with_what_they_use():
    def made(number):
        scope = {"__name__": "notebook"}
        lines = ["import torch", f"N = {number}", "LOCK = object()"]
        lines += ["def g(x): return [x + N for _ in range(1)]", "class C:", "    def f(self): return g(torch.ones(N))"]
        exec("\n".join([*lines, "def h(): return C().f(), LOCK"]), scope)
        return scope

    assert describe(made(1)["h"]) == describe(made(1)["h"]) != describe(made(2)["h"])
    assert describe(made(1)["C"]) == describe(made(1)["C"]) != describe(made(2)["C"])


def test_another_process_describes_alike():
    code = """
import json, torch
from pathlib import Path
from trainonce.study.identity import Describer
value = [{"b", "a", "c", "d"}, Path("x"), torch.arange(9.0), torch.nn.ReLU, torch.relu, {1: {"q", "p"}}]
print(json.dumps(Describer().describe(value)))
"""
    runs = [
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": n}
        )
        for n in ("1", "2")
    ]
    assert runs[0].stdout == runs[1].stdout
    assert '"a", "b", "c", "d"' in runs[0].stdout
