"""Tasks: what the decorator takes, and which changes make another study of it."""

import _tasks
import pytest

from trainonce.study import Preset, Task, task
from trainonce.study.plans import parse
from trainonce.study.rules import fixed

TWO = {"terms": ["a", "b"], "metric": "error", "direction": "minimize"}


def test_a_task_knows_what_the_decorator_was_given():
    @task(**TWO, select="dev", report="eval", unit="m", margin=0.5, yoto={"init": 1.0}, name="other")
    def anything(trial, *, steps=5, rate=0.1):
        """What it is.

        And more.
        """

    assert isinstance(anything, Task)
    assert (anything.name, anything.about, anything.steps) == ("other", "What it is.", 5)
    assert (anything.select_key, anything.report_key) == ("dev/error", "eval/error")
    assert anything.using(rate=0.5).settings == {"steps": 5, "rate": 0.5}
    assert anything.settings == {"steps": 5, "rate": 0.1}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"direction": "max"}, "direction must be 'maximize' or 'minimize'; got 'max'"),
        ({"select": "test"}, "must be different splits"),
        ({"metric": "a/b"}, "metric must be a name without '/'"),
        ({"margin": -1}, "margin is an amount of the metric"),
        ({"terms": ["a"]}, "two or more terms"),
        ({"terms": ["a", "a"]}, "distinct"),
    ],
)
def test_what_does_not_fit_is_one_sentence_when_the_task_is_made(wrong, message):
    with pytest.raises(ValueError, match=message):
        task(**TWO | wrong)


@pytest.mark.parametrize("function", [lambda: None, lambda trial, steps: None, lambda trial, *, steps: None])
def test_functions_of_another_shape_are_refused(function):
    with pytest.raises(TypeError, match="task function takes"):
        task(**TWO)(function)


def test_unknown_settings_are_one_sentence():
    with pytest.raises(
        ValueError, match=r"The task 'line' has no setting 'step'; it has: steps, lr, pause\. Did you mean 's"
    ):
        _tasks.line.using(step=3)
    with pytest.raises(ValueError, match="must be at least 1; got 0"):
        _tasks.line.using(steps=0)


# What makes it another study


def with_preset(preset):
    @task(**TWO, yoto={"init": 0.5, "decay": 1.0}, presets={"odd": preset})
    def function(trial, *, steps=5, rate=0.1):
        """A task with a preset."""

    return function


def test_a_preset_is_its_settings_and_those_given_afterwards_go_before_it():
    plain = with_preset(Preset("odd", {"rate": 1}, yoto={"decay": 3.0}))
    chosen = plain.preset("odd")
    assert chosen.settings == {"steps": 5, "rate": 1.0}
    assert parse("yoto", chosen).rules == parse("yoto(init=0.5,decay=3)", plain).rules
    assert parse("yoto(decay=4)", chosen).rules == parse("yoto(init=0.5,decay=4)", plain).rules
    assert chosen.using(rate=2).settings["rate"] == 2.0
    assert chosen.identity == plain.using(rate=1).identity != plain.identity


def test_a_preset_that_is_not_there_or_does_not_fit_is_one_sentence():
    task = with_preset(Preset("odd"))
    with pytest.raises(ValueError, match=r"has no preset 'odt'; it has: 'odd'\. Did you mean 'odd'\?"):
        task.preset("odt")
    with pytest.raises(ValueError, match=r"The task 'line' has no preset 'odd'; it has: none\."):
        _tasks.line.preset("odd")
    with pytest.raises(ValueError, match=r"has no setting 'rat'; .* Did you mean 'rate'\?"):
        with_preset(Preset("odd", {"rat": 1}))


def test_incidental_settings_do_not_matter():
    @task(terms=["a", "b"], metric="m", direction="minimize", incidental=["where"])
    def made(trial, *, steps=1, where="here"):
        """."""

    assert made.identity == made.using(where="there").identity != made.using(steps=2).identity
    assert made.info()["settings"] == {"steps": 1}
    with pytest.raises(ValueError, match=r"^incidental names settings of the function; 'wher' is none"):
        task(terms=["a", "b"], metric="m", direction="minimize", incidental=["wher"])(made.function)


def test_settings_make_another_identity_and_nothing_else_does():
    line = _tasks.line
    assert line.identity != line.using(steps=3).identity
    assert line.using(steps=3).identity == line.using(steps=4).using(steps=3).identity


def test_own_weights_are_a_plan():
    mine = task(terms=["a", "b"], metric="m", direction="minimize", own={"b": 3, "a": 1})(without_own.function)
    assert parse("own", mine).rules == (fixed((1, 3)),)
    assert parse("own", without_own).rules == (fixed((1, 1)),)
    for wrong in ({"a": 1}, {"a": 1, "b": 2, "c": 3}, {"a": 1, "b": -1}, {"a": 1, "b": "2"}):
        with pytest.raises(ValueError, match="own is a weight of at least 0 for each of the terms 'a', 'b'; got"):
            task(terms=["a", "b"], metric="m", direction="minimize", own=wrong)


@task(terms=["a", "b"], metric="m", direction="minimize")
def without_own(trial):
    """Has no weights of its own."""
