"""The Burgers recipe: an exact reference, derivatives carried forward, one loop for all criteria."""

import math

import pytest
import torch
from _tasks import FakeTrial

import trainonce
from trainonce.recipes import burgers as recipe
from trainonce.recipes.burgers import TERMS, VISCOSITY, Batch, Model, Part, burgers, error, exact

CPU = torch.device("cpu")


def trial_with(criterion=None, seed=0, **more):
    return FakeTrial(criterion or trainonce.FixedLoss(dict(zip(TERMS, (1.0, 1.0, 10.0), strict=True))), seed, **more)


@pytest.fixture(autouse=True)
def _one_thread():
    """The matrices are small: a second thread only waits, and on a busy machine long."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def grid(instants, places):
    return torch.cartesian_prod(torch.as_tensor(instants).double(), torch.as_tensor(places).double()).T


# The reference


def test_the_reference_starts_and_ends_as_it_should():
    x = torch.linspace(-1, 1, 65, dtype=torch.float64)
    torch.testing.assert_close(exact(torch.zeros_like(x), x), -torch.sin(math.pi * x), rtol=0, atol=1e-14)
    t = torch.linspace(0, 1, 21, dtype=torch.float64)
    for side in (-1.0, 1.0):
        assert exact(t, torch.full_like(t, side)).abs().max() < 1e-13


def test_the_reference_is_odd():
    t, x = grid(torch.linspace(0, 1, 11), torch.linspace(0, 1, 41))
    torch.testing.assert_close(exact(t, -x), -exact(t, x), rtol=0, atol=1e-13)


def test_more_nodes_change_nothing():
    t, x = grid(torch.linspace(0, 1, 21), torch.linspace(-1, 1, 101))
    torch.testing.assert_close(exact(t, x), exact(t, x, nodes=192), rtol=0, atol=1e-12)


def test_another_quadrature_of_the_same_integrals_agrees():
    """A plain sum over y, in steps of 0.0002, instead of nodes in z."""
    y = torch.linspace(-4, 4, 40001, dtype=torch.float64)
    for t, x in ((0.05, -0.9), (0.3, 0.01), (0.5, -0.004), (0.99, 0.0196), (1.0, 0.6)):
        log_g = -((x - y) ** 2) / (4 * VISCOSITY * t) - torch.cos(math.pi * y) / (2 * math.pi * VISCOSITY)
        g = (log_g - log_g.max()).exp()
        expected = -(g * torch.sin(math.pi * y)).sum() / g.sum()
        found = exact(torch.tensor([t], dtype=torch.float64), torch.tensor([x], dtype=torch.float64))
        assert found.item() == pytest.approx(expected.item(), abs=1e-12)


def test_the_reference_solves_the_equation_where_it_is_smooth():
    t, x = grid(torch.linspace(0.05, 0.95, 10), [-0.9, -0.6, -0.3, -0.1, 0.2, 0.5, 0.8])
    h = 1e-4
    u_t = (exact(t + h, x) - exact(t - h, x)) / (2 * h)
    u_x = (exact(t, x + h) - exact(t, x - h)) / (2 * h)
    u_xx = (exact(t, x + h) - 2 * exact(t, x) + exact(t, x - h)) / h**2
    assert u_t.abs().max() > 1  # there is something to balance
    assert (u_t + exact(t, x) * u_x - VISCOSITY * u_xx).abs().max() < 1e-5


def test_the_steepest_slope_is_the_one_in_the_literature():
    # C. Basdevant et al., Computers & Fluids 14 (1986): 152.00516, at x = 0 and pi t = 1.6037
    h, t = 1e-5, torch.tensor([1.6037 / math.pi], dtype=torch.float64)
    slope = exact(t, torch.full_like(t, h)) / h
    assert slope.item() == pytest.approx(-152.00516, rel=1e-5)


def test_the_quadrature_integrates_powers():
    z, log_weights = recipe.gauss_hermite(16)
    for k in range(8):
        assert (log_weights.exp() * z ** (2 * k)).sum().item() == pytest.approx(math.gamma(k + 0.5), rel=1e-12)


# Points


def test_the_held_out_points_are_two_parts_of_one_grid():
    validation, test = recipe.load()
    assert (len(validation.points), len(test.points)) == (5000, 10000)
    t, x = torch.cat([validation.points, test.points]).T
    row, column = t * 200, (x + 1) * 256
    assert (row - row.round()).abs().max() < 1e-9
    assert (column - column.round()).abs().max() < 1e-9
    assert len((row.round() * 513 + column.round()).unique()) == 15000
    assert (t.min(), t.max(), x.min(), x.max()) == (0, 1, -1, 1)
    for part in (validation, test):
        torch.testing.assert_close(part.solution, exact(*part.points.T), rtol=0, atol=0)


def test_a_batch_has_its_points_where_they_belong():
    batch = recipe.draw(torch.Generator().manual_seed(3), CPU)
    assert [tuple(points.shape) for points in batch] == [(610, 2), (32, 2), (32, 2)]
    for t, x in (points.T for points in batch):
        assert 0 <= t.min() <= t.max() <= 1
        assert -1 <= x.min() <= x.max() <= 1
    assert sorted(batch.boundary[:, 1].tolist()) == [-1] * 16 + [1] * 16
    assert batch.initial[:, 0].tolist() == [0] * 32


def test_a_batch_covers_the_domain_evenly_and_batches_differ():
    rng = torch.Generator().manual_seed(0)
    batches = [recipe.draw(rng, CPU) for _ in range(50)]
    for batch in batches:
        t, x = batch.inside.T
        for low in (0.0, 0.25, 0.5, 0.75):
            share = ((t >= low) & (t < low + 0.25) & (x.abs() < 0.5)).double().mean().item()
            assert share == pytest.approx(1 / 8, abs=0.02)
        assert batch.initial[:, 1].sort().values.diff().max() < 0.07
        for side in (-1, 1):
            times = batch.boundary[batch.boundary[:, 1] == side, 0]
            assert times.sort().values.diff().max() < 0.07
    assert len({batch.inside[0, 0].item() for batch in batches}) == 50
    again = recipe.draw(torch.Generator().manual_seed(0), CPU)
    assert all(torch.equal(a, b) for a, b in zip(again, batches[0], strict=True))


# Model and losses


def slow_flow(model, points):
    """The derivatives by differentiating twice."""
    points = points.clone().requires_grad_()
    u = model(points)
    (first,) = torch.autograd.grad(u.sum(), points, create_graph=True)
    (second,) = torch.autograd.grad(first[:, 1].sum(), points, create_graph=True)
    return u, first[:, 1], first[:, 0] - VISCOSITY * second[:, 1]


def test_derivatives_carried_forward_are_those_of_autograd():
    model, points = Model().double(), torch.rand(40, 2, dtype=torch.float64) * 2 - 1
    for found, expected in zip(model.flow(points), slow_flow(model, points), strict=True):
        assert expected.abs().max() > 1e-3
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def test_each_term_is_the_mean_square_of_what_should_be_zero():
    model = Model().double()
    batch = Batch(*(points.double() for points in recipe.draw(torch.Generator().manual_seed(1), CPU)))
    u, u_x, drift = slow_flow(model, batch.inside)
    start = [model(point[None]).item() + math.sin(math.pi * point[1].item()) for point in batch.initial]
    ends = [model(point[None]).item() for point in batch.boundary]
    expected = {
        "residual": (drift + u * u_x).square().mean().item(),
        "boundary": math.fsum(v * v for v in ends) / 32,
        "initial": math.fsum(v * v for v in start) / 32,
    }
    found = recipe.losses(model, batch)
    assert tuple(found) == TERMS
    assert {name: value.item() for name, value in found.items()} == pytest.approx(expected, rel=1e-10)


def test_every_term_reaches_every_parameter():
    model = Model()
    names = [name for name, _ in model.named_parameters()]
    for term, value in recipe.losses(model, recipe.draw(torch.Generator().manual_seed(0), CPU)).items():
        grads = torch.autograd.grad(value, list(model.parameters()), retain_graph=True)
        missed = [name for name, grad in zip(names, grads, strict=True) if grad.abs().max() == 0]
        assert missed == [], term


def test_the_second_derivative_takes_part_in_the_gradient():
    """Or a network would learn the equation without viscosity, whose shock is a jump."""
    model, points = Model().double(), torch.rand(20, 2, dtype=torch.float64)
    fast, slow = model.flow(points).drift.square().sum(), slow_flow(model, points)[2].square().sum()
    parameters = [p for p in model.parameters() if p is not model.layers[-1].bias]  # it has no derivative
    for a, b in zip(torch.autograd.grad(fast, parameters), torch.autograd.grad(slow, parameters), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


# Metric


class Times(torch.nn.Module):
    """The exact solution times a factor."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, points):
        return self.factor * exact(*points.T)


@pytest.mark.parametrize(("factor", "expected"), [(0.0, 100), (1.0, 0), (1.1, 10), (-1.0, 200)])
def test_the_error_is_relative_and_in_per_cent(factor, expected):
    assert error(Times(factor), recipe.load().validation) == pytest.approx(expected, abs=1e-3)


def test_the_error_of_a_case_made_by_hand():
    part = Part(torch.zeros(2, 2), torch.tensor([3.0, 4.0]))
    model = torch.nn.Module()
    model.forward = lambda points: torch.tensor([3.0, 5.0])
    assert error(model, part) == pytest.approx(20)  # 1 of 5


# Task


def test_the_task_says_what_it_is():
    assert (burgers.terms, burgers.metric, burgers.direction) == (TERMS, "error", "minimize")
    assert (burgers.select_key, burgers.report_key) == ("validation/error", "test/error")
    assert burgers.settings == {"steps": 1500, "lr": 0.02}
    assert len(burgers.about) > 20


def test_a_short_training_halves_the_error():
    torch.manual_seed(0)
    before = error(Model(), recipe.load().test)
    trial = trial_with()
    found = burgers.using(steps=400)(trial)
    assert set(found) == {"validation/error", "test/error"}
    for value in found.values():
        assert value < before / 2
    assert found["validation/error"] != found["test/error"]
    assert found["validation/error"] == pytest.approx(found["test/error"], rel=0.2)
    assert [step for step, _ in trial.reports] == list(range(14, 401, 14))
    assert trial.reports[0][1]["error"] > found["validation/error"]


def test_a_seed_decides_the_result():
    runs = [burgers.using(steps=5)(trial_with(seed=seed)) for seed in (0, 0, 1)]
    assert runs[0] == runs[1] != runs[2]


def test_a_rule_that_cannot_move_trains_as_fixed_weights_do():
    """The loop cannot tell them apart: same start, same points."""
    criteria = (
        trainonce.CompositeLoss(TERMS, init=0.5, lr=0.0, decay=0.0),
        trainonce.FixedLoss(dict(zip(TERMS, (0.5, 0.25, 0.25), strict=True))),
    )
    columns = []
    for criterion in criteria:
        history = trainonce.History()
        columns.append(burgers.using(steps=10)(trial_with(criterion, history=history)) | history.columns())
    learned, given = columns
    for name in (f"{kind}/{term}" for kind in ("loss", "coefficient") for term in TERMS):
        assert len(given[name]) == 10
        assert learned[name] == pytest.approx(given[name], rel=1e-4)
    assert learned["test/error"] == pytest.approx(given["test/error"], rel=1e-4)


def test_the_papers_rule_moves():
    criterion = trainonce.CompositeLoss(TERMS, init=1.0)
    start = criterion.coefficients()
    burgers.using(steps=20)(trial_with(criterion))
    assert (criterion.coefficients() - start).abs().max() > 0.01


def test_training_leaves_the_global_random_state_alone():
    state = torch.get_rng_state()
    burgers.using(steps=2)(trial_with())
    assert torch.equal(torch.get_rng_state(), state)
