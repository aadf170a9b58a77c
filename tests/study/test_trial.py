"""Trials: what a training function can do with one."""

import math
from pathlib import Path

import _tasks
import numpy as np
import pytest
import torch

import trainonce
from trainonce.study import Trial
from trainonce.study.trial import as_float, check_metrics
from trainonce.study.weightings import Final, Fixed, Learned, Replay

TWO = {"terms": ["a", "b"], "metric": "error", "direction": "minimize"}


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


def test_progress_is_reported_now_and_then_not_at_every_step():
    calls = []
    one = trial(notify=lambda *progress: calls.append(progress))
    for step in range(1000):
        one.progress(step, 1000, "fine")
    assert calls[0] == (0, 1000, "fine")
    assert 1 <= len(calls) < 100
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
