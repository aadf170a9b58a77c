"""Which changes make another task of it: decorators, what it was made with, and the files that it imports."""

import functools
import importlib.util
import runpy
import sys
import threading
from pathlib import Path

import pytest
import torch

from trainonce.study import task
from trainonce.study.identity import Describer, source
from trainonce.study.identity.code import code_of, files_of

TWO = {"terms": ["a", "b"], "metric": "error", "direction": "minimize", "name": "it"}

FILE = """
from trainonce.study import task
from trainonce.study.identity import Describer, code_of
from model import width
{more}
@task(terms=["a", "b"], metric="error", direction="minimize"{given})
{decorator}
def it(trial, *, steps=1):
    return width
"""
WITH_BIAS = """
import functools
def with_bias(bias):
    def decorate(function):
        {wraps}
        def wrapper(trial, *, steps=1):
            return function(trial, steps=steps) + bias
        return wrapper
    return decorate
"""


@pytest.fixture
def load(tmp_path, monkeypatch):
    """The task of a file that is written anew, with its neighbour model.py."""
    monkeypatch.syspath_prepend(tmp_path)
    count = iter(range(100))

    def write_and_load(more="", given="", decorator="", model="width = 1", files=()):
        folder = tmp_path / str(next(count))
        folder.mkdir()
        for name, text in {"model.py": model, **dict(files)}.items():
            (folder / name).write_text(text)
        (folder / "it.py").write_text(FILE.format(more=more, given=given, decorator=decorator))
        monkeypatch.syspath_prepend(folder)
        spec = importlib.util.spec_from_file_location(f"{folder.parent.name}_{folder.name}", folder / "it.py")
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, module)
        for name in ("model", "plots"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        spec.loader.exec_module(module)
        return module.it

    return write_and_load


def test_a_change_in_an_imported_file_counts_and_a_comment_does_not(load):
    first = load().identity
    assert load(model="width = 1  # wide enough").identity == first
    assert load(model="width = 2").identity != first


def test_a_file_may_be_left_out(load):
    plots = [{"plots.py": "COLOUR = 1"}, {"plots.py": "COLOUR = 2"}]
    seen = {load("import plots", files=each).identity for each in plots}
    assert len(seen) == 2
    ignored = {load("import plots", ', ignore_files=["plots.py"]', files=each).identity for each in plots}
    assert len(ignored) == 1
    assert ignored.isdisjoint(seen)
    assert load("import plots", ', ignore_files=["*"]', files=plots[0], model="width = 3").identity in {
        load("import plots", ', ignore_files=["*"]', files=plots[1]).identity
    }


def test_a_file_that_is_not_imported_cannot_be_left_out(load):
    with pytest.raises(
        ValueError, match=r"^ignore_files names files .* 'plot.py' is none of them\. It imports: 'model"
    ):
        load(given=', ignore_files=["plot.py"]').identity  # noqa: B018


@pytest.mark.parametrize("wraps", ["@functools.wraps(function)", ""])
def test_what_other_decorators_are_given_counts(load, wraps):
    def made(bias, given=""):
        return load(WITH_BIAS.format(wraps=wraps), f"{given}, name='it'", f"@with_bias({bias})").identity

    assert made(0) == made(0) == made(0, ", margin=2.0")
    assert made(0) != made(100)


def test_a_decorator_that_is_applied_as_a_function_counts_with_what_it_was_given():
    def with_bias(bias, function):
        @functools.wraps(function)
        def wrapper(trial, *, steps=1):
            return function(trial, steps=steps) + bias

        return wrapper

    def train(trial, *, steps=1): ...

    one, same, other = (task(**TWO)(with_bias(bias, train)).identity for bias in (0, 0, 100))
    assert one == same != other


def test_what_a_task_was_made_with_counts():
    def made(value):
        @task(**TWO)
        @torch.enable_grad()
        def train(trial):
            return value

        return train.identity

    numbers = torch.arange(5000.0)
    values = [1, 2, {"a"}, numbers, numbers + (numbers == 1000), lambda x: x, lambda x: x + 1, torch.relu]
    assert len({made(value) for value in values}) == len(values)
    assert made({"b", "a"}) == made({"a", "b"})
    assert made(numbers) == made(numbers.clone())


def test_the_object_of_a_method_counts():
    class Trainer:
        def __init__(self, width):
            self.width = width

        def train(self, trial, *, steps=1): ...

    one, same, other = (task(**TWO)(Trainer(width).train).identity for width in (1, 1, 2))
    assert one == same != other


def test_what_cannot_be_told_apart_is_refused_in_one_sentence():
    lock = threading.Lock()

    @task(**TWO)
    def train(trial):
        return lock

    with pytest.raises(
        ValueError, match=r"^The task 'it' was made with a value that cannot .*: lock = <unlocked .*>\. "
    ):
        train.identity  # noqa: B018
    assert task(**TWO, version=1)(train.function).identity


def test_a_task_without_a_file_is_known_by_its_code_and_what_it_uses():
    def made(text, number=1):
        scope = {"__name__": "notebook", "task": task, "TWO": TWO, "number": number}
        exec(compile(text, "<nowhere>", "exec"), scope)
        return scope["f"].identity

    text = "def g(x): return x + 1\n@task(**TWO)\ndef f(trial):\n    def inner(): return g(number)\n    return inner()"
    assert made(text) == made(text)
    assert (
        len({made(text), made(text, 2), made(text.replace("x + 1", "x + 2")), made(text.replace("return i", "i"))}) == 4
    )


def twice(function):
    """A decorator in the file of the task itself."""

    @functools.wraps(function)
    def wrapper(trial):
        return function(trial), function(trial)

    return wrapper


def plain(trial): ...


def test_a_task_that_imports_nothing_beside_it_has_the_key_of_earlier_versions():
    """Its own file is not among the others, also where what it was made with is from there."""

    def made(helper):
        return lambda trial: helper

    own = source.file_text(Path(__file__))
    assert code_of(plain, Describer()) == [own, []]
    text, (closure,) = code_of(made(plain), Describer())
    assert (text, list(closure)) == (own, ["helper"])


def test_the_files_that_a_task_imports_are_sorted_by_their_names(load):
    found = load(
        "import plots", model="import zeros, also\nwidth = 1", files={"plots.py": "", "zeros.py": "", "also.py": ""}
    )
    files = code_of(found.function, Describer())[2]
    assert [name for name, _ in files] == ["also.py", "model.py", "plots.py", "zeros.py"]


@pytest.mark.parametrize("decorate", [lambda function: function, twice, torch.no_grad(), functools.cache])
def test_the_files_of_a_task_begin_with_its_own_whatever_decorates_it(decorate):
    assert list(files_of(decorate(plain))) == [Path(__file__).name]
    assert code_of(torch.no_grad()(plain), Describer())[0] == source.file_text(Path(__file__))


def test_the_whole_file_counts_of_a_function_from_elsewhere(tmp_path, monkeypatch):
    """Not only its own lines: it uses others, and what its file imports."""

    def identity(**texts):
        for name, text in {"scale": "SCALE = 1", **texts}.items():
            (tmp_path / f"{name}.py").write_text(text)
        scope = runpy.run_path(str(tmp_path / "losses.py"))
        loss = scope["loss"]

        def train(trial):
            return loss

        return task(**TWO)(train).identity

    monkeypatch.syspath_prepend(tmp_path)
    losses = "from scale import SCALE\nHALF = 0.5\ndef loss(x): return x * HALF * SCALE"
    found = [
        identity(losses=losses),
        identity(losses=losses.replace("0.5", "0.25")),
        identity(losses=losses, scale="SCALE = 2"),
    ]
    assert len(set(found)) == 3
    assert identity(losses=losses) == found[0]


def test_a_task_without_a_file_has_no_files():
    scope = {"__name__": "notebook"}
    exec(compile("def f(trial): ...", "<nowhere>", "exec"), scope)
    assert files_of(scope["f"]) == {}


def test_files_of_the_same_name_in_other_folders_all_count(load, tmp_path):
    """A task imports its own model.py, and was made with a function of another model.py."""
    elsewhere = tmp_path / "elsewhere" / "model.py"
    elsewhere.parent.mkdir()

    def made(own, other):
        elsewhere.write_text(f"width = {other}")
        describer = Describer()
        describer.files.add(elsewhere)
        return str(code_of(load(model=f"width = {own}").function, describer))

    assert len({made(3, 3), made(4, 3), made(3, 4), made(4, 4)}) == 4
    assert made(3, 4) == made(3, 4)


class Timed:
    def __init__(self, function, times=1):
        functools.update_wrapper(self, function)
        self.times = times

    def __call__(self, *given, **more):
        return self.__wrapped__(*given, **more)


def simple(trial, *, steps=1): ...


def other(trial, *, steps=1):
    return 2


def test_decorators_that_are_no_functions_count_with_what_they_hold():
    one, same, more, code = (Timed(simple), Timed(simple), Timed(simple, 2), Timed(other))
    keys = [task(**TWO)(each).identity for each in (one, same, more, code, functools.cache(simple))]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 4


def test_the_defaults_of_a_wrapper_count():
    def made(value):
        @functools.wraps(simple)
        def wrapper(trial, _value=value, *, steps=1): ...

        return task(**TWO)(wrapper).identity

    assert made(1) == made(1) != made(2)


@pytest.mark.parametrize("given", [functools.partial(simple, steps=2), Timed])
def test_a_task_is_made_of_a_function(given):
    with pytest.raises(TypeError, match=r"^@task decorates a function; got "):
        task(**TWO)(given)


def test_a_value_that_contains_itself_is_one_sentence():
    loop = {}
    loop["loop"] = loop

    @task(**TWO)
    def train(trial, *, value=loop): ...

    with pytest.raises(ValueError, match=r"^The setting 'value' of the task 'it' cannot be told apart"):
        train.identity  # noqa: B018


def test_settings_with_other_keys_than_names_are_shown_as_python_prints_them():
    @task(**TWO)
    def train(trial, *, value={(1, 2): 3}): ...  # noqa: B006

    assert train.info()["settings"] == {"value": "{(1, 2): 3}"}
