"""Tasks: what the decorator takes, which changes make another study of it, and what a trial lets its function do."""

import math
from pathlib import Path

import _tasks
import numpy as np
import pytest
import torch

import trainonce
from trainonce.study import Task, Trial, task
from trainonce.study.executors.task_location import TaskLocation, load_file
from trainonce.study.task import essence
from trainonce.study.trial import as_float, check_metrics
from trainonce.study.weightings import Final, Fixed, Learned, Replay

TWO = {"terms": ["a", "b"], "metric": "error", "direction": "minimize"}


def test_a_task_knows_what_it_was_told():
    @task(**TWO, select="dev", report="eval", unit="m", margin=0.5, one_shot={"init": 1.0}, name="other")
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
def test_what_cannot_be_is_said_when_the_task_is_made(wrong, message):
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

SOURCE = '''
"""About."""
import torch

def helper(x):
    return x + 1

@task(terms=["a"], margin=1.0)
def train(trial, *, steps=3):
    """Text."""
    return helper(steps)
'''


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("margin=1.0", "margin=2.0"),
        ('"""Text."""', '"""Other."""'),
        ("x + 1", "(x + 1)  # why"),
        ("import torch", "\n\nimport torch"),
    ],
)
def test_comments_texts_and_the_decorator_do_not_count(old, new):
    assert essence(SOURCE.replace(old, new), "train") == essence(SOURCE, "train")


@pytest.mark.parametrize(
    ("old", "new"), [("x + 1", "x + 2"), ("helper(steps)", "helper(steps + 1)"), ("steps=3", "steps=4")]
)
def test_what_computes_does_count(old, new):
    assert essence(SOURCE.replace(old, new), "train") != essence(SOURCE, "train")


def test_a_version_stands_for_the_source():
    def made(version, **more):
        @task(terms=["a", "b"], metric="m", direction="minimize", version=version, name="made")
        def one(trial, *, steps=1):
            """."""
            return more

        return one

    def other(version):
        @task(terms=["a", "b"], metric="m", direction="minimize", version=version, name="made")
        def two(trial, *, steps=1):
            """Other code."""

        return two

    assert made(1).identity == other(1).identity != other(2).identity
    assert made(1).identity != made(1).using(steps=2).identity
    assert made(None).identity != made(1).identity


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


def test_a_task_without_a_source_file_is_known_by_its_code():
    def made(text):
        scope = {}
        exec(compile(text, "<nowhere>", "exec"), scope)
        return task(**TWO, name="it")(scope["f"])

    one, same, other = (made(f"def f(trial):\n    def inner(): return {n}\n    return inner()") for n in (1, 1, 2))
    assert one.identity == same.identity != other.identity


def test_what_a_value_is_counts_also_where_it_is_empty():
    texts = [SOURCE.replace("return helper(steps)", f"return {value}") for value in ("None", "''", "[]", "0", "False")]
    assert len({essence(text, "train") for text in texts}) == 5


def test_decorators_and_closures_do_not_hide_what_is_trained():
    def made(factor):
        @task(**TWO, name="it")
        @torch.enable_grad()
        def train(trial):
            return factor

        return train

    assert made(1).identity == made(1).identity != made(2).identity
    assert "enable_grad" in made(1)._source()  # this file, not torch's


def test_settings_that_have_no_lasting_text_are_refused():
    nameless = object()

    @task(**TWO)
    def odd(trial, *, thing=nameless, where=Path("x"), kind=torch.float32): ...

    with pytest.raises(ValueError, match="The setting 'thing' of the task 'odd' has no text that stays the same"):
        odd.identity  # noqa: B018
    fine = odd.using(thing=None)
    assert fine.info()["settings"]["kind"] == "torch.float32"
    assert fine.identity != fine.using(where=Path("y")).identity


def test_a_file_named_from_here_is_found_from_elsewhere(tmp_path, monkeypatch):
    (tmp_path / "near.py").write_text(
        "from trainonce.study import task\n"
        "@task(terms=['a', 'b'], metric='e', direction='minimize')\ndef near(trial): ...\n"
    )
    monkeypatch.chdir(tmp_path)
    where = TaskLocation.of(load_file(Path("near.py")).near)
    monkeypatch.chdir("/")
    assert where.load().name == "near"
    assert where.file == str(tmp_path / "near.py")


def test_a_task_under_another_name_is_found(tmp_path):
    file = tmp_path / "other.py"
    file.write_text(
        "from trainonce.study import task\ndef _train(trial): ...\n"
        "renamed = task(terms=['a', 'b'], metric='e', direction='minimize')(_train)\n"
    )
    found = load_file(file).renamed
    assert TaskLocation.of(found).load().function.__name__ == "_train"


def test_a_task_in_a_file_is_found_from_elsewhere(tmp_path):
    (tmp_path / "neighbour.py").write_text("STEPS = 7\n")
    file = tmp_path / "mine.py"
    file.write_text(
        "from trainonce.study import task\nfrom neighbour import STEPS\n"
        "@task(terms=['a', 'b'], metric='e', direction='minimize')\ndef mine(trial, *, steps=STEPS):\n    ...\n"
    )
    found = load_file(file).mine
    where = TaskLocation.of(found)
    assert where.file == str(file)
    assert where.load().settings == {"steps": 7}
    assert TaskLocation.of(_tasks.line).load() is _tasks.line
    assert TaskLocation.of(task(**TWO)(lambda trial: None)) is None


# The trial


def trial(weighting=None, tmp_path=Path("nowhere"), **more):
    return Trial(_tasks.line, weighting or Learned(init=0.5), 3, dir=tmp_path, **more)


@pytest.mark.parametrize("weighting", [Learned(init=0.5), Fixed.of((1.0, 2.0, 3.0))], ids=["learned", "fixed"])
def test_the_loop_cannot_tell_learned_from_fixed(weighting, tmp_path):
    one = trial(weighting, tmp_path)
    criterion = one.criterion()
    assert isinstance(criterion, trainonce.CompositeLoss)
    assert criterion.terms == _tasks.TERMS
    w = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([w], lr=0.1)
    attachment = one.attach(optimizer)
    assert [len(group["params"]) for group in optimizer.param_groups] == [1, 1]
    assert attachment.history is one.history
    for _ in range(4):
        criterion(list(w.square().unbind())).backward()
        optimizer.step()
    assert one.steps == 4
    assert one.fraction == pytest.approx(4 / 20)
    assert len(one.history) == 4


def test_the_plan_decides_how_the_weights_are_learned(tmp_path):
    one = trial(Learned(init=0.5, decay=3.0, preset="softplus", lr=0.7), tmp_path)
    one.criterion()
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    attachment = one.attach(optimizer)
    assert (attachment.decay, attachment.lr, attachment.regularizer) == (3.0, 0.7, ("softplus",))


def test_controls_take_the_weights_of_another_run(tmp_path):
    source = tmp_path / "source"
    learner = trial(Learned(init=0.5), source)
    _tasks.train(learner, 5)
    learner.history.flush()
    weights = learner.history.weights()
    final = trial(Final(Learned()), tmp_path / "final", source=source).criterion()
    torch.testing.assert_close(final.weights, learner._criterion.weights)  # those after the last step
    assert not torch.allclose(final.weights, weights[-1].float())
    replayed = trial(Replay(Learned()), tmp_path / "replay", source=source)
    _tasks.train(replayed, 5)
    torch.testing.assert_close(replayed.history.weights(), weights, rtol=1e-6, atol=0)


def test_mistakes_in_the_function_are_one_sentence(tmp_path):
    with pytest.raises(RuntimeError, match=r"call trial\.criterion\(\)"):
        trial().attach(torch.optim.SGD([torch.nn.Parameter(torch.ones(1))]))
    one = trial()
    with pytest.raises(
        ValueError, match=r"declared with the terms 'fit', 'small', 'flat'; its function asks for 'fit'"
    ):
        one.criterion(["fit"])
    one.criterion(_tasks.TERMS)
    with pytest.raises(RuntimeError, match="called twice"):
        one.criterion()
    with pytest.raises(ValueError, match="needs the task's metric, 'error'; got 'loss'"):
        one.report(1, loss=2.0)
    one.report(2, error=torch.tensor(1.0), other=3)
    with pytest.raises(ValueError, match="growing steps; got 2 after 2"):
        one.report(2, error=1.0)
    with pytest.raises(TypeError, match="must be a number; got str"):
        one.report(3, error="good")
    assert one.reports == [(2, {"error": 1.0, "other": 3.0})]


def test_only_a_pruner_prunes_and_it_sees_all_reports():
    one = trial()
    one.report(1, error=9.0)
    assert not one.should_prune()
    seen = []
    two = trial(pruner=lambda reports: seen.append(list(reports)) or len(reports) == 2)
    assert not two.should_prune()
    two.report(1, error=9.0)
    assert not two.should_prune()
    two.report(4, error=8.0)
    assert two.should_prune()
    assert two.should_prune()
    assert seen == [[(1, 9.0)], [(1, 9.0), (4, 8.0)]]


def test_progress_is_told_now_and_then_not_at_every_step():
    told = []
    one = trial(notify=lambda *progress: told.append(progress))
    for step in range(1000):
        one.progress(step, 1000, "fine")
    assert told[0] == (0, 1000, "fine")
    assert 1 <= len(told) < 100
    assert one.fraction == 0.0  # what is shown is not what was trained


def test_what_a_function_returns_is_checked():
    metrics, bad = check_metrics(_tasks.line, {"validation/error": torch.tensor(1.0), "test/error": math.inf, "x": 1})
    assert metrics == {"validation/error": 1.0, "test/error": math.inf, "x": 1.0}
    assert bad == ["test/error"]
    with pytest.raises(TypeError, match="The metric 'test/error' must be a number; got list"):
        check_metrics(_tasks.line, {"validation/error": 1, "test/error": []})
    more = {"validation/error": np.float32(1), "test/error": np.array(2.0), "x": [], "y": np.int64(3)}
    with pytest.warns(UserWarning, match="The metric 'x' must be a number; got list. It is not kept"):
        assert check_metrics(_tasks.line, more)[0] == {"validation/error": 1.0, "test/error": 2.0, "y": 3.0}
    with pytest.raises(TypeError):
        as_float("it", True)
