"""Every model of a stack is the model that plain PyTorch trains alone."""

import pytest
import torch
from _arena_alone import Alone, distance
from _arena_toy import TOY

import trainonce
from benchmarks.arena.rules import Point
from benchmarks.arena.stack import Stack, moments_of
from benchmarks.arena.variant import Variant

SEEDS = (0, 3)
CLOSE = 1e-9


@pytest.fixture
def double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def train(points, variant=None, task=TOY):
    stack = Stack(task, [Point(*point) for point in points], SEEDS, dtype=torch.float64, variant=variant)
    return stack, stack.train()


def plain(seed, weights, optimizer="adam"):
    alone = Alone(seed)
    step = alone.optimizer(name=optimizer)
    for _ in range(TOY.steps):
        step.zero_grad()
        (alone.losses() * torch.tensor(weights, dtype=torch.float64)).sum().backward()
        step.step()
    return alone


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_fixed_weights(optimizer):
    points = [("grid", {"ratios": [1.0, 3.0]}), ("grid", {"ratios": [0.5, 0.5]}), ("uniform", {}), ("base", {})]
    weights = [[0.2, 0.2, 0.6], [0.5, 0.25, 0.25], [1 / 3] * 3, [1.0, 0, 0]]
    stack, result = train(points, Variant(optimizer=optimizer))
    for at, seed in enumerate(SEEDS):
        for point, given in enumerate(weights):
            alone = plain(seed, given, optimizer)
            assert distance(stack, at, point, alone.model) < CLOSE
            with torch.no_grad():
                scores = [TOY.score(alone.model, alone.data, split) for split in ("validation", "test")]
            assert result.curve[at, point, -1] == pytest.approx(scores[0].item(), abs=CLOSE)
            assert result.test[at, point] == pytest.approx(scores[1].item(), abs=CLOSE)
    torch.testing.assert_close(result.weights[0, :, -1], torch.tensor(weights, dtype=torch.float64))


def test_weights_that_differ_by_seed():
    stack, _ = train([("fixed", {"ratios": [[1.0, 3.0], [0.5, 0.5]]})])
    for at, weights in enumerate(([0.2, 0.2, 0.6], [0.5, 0.25, 0.25])):
        assert distance(stack, at, 0, plain(SEEDS[at], weights).model) < CLOSE


def test_a_scaled_loss():
    stack, _ = train([("uniform", {})], Variant({"side": 100.0}))
    assert distance(stack, 1, 0, plain(SEEDS[1], [1 / 3, 1 / 3, 100 / 3]).model) < CLOSE


@pytest.mark.filterwarnings("ignore::trainonce.health.OtherScale")
@pytest.mark.parametrize("fold", [None, 0.4])
@pytest.mark.parametrize(("init", "rho", "optimizer"), [(1.0, 2.0, "adam"), (0.1, 2.0, "adam"), (1.0, 0.5, "sgd")])
def test_printed(init, rho, optimizer, fold, double):
    """Of several points side by side, those with another rate among them."""
    points = [("uniform", {}), ("printed", {"init": init, "rho": rho, "fold": fold}), ("printed", {"travel": 3.0})]
    stack, result = train(points, Variant(optimizer=optimizer))
    for at, seed in enumerate(SEEDS):
        alone = Alone(seed)
        rate = {"lr": "model"} if fold is None else {"travel": fold}
        criterion = trainonce.CompositeLoss(TOY.terms, init=init, decay=rho, **rate)
        step = alone.optimizer(name=optimizer)
        trainonce.attach(step, criterion)
        for _ in range(TOY.steps):
            step.zero_grad()
            last = trainonce.functional.weights(criterion.exponents.detach())
            criterion(alone.losses()).backward()
            step.step()
        assert distance(stack, at, 1, alone.model) < CLOSE
        torch.testing.assert_close(result.weights[at, 1, -1], last, atol=CLOSE, rtol=0)


def test_a_model_that_diverges_leaves_the_others_alone():
    sgd = Variant({"side": 1e6}, "sgd")  # far too large a step where the term has any weight
    stack, result = train([("uniform", {}), ("base", {})], sgd)
    assert result.finite.tolist() == [[False, True]] * len(SEEDS)
    assert distance(stack, 0, 1, plain(SEEDS[0], [1.0, 0.0, 0.0], "sgd").model) < CLOSE


def test_the_curve_has_the_rungs_of_a_search():
    assert {25, 100, 300, 900} <= set(moments_of(900))
    assert len(moments_of(900)) == 36
    assert moments_of(5)[-1] == 5


def test_an_unknown_term_is_refused():
    with pytest.raises(ValueError, match="the terms fit, smooth, side; got noise"):
        Stack(TOY, [Point("uniform", {})], [0], variant=Variant({"noise": 2.0}))
