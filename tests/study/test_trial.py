"""Trials: what a training function can do with one."""

import math
from pathlib import Path

import _tasks
import numpy as np
import pytest
import torch
from _stores import balance, final, replay, yoto

import trainonce
from trainonce.study import Trial, layout
from trainonce.study.rules import fixed
from trainonce.study.trial import as_float, check_metrics

TWO = {"terms": ["a", "b"], "metric": "error", "direction": "minimize"}


def trial(rule=None, tmp_path=Path("nowhere"), **more):
    return Trial(_tasks.line, rule or yoto(init=0.5), 3, dir=tmp_path, **more)


@pytest.mark.parametrize("rule", [yoto(init=0.5), balance(), fixed((1.0, 2.0, 3.0))], ids=lambda rule: rule.name)
def test_the_loop_cannot_tell_rules_apart(rule, tmp_path):
    one = trial(rule, tmp_path)
    criterion = one.criterion()
    assert criterion.terms == _tasks.TERMS
    w = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([w], lr=0.1)
    attachment = one.attach(optimizer)
    assert attachment.history is one.history
    for _ in range(4):
        criterion(list(w.square().unbind())).backward()
        optimizer.step()
    assert one.steps == 4
    assert one.fraction == pytest.approx(4 / 20)
    assert len(one.history) == 4


def test_the_plan_decides_all_settings_of_the_rule(tmp_path):
    found = trial(yoto(init=0.5, decay=3.0, regularizer=["softplus"], lr=0.7), tmp_path).criterion(scale=2.0)
    assert (found.decay, found.lr, found.regularizer, found.scale) == (3.0, 0.7, ("softplus",), 2.0)
    balanced = trial(balance(at="last", travel=2), tmp_path).criterion(validation=torch.ones, scale=6.0)
    assert (balanced.travel, balanced.validation, balanced.steps) == (2.0, torch.ones, 20)
    assert balanced.coefficients().tolist() == [2.0, 2.0, 2.0]  # the base is held at 1/3 of the scale


@pytest.mark.parametrize("rule", [yoto(init=0.5), balance()], ids=lambda rule: rule.name)
def test_controls_take_the_coefficients_of_another_run(rule, tmp_path):
    source = tmp_path / "source"
    ran = trial(rule, source)
    _tasks.train(ran, 5)
    ran.history.flush()
    schedule = ran.history.coefficients()
    held = trial(final(rule), tmp_path / "final", source=source).criterion()
    if rule.trains:  # those after the last step
        torch.testing.assert_close(held.coefficients(), ran._criterion.coefficients())
        assert not torch.allclose(held.coefficients(), schedule[-1].float())
    else:
        torch.testing.assert_close(held.coefficients(), schedule[-1].float())
    replayed = trial(replay(rule), tmp_path / "replay", source=source)
    _tasks.train(replayed, 5)
    torch.testing.assert_close(replayed.history.coefficients(), schedule, rtol=1e-6, atol=0)


def test_the_last_coefficients_are_those_after_the_last_step_also_where_it_had_no_call(tmp_path):
    w, criterion = torch.nn.Parameter(torch.ones(1)), trainonce.CompositeLoss(["a", "b"], decay=1.0, scale=3.0)
    optimizer = torch.optim.SGD([w], lr=0.1, momentum=0.9)
    history = trainonce.History(tmp_path / layout.HISTORY)
    trainonce.attach(optimizer, criterion, history=history)
    for step in range(8):
        optimizer.zero_grad(set_to_none=False)
        if step < 3:
            criterion(a=(w**2).sum(), b=w.abs().sum()).backward()
        optimizer.step()
    history.flush()
    held = final(yoto()).build(("a", "b"), scale=3.0, source=tmp_path)
    torch.testing.assert_close(held.coefficients(), criterion.coefficients())


def test_a_control_of_a_run_without_a_step_is_one_sentence(tmp_path):
    history = trainonce.History(tmp_path / layout.HISTORY)
    trainonce.attach(torch.optim.SGD([torch.ones(1)], lr=0.1), trainonce.BalancedLoss(["a", "b"]), history=history)
    for control in (final(balance()), replay(balance()), final(yoto())):
        with pytest.raises(ValueError, match="has no step"):
            control.build(("a", "b"), source=tmp_path)


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
