"""The other rules in a stack are TorchJD's: its scalarizers as the library's plans train them, its aggregators."""

import pytest
import torch
from _arena_alone import Alone, distance
from _arena_toy import TOY

from benchmarks.arena.rules import Point
from benchmarks.arena.rules.gram_rules import config_weights, upgrad_weights
from benchmarks.arena.rules.small_systems import nearest_above, solve
from benchmarks.arena.stack import Stack
from benchmarks.arena.variant import Variant
from trainonce import History
from trainonce.study.rules import make

CLOSE = 1e-9


def train(rule, steps=TOY.steps):
    stack = Stack(TOY, [Point("uniform", {}), Point(rule, {})], [1], dtype=torch.float64, variant=Variant(steps=steps))
    stack.train()
    return stack


@pytest.fixture
def double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("method", ["uw", "imtl-l", "dwa", "famo"])
def test_losses_alone(method, double):
    pytest.importorskip("torchjd")
    alone, peer = Alone(1), make(method)
    criterion = peer.build(TOY.terms, steps=TOY.steps)
    step = alone.optimizer()
    peer.attach(step, criterion, History())
    for _ in range(TOY.steps):
        step.zero_grad()
        criterion(alone.losses()).backward()
        step.step()
    stack = train(method)
    assert distance(stack, 0, 1, alone.model) < CLOSE
    torch.testing.assert_close(stack.weights[0, 1], criterion.coefficients(), atol=CLOSE, rtol=0)


def matrices():
    generator = torch.Generator().manual_seed(0)
    for rows in (2, 3, 4):
        for size in (1.0, 100.0):
            matrix = torch.randn(rows, 7, generator=generator, dtype=torch.float64)
            matrix[0] *= size
            yield matrix


@pytest.mark.parametrize("method", ["ConFIG", "UPGrad"])
def test_aggregators(method):
    aggregation = pytest.importorskip("torchjd.aggregation")
    if method == "UPGrad":
        pytest.importorskip("quadprog")
    weigh = {"ConFIG": config_weights, "UPGrad": upgrad_weights}[method]
    for matrix in matrices():
        expected = getattr(aggregation, method)()(matrix)
        torch.testing.assert_close(weigh(matrix @ matrix.T) @ matrix, expected, atol=1e-6, rtol=1e-6)


def test_config_has_equal_cosines_to_all_gradients():
    for matrix in matrices():
        direction = config_weights(matrix @ matrix.T) @ matrix
        cosines = matrix @ direction / matrix.norm(dim=1) / direction.norm()
        torch.testing.assert_close(cosines, cosines.mean().expand_as(cosines))


def test_upgrad_against_a_slow_solver():
    """TorchJD's quadratic program, one coordinate after the other, until none moves."""
    for matrix in matrices():
        gram, count = matrix @ matrix.T, len(matrix)
        gram = gram / gram.trace() + 1e-4 * torch.eye(count)
        weights = torch.zeros(count, dtype=torch.float64)
        for row in torch.eye(count, dtype=torch.float64) / count:
            v = row.clone()
            for i in list(range(count)) * 1000:
                v[i] = torch.maximum(row[i], v[i] - gram[i] @ v / gram[i, i])
            weights += v
        torch.testing.assert_close(upgrad_weights(matrix @ matrix.T), weights, atol=1e-6, rtol=1e-6)


def test_a_small_quadratic_program():
    gram = torch.tensor([[2.0, -1.5, 0.3], [-1.5, 3.0, 0.2], [0.3, 0.2, 1.0]], dtype=torch.float64)
    floor = torch.tensor([0.7, 0.0, 0.1], dtype=torch.float64)
    v = nearest_above(gram, floor)
    slope = gram @ v
    assert (v >= floor - 1e-12).all()
    assert (slope >= -1e-12).all()  # larger entries would not lower the value
    assert (slope * (v - floor)).abs().max() < 1e-12  # and where it could be lowered the floor holds
    assert v[1] > 0.1


def test_many_systems_at_once():
    root = torch.randn(5, 2, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    matrix = root @ root.transpose(-1, -2) + torch.eye(4)
    right = root[..., 0]
    torch.testing.assert_close(solve(matrix, right), torch.linalg.solve(matrix, right))


def test_gradnorm_follows_its_objective():
    """A few steps against autograd on the objective as it is written."""
    alone = Alone(1, steps=10)
    logits = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    step = alone.optimizer([logits])
    first = None
    for _ in range(10):
        losses = alone.losses()
        first = losses.detach() if first is None else first
        norms = torch.stack([alone.shared_gradient(loss).norm() for loss in losses])
        weights = 3 * logits.softmax(0)
        weighted = weights * norms
        relative = losses.detach() / first
        target = (weighted.mean() * (relative / relative.mean()) ** 1.5).detach()
        step.zero_grad()
        (weights.detach() * losses).sum().backward()
        (logits.grad,) = torch.autograd.grad((weighted - target).abs().sum(), logits)
        step.step()
    assert distance(train("gradnorm", steps=10), 0, 1, alone.model) < CLOSE
