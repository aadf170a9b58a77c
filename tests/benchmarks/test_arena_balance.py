"""Gradient balance in a stack against a slow loop over one model, written on its own from the formulas."""

import math

import pytest
import torch
from _arena_alone import Alone, distance
from _arena_toy import TOY

import trainonce
from benchmarks.arena.rules import Point
from benchmarks.arena.rules.balance import due_steps
from benchmarks.arena.stack import Stack
from benchmarks.arena.variant import Variant

STEPS = 40
CLOSE = 1e-9
SETTINGS = [
    {},
    {"p": 1.0, "c": None, "norm": "sum", "every": 0},
    {"p": 0.75, "c": 1.5, "warm": 0.25, "place": "last"},
    {"p": 0.0, "norm": "sum", "warm_steps": 7, "mean": 0.8, "prior": 0.3},
    {"prior": [0.3, 4.0]},
    {"travel": 20.0, "every": 0.3},
    {"travel": 20.0, "every": 0.1, "held_mean": 0.9, "cosine_mean": 0.0, "clock": "log"},
    {"travel": 6.0, "norm": "sum", "place": "last", "every": 0.1},
]


def slow_balance(alone, step, p=0.75, c=10.0, norm="base", warm=0.0, warm_steps=10, every=0.05, mean=0.5,
               place="all", travel=0.0, prior=1.0, held_mean=0.0, cosine_mean=0.9, clock="run"):  # fmt: skip
    """Train one model and return its last weights."""
    where = {"all": "trunk.", "last": "trunk.2."}[place]
    count, rise = len(TOY.terms), warm * STEPS + warm_steps
    mu = [0.0, *map(math.log, prior if isinstance(prior, list) else [prior] * (count - 1))]
    squares, peaks, held, sums, next_due, last_due = None, [0.0] * count, None, None, 0, 0
    for t in range(STEPS):
        losses = alone.losses()
        if t == next_due:
            found = [alone.shared_gradient(loss, where) for loss in losses]
            now = [float(g @ g) for g in found]
            squares = now if squares is None else [mean * a + (1 - mean) * b for a, b in zip(squares, now, strict=True)]
            norms = [math.sqrt(s) for s in squares]
            peaks = [max(a, b) for a, b in zip(peaks, norms, strict=True)]
            if travel:
                h = alone.shared_gradient(TOY.held_out(alone.model, alone.data, alone.draw), where)
                held = h if held is None else held_mean * held + (1 - held_mean) * h
                fresh = [[float(g @ held), float(g @ g), float(held @ held)] for g in found]
                sums = (
                    fresh
                    if sums is None
                    else [
                        [cosine_mean * a + (1 - cosine_mean) * b for a, b in zip(old, new, strict=True)]
                        for old, new in zip(sums, fresh, strict=True)
                    ]
                )
                cos = [product / math.sqrt(one * other) for product, one, other in sums]
                total = sum(math.exp(m) for m in mu)
                average = sum(math.exp(m) / total * x for m, x in zip(mu, cos, strict=True))
                rate = travel * ((t - last_due) / STEPS if clock == "run" else math.log((t + 1) / (last_due + 1)))
                mu = [0.0] + [m + rate * (x - average) for m, x in zip(mu[1:], cos[1:], strict=True)]
            last_due, next_due = t, t + max(1, math.ceil(every * t - 1e-12))
        ratios = [1.0]
        for i in range(1, count):
            fall = ((norms[0] / peaks[0]) * (peaks[i] / norms[i])) ** p
            ratios.append(peaks[0] / peaks[i] * (fall if c is None else min(max(fall, 1 / c), c)))
        factor = min(1.0, t / rise) if rise else 1.0
        w = [1.0] + [factor * math.exp(m) * r for m, r in zip(mu[1:], ratios[1:], strict=True)]
        w = [x / sum(w) for x in w] if norm == "sum" else [x / count for x in w]
        step.zero_grad()
        sum(a * loss for a, loss in zip(w, losses, strict=True)).backward()
        step.step()
    return torch.tensor(w, dtype=torch.float64) / sum(w)


@pytest.fixture(scope="module")
def trained():
    points = [Point("units", settings) for settings in SETTINGS]
    stack = Stack(TOY, points, [1, 2], dtype=torch.float64, variant=Variant(steps=STEPS))
    return stack, stack.train()


@pytest.mark.parametrize("point", range(len(SETTINGS)))
def test_balances_are_those_of_a_slow_loop(trained, point):
    stack, result = trained
    alone = Alone(2, STEPS)
    weights = slow_balance(alone, alone.optimizer(), **SETTINGS[point])
    assert distance(stack, 1, point, alone.model) < CLOSE
    torch.testing.assert_close(result.weights[1, point, -1], weights, atol=CLOSE, rtol=0)


def test_the_scale_of_a_loss_does_not_matter():
    """With the base's weight constant. Where weights sum to 1 the sum depends on it, which Adam does not feel."""
    points = [Point("units", settings) for settings in SETTINGS if "norm" not in settings]
    a, b = (
        Stack(TOY, points, [0], dtype=torch.float64, variant=Variant(scale, "sgd", steps=STEPS))
        for scale in ({}, {"side": 1000.0, "smooth": 0.01})
    )
    a.train()
    b.train()
    for name, value in a.parameters.items():
        torch.testing.assert_close(value, b.parameters[name], atol=1e-9, rtol=0)


def test_measurements_are_spaced_by_a_share_of_the_steps():
    assert due_steps(6, 0.01) == [0, 1, 2, 3, 4, 5]
    found = due_steps(10_000, 0.01)
    assert found[99:104] == [99, 100, 101, 103, 105]
    assert 500 < len(found) < 560  # 100 + 100 ln(100)
    assert due_steps(5, 0.0) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"travel": 4.0},
        {"place": "last"},
        {"travel": 0.3, "clock": "log"},
    ],
)
def test_the_library_trains_as_the_arena_does(settings):
    """BalancedLoss, its shared parameters found by itself, against a model of the stack."""
    stack = Stack(TOY, [Point("units", settings)], [1, 2], dtype=torch.float64, variant=Variant(steps=STEPS))
    stack.train()
    alone = Alone(2, STEPS)
    criterion = trainonce.BalancedLoss(
        TOY.terms,
        at=settings.get("place", "all"),
        validation=lambda: TOY.held_out(alone.model, alone.data, alone.draw),
        steps=None if settings.get("clock") == "log" else STEPS,
        travel=settings.get("travel", 0.0),
        scale=1 / len(TOY.terms),
    ).double()
    step = alone.optimizer()
    trainonce.attach(step, criterion)
    for _ in range(STEPS):
        losses = alone.losses()
        step.zero_grad()
        criterion(losses).backward()
        step.step()
    assert distance(stack, 1, 0, alone.model) < CLOSE
