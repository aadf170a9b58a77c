"""Values as JSON: the same in every process, and different where trainings differ."""

import collections
import enum
import functools
import json
import linecache
import os
import random
import re
import runpy
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from trainonce.study.identity import Describer, UnstableError, differences
from trainonce.study.identity.values import source_of


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


def make_defaults(value):
    return [lambda x, by=value: by * x, lambda x, *, by=value: by * x]


class Constants:
    WIDTH = 3


#: Within an expression: what inspect finds of it cannot be parsed.
INSIDE = {
    "double": lambda x: 2 * x}  # fmt: skip


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
        ({"a": 1, 2: 3}, {"a": 1, "2": 3}),
        ({(1, 2): 3}, {(1, 2): 4}),
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
        (torch.tensor([1 + 2j]), torch.tensor([1 + 2j]).conj()),
        (torch.tensor([1 + 2j]).imag, torch.tensor([1 + 2j]).conj().imag),
        (np.arange(5000), np.arange(5000) + (np.arange(5000) == 1000)),
        (np.float32(1), np.float32(2)),
        (Config(1), Config(2)),
        (SimpleNamespace(a=1), SimpleNamespace(a=2)),
        ([LOOP_OBJECT, scale, LOOP_OBJECT], [LOOP_OBJECT, scale, scale]),
        (F.l1_loss, F.mse_loss),
        (torch.relu, torch.tanh),
        (scale, make),
        (lambda x: x + 1, lambda x: x + 2),  # on one line
        (lambda x, by=1: x, lambda x, by=2: x),
        (make(1), make(2)),
        (make_defaults(1)[0], make_defaults(2)[0]),
        (make_defaults(1)[1], make_defaults(2)[1]),
        (functools.partial(scale, by=2), functools.partial(scale, by=3)),
        (Config(1).__init__, Config(2).__init__),
        (torch.nn.Linear, torch.nn.Conv2d),
        (torch.nn.Dropout(0.1), torch.nn.Dropout(0.2)),
        (Config, SimpleNamespace),
        (json, enum),
        (functools.cache(lambda x: x), functools.cache(lambda x: 2 * x)),
        (random.Random(1).random, random.Random(2).random),
        ({"a": 1}.get, {"a": 2}.get),
        (torch.ones(1).add, torch.zeros(1).add),
        (collections.defaultdict(list), collections.defaultdict(lambda: 3)),
        (collections.OrderedDict(a=1), {"a": 1}),
        (re.compile("a"), re.compile("b")),
        (np.add, np.multiply),
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
        ({1, "a", None, (2, 3)}, {(2, 3), None, "a", 1}),
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


@pytest.mark.parametrize(
    "value",
    [
        object(),
        threading.Lock(),
        (x for x in [1]),
        sys.stdout,
        torch.eye(2).to_sparse(),
        torch.empty(2, device="meta"),
    ],
)
def test_what_cannot_be_told_apart_is_refused(value):
    with pytest.raises(UnstableError):
        describe({"in": [value]})


def test_the_code_of_own_functions_counts_and_their_file_is_collected():
    describer = Describer()
    text = json.dumps(describer.describe([scale, F.mse_loss, Config]))
    assert describer.files == {Path(__file__)}
    assert "Mult" in text
    assert "torch.nn.functional.mse_loss" in text


def test_the_file_of_an_own_class_is_collected_also_where_it_has_no_methods():
    describer = Describer()
    assert describer.describe(Constants)["members"]["WIDTH"] == 3
    assert describer.files == {Path(__file__)}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (F.relu, {"function": "torch.nn.functional.relu", "defaults": [[False], {}]}),
        (torch.nn.Linear, {"class": "torch.nn.modules.linear.Linear"}),
        (int, {"class": "builtins.int"}),
        (b"x", {"bytes": "2d711642b726b044"}),
    ],
)
def test_descriptions_are_those_of_earlier_versions(value, expected):
    """Keys are made of them. Of what is installed the name counts, and of functions what was given to them."""
    describer = Describer()
    assert describer.describe(value) == expected
    assert describer.files == set()


def test_of_enclosing_functions_all_counts_but_what_is_left_out_or_not_there_yet():
    first, left, second = 1, object(), 2

    def inner():
        return first, late, left, second

    assert Describer().closure(inner, left) == {"first": 1, "second": 2}
    late = 3
    assert Describer().closure(inner, left) == {"first": 1, "late": 3, "second": 2}


def test_a_function_counts_by_its_source_which_every_python_reads_alike(tmp_path, monkeypatch):
    assert source_of(INSIDE["double"]).startswith('["Lambda"')
    assert source_of(scale).startswith('["FunctionDef"')
    cells = ["def f(x):\n    'Text.'\n    return x", "def f(x):  # why\n    return x", "def f(x):\n    return 2 * x"]
    one, same, other = (source_of(run_cell(cell, monkeypatch)) for cell in cells)
    assert one == same != other


def run_cell(text, monkeypatch):
    """The function f of a notebook's cell, whose lines inspect finds as in a notebook."""
    name, scope = f"<cell {text}>", {"__name__": "notebook"}
    monkeypatch.setitem(linecache.cache, name, (len(text), None, text.splitlines(keepends=True), name))
    exec(compile(text, name, "exec"), scope)
    return scope["f"]


def test_a_function_whose_file_is_broken_meanwhile_counts_by_its_compiled_code(tmp_path):
    file, found = tmp_path / "losses.py", []
    for number in (1, 2):
        file.write_text(f"def loss(x): return x + {number}")
        loss = runpy.run_path(str(file))["loss"]
        file.write_text("def loss(x: (")
        found.append([source_of(loss), source_of(loss)])
    assert found[0][0] == found[0][1] != found[1][0] == found[1][1]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 2),
        ([1, 2], [1, 3]),
        ((1, [2]), (1, [3])),
        ({"a": 1}, {"a": 2}),
        ({"a": [1]}, {"a": [2]}),
        (Path("a"), Path("b")),
        (torch.zeros(1), torch.ones(1)),
    ],
)
def test_plain_values_of_other_cells_count(one, other):
    assert describe(using(one)) == describe(using(one)) != describe(using(other))


@pytest.mark.parametrize("value", [object(), [1, object()], [object(), 1], {"a": 1, "b": object()}, {object(): 1}])
def test_values_of_other_cells_that_are_not_plain_do_not_count(value):
    assert describe(using(value)) == describe(using(threading.Lock()))


def using(value):
    """A function of a notebook that uses a value of another cell."""
    scope = {"__name__": "notebook", "value": value}
    exec("def f(): return value", scope)
    return scope["f"]


def test_functions_and_classes_without_a_file_count_with_what_they_use():
    def made(number):
        scope = {"__name__": "notebook"}
        lines = ["import torch", f"N = {number}", "LOCK = object()"]
        lines += ["def g(x): return [x + N for _ in range(1)]", "class C:", "    def f(self): return g(torch.ones(N))"]
        exec("\n".join([*lines, "def h(): return C().f(), LOCK"]), scope)
        return scope

    assert describe(made(1)["h"]) == describe(made(1)["h"]) != describe(made(2)["h"])
    assert describe(made(1)["C"]) == describe(made(1)["C"]) != describe(made(2)["C"])


def test_differences_are_in_the_order_of_their_names():
    assert differences({"z": 1, "b": 2, "same": 0}, {"a": 1, "b": 3, "same": 0}) == ["a", "b", "z"]


def test_the_order_of_a_notebooks_methods_does_not_count():
    def made(*methods):
        scope = {"__name__": "notebook"}
        exec("\n    ".join(["def g(x): return x\nclass C:", *methods]), scope)
        return scope["C"]

    methods = ["def a(self): return g(1)", "def b(self): return g(2)"]
    assert describe(made(*methods)) == describe(made(*reversed(methods)))


def test_another_process_describes_alike():
    code = """
import json, torch
from pathlib import Path
from trainonce.study.identity import Describer
scope = {"__name__": "notebook"}
cells = ["def both(x): return x in {'p', 'q', 'r', 's'}", "def k(x): return [e, f, g, h, i, j]"]
for cell in [*cells, *(f"def {name}(x): return both(x)" for name in "efghij")]:
    exec(cell, scope)
value = [{"b", "a", "c", "d"}, Path("x"), torch.arange(9.0), torch.nn.ReLU, torch.relu, {1: {"q", "p"}}, scope["k"]]
print(json.dumps(Describer().describe(value)))
"""
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | {"PYTHONHASHSEED": n},
        )
        for n in ("1", "2")
    ]
    assert runs[0].stdout == runs[1].stdout
    assert '"a", "b", "c", "d"' in runs[0].stdout


def test_the_order_of_a_set_does_not_show_in_what_comes_after_it():
    """A function that was described is referred to by a number afterwards; within a set these have no order."""
    functions = [make(number) for number in range(8)]
    texts = {describe([set(functions[n:] + functions[:n]), functions[0], functions[5]]) for n in range(8)}
    assert len(texts) == 1
    assert describe([set(functions), functions[0]]) != describe([set(functions), functions[1]])


class Named:
    """An object whose text holds its address."""


class Choice(enum.Enum):
    ONE = Named()
    TWO = Named()  # noqa: PIE796 another one


def test_members_of_an_enumeration_are_known_by_their_names():
    assert describe(Choice.ONE) == '{"enum": ["Choice", "ONE"]}' != describe(Choice.TWO)


@pytest.mark.parametrize(
    "change",
    [
        {"rate": 2.0},
        {"config": SimpleNamespace(width=2)},
        {"numbers": np.arange(3)},
        {"loss": torch.nn.HuberLoss(delta=2.0)},
        {"step": functools.partial(scale, by=3)},
        {"helper": functools.cache(lambda x: x + 2)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_a_notebook_has_in_other_cells_counts(change):
    def made(**values):
        scope = {"__name__": "notebook", "rate": 1.0, "config": SimpleNamespace(width=1), "numbers": np.arange(4)}
        scope |= {"loss": torch.nn.HuberLoss(delta=1.0), "step": functools.partial(scale, by=2), "log": sys.stdout}
        scope |= {"helper": functools.cache(lambda x: x + 1), **values}
        exec("def f(): return rate, config, numbers, loss, step, helper, log", scope)
        return describe(scope["f"])

    assert made() == made() != made(**change)


def test_a_property_of_a_notebooks_class_counts():
    def made(number):
        scope = {"__name__": "notebook"}
        exec(f"class C:\n    def f(self): ...\n    @property\n    def p(self): return {number}", scope)
        return describe(scope["C"])

    assert made(1) == made(1) != made(2)


def test_the_file_of_a_module_that_a_notebook_imports_is_collected(tmp_path):
    scope = {"__name__": "notebook", "model": sys.modules[__name__], "torch": torch}
    exec("def f(): return model.scale(torch.ones(1))", scope)
    describer = Describer()
    describer.describe(scope["f"])
    assert describer.files == {Path(__file__)}
