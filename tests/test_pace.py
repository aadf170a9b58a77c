"""Exponents at a pace of their own: Adam's direction at a rate that falls, whatever moves the model."""

from __future__ import annotations

import functools
import math

import pytest
import torch
from torch import nn

import trainonce
from trainonce import pace

OPTIMIZERS = {
    "SGD": functools.partial(torch.optim.SGD, lr=0.3, momentum=0.9, nesterov=True),
    "SGD foreach": functools.partial(torch.optim.SGD, lr=0.3, momentum=0.9, nesterov=True, foreach=True),
    "SGD at 0": functools.partial(torch.optim.SGD, lr=0.0),
    "SGDW": functools.partial(trainonce.SGDW, lr=1e-3, momentum=0.9, weight_decay=0.1),
    "AdamW": functools.partial(torch.optim.AdamW, lr=10.0, weight_decay=0.5),
    "Adam fused": functools.partial(torch.optim.Adam, lr=1e-5, fused=True),
    "Adagrad": functools.partial(torch.optim.Adagrad, lr=0.1),
    "RMSprop": functools.partial(torch.optim.RMSprop, lr=0.01),
}


def path(optimizer, *, scaler=None, schedule=None, layers=False, closure=False, skips=False, steps=40, **settings):
    """The exponents after each step of losses that no parameter changes; with skips, each step after one in vain."""
    one, two = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1))
    criterion = trainonce.CompositeLoss(["a", "b", "c"], **{"travel": 0.2} | settings)
    optimizer = optimizer([{"params": [one]}, {"params": [two], "lr": 0.7}] if layers else [one, two])
    trainonce.attach(optimizer, criterion)
    schedule = schedule and schedule(optimizer)
    found = []

    def backward(step):
        optimizer.zero_grad()
        still = (0 * one).sum() + (0 * two).sum()
        total = criterion(a=still + 1.0, b=still + 2.0 + 0.3 * (step % 3), c=still + 0.2 * (1 + step % 5))
        (total if scaler is None else scaler.scale(total)).backward()
        return total

    for step in range(steps):
        for in_vain in (True, False) if skips else (False,):
            if closure:
                optimizer.step(functools.partial(backward, step))
                continue
            backward(step)
            if in_vain:
                one.grad.fill_(math.inf)
            if scaler is None:
                optimizer.step()
            else:
                scaler.step(optimizer)
                scaler.update()
        if schedule is not None:
            schedule.step()
        found.append(criterion.exponents.detach().clone())
    return torch.stack(found)


@pytest.mark.parametrize("betas", [pace.BETAS])
def test_the_direction_is_adams(betas):
    torch.manual_seed(0)
    w = nn.Parameter(torch.zeros(3, dtype=torch.float64))
    optimizer = torch.optim.Adam([w], lr=1.0, betas=betas)
    means = torch.zeros(2, 3, dtype=torch.float64)
    for step in range(50):
        w.grad = torch.randn(3, dtype=torch.float64) * 10.0**step**0.5
        before = w.detach().clone()
        optimizer.step()
        direction = pace.direction(w.grad, *means, step)
        torch.testing.assert_close(before - w.detach(), direction, rtol=1e-9, atol=1e-12)


def test_a_step_is_adams_and_the_decays_at_the_falling_rate():
    """Against the definition, term by term."""
    found = path(OPTIMIZERS["SGD"], init=0.5, decay=3.0, travel=0.4)
    mu = torch.full((2,), 0.5).log()
    means = torch.zeros(2, 2)
    for step in range(40):
        losses = torch.tensor([1.0, 2.0 + 0.3 * (step % 3), 0.2 * (1 + step % 5)])
        rate, pull = 0.4 / (step + 10), trainonce.functional.regularizer_grad(mu)
        direction = pace.direction(trainonce.functional.composite_grad(mu, losses), *means, step)
        mu = mu - rate * direction - rate * 3.0 * pull
        torch.testing.assert_close(found[step], mu, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_what_moves_the_model_has_no_say(name):
    expected = path(OPTIMIZERS["SGD"])
    assert (expected[-1] - expected[0]).abs().max() > 0.1
    assert torch.equal(path(OPTIMIZERS[name]), expected)
    assert torch.equal(path(OPTIMIZERS[name], layers=True), expected)  # groups with different rates
    for factor in (lambda step: 0.5**step, lambda step: min(step / 20, 1.0), lambda step: max(1 - step / 20, 0.0)):
        schedule = functools.partial(torch.optim.lr_scheduler.LambdaLR, lr_lambda=factor)
        assert torch.equal(path(OPTIMIZERS[name], schedule=schedule), expected)
    assert torch.equal(path(OPTIMIZERS[name], closure=True), expected)


@pytest.mark.parametrize("name", ["SGD", "Adam fused"])
def test_gradscaler_changes_nothing(name):
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=5)
    torch.testing.assert_close(path(OPTIMIZERS[name], scaler=scaler), path(OPTIMIZERS[name]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["SGD", "Adam fused"])
def test_a_skipped_step_is_none(name):
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**60, growth_interval=10**6)
    found = path(OPTIMIZERS[name], scaler=scaler, skips=True)
    torch.testing.assert_close(found, path(OPTIMIZERS[name]), rtol=1e-5, atol=1e-6)


def test_a_model_that_ascends_takes_the_exponents_along():
    down, up = (path(functools.partial(torch.optim.SGD, lr=0.1, maximize=m), init=1, decay=0.0) for m in (False, True))
    torch.testing.assert_close(up[0], -down[0])


def test_a_rate_by_hand_stays_one():
    criterion = trainonce.CompositeLoss(["a", "b"])
    model = {"params": [nn.Parameter(torch.ones(1))]}
    optimizer = torch.optim.SGD([model, {"params": criterion.parameters(), "lr": 0.7}], lr=0.1)
    trainonce.attach(optimizer, criterion).remove()
    assert "lr=0.7" in repr(trainonce.attach(optimizer, criterion))


@pytest.mark.parametrize(("saved", "built"), [({}, {"lr": "model"}), ({"lr": 0.1}, {})])
def test_a_checkpoint_of_the_other_kind_is_refused(saved, built):
    state = trainonce.CompositeLoss(["a", "b"], init=0.3, **saved).state_dict()
    criterion = trainonce.CompositeLoss(["a", "b"], **built)
    with pytest.raises(RuntimeError, match=r"In the checkpoint the exponents move at .*: build it as it was saved"):
        criterion.load_state_dict(dict(state))
    assert criterion.ratios()[1] == 1


def test_the_size_of_the_losses_changes_nothing():
    """The pull apart, which is off here."""
    paths = []
    for size in (1.0, 1000.0):
        w, criterion = nn.Parameter(torch.ones(1)), trainonce.CompositeLoss(["a", "b"], decay=0.0, travel=0.2)
        optimizer = torch.optim.SGD([w], lr=0.0)
        trainonce.attach(optimizer, criterion)
        for _ in range(30):
            criterion(a=size * w.sum(), b=size * 0.3 * w.sum()).backward()
            optimizer.step()
            optimizer.zero_grad()
        paths.append(criterion.exponents.item())
    assert paths[0] == pytest.approx(paths[1], rel=1e-5)


@pytest.mark.parametrize(
    ("make", "rate"),
    [
        (lambda criterion: torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1), "travel of 0.2"),
        (lambda criterion: torch.optim.SGD([{"params": [nn.Parameter(torch.ones(1))]},
                                            {"params": criterion.parameters(), "lr": 0.7}], lr=0.1), "lr=0.7"),
    ],
)  # fmt: skip
def test_a_rate_that_the_user_gave_is_used(make, rate):
    criterion = trainonce.CompositeLoss(["a", "b"], travel=0.2)
    optimizer = make(criterion)
    assert rate in repr(trainonce.attach(optimizer, criterion))


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"travel": -1}, "travel must be a number of at least 0"),
        ({"travel": "model"}, "travel must be a number of at least 0; got 'model'"),
        ({"travel": 1, "lr": 1}, "give one of them; got lr=1 and travel=1"),
    ],
)
def test_bad_settings(settings, text):
    with pytest.raises(ValueError, match=text):
        trainonce.CompositeLoss(["a", "b"], **settings)
