"""The drift: a loss on held-out data moves the exponents."""

import copy
import math

import pytest
import torch

import trainonce
from tests.units._task import TERMS, Heads, batches, make, train
from trainonce import GradientUnits, HeldOut


def held_out_loss(model, x):
    return model(x)["fit"]


def run(made, data, held, after=False):
    model, criterion, optimizer = made
    for x, y in zip(data, held, strict=True):
        optimizer.zero_grad()
        if not after:
            criterion.held_out(lambda y=y: held_out_loss(model, y))
        criterion(model(x)).backward()
        if after:
            criterion.held_out(lambda y=y: held_out_loss(model, y))
        optimizer.step()
    return criterion


def data_of(steps, dtype=torch.float64):
    both = batches(2 * steps, dtype)
    return both[:steps], both[steps:]


@pytest.mark.parametrize("settings", [HeldOut(steps=30, travel=20.0), HeldOut(travel=5.0)])
def test_the_drift_is_what_a_slow_reference_makes_of_it(settings):
    """Every measurement by plain backward passes, cosines from running means of products."""
    data, held = data_of(30)
    units = GradientUnits(blend=0.0, every=0.1, rise=0)
    model, criterion, _optimizer = made = make(units, dtype=torch.float64, signal=settings)
    run(made, data, held)

    torch.manual_seed(0)
    twin = Heads(torch.float64)
    steps = torch.optim.Adam(twin.parameters(), lr=1e-2)
    mu, peak, norms, means, due, last = [0.0, 0.0, 0.0], {}, {}, None, 0, 0

    def at_trunk(loss):
        return torch.cat(
            [g.flatten() for g in torch.autograd.grad(loss, list(twin.trunk.parameters()), retain_graph=True)]
        )

    for step, (x, y) in enumerate(zip(data, held, strict=True)):
        losses = twin(x)
        if step == due:
            gradients = {name: at_trunk(loss) for name, loss in losses.items()}
            for name, g in gradients.items():
                now = g.norm().item()
                norms[name] = math.sqrt(0.5 * norms.get(name, now) ** 2 + 0.5 * now**2)
                peak[name] = max(peak.get(name, 0.0), norms[name])
            h = at_trunk(held_out_loss(twin, y))
            fresh = [(float(g @ h), float(g @ g), float(h @ h)) for g in gradients.values()]
            means = means or fresh
            means = [
                tuple(0.9 * a + 0.1 * b for a, b in zip(old, new, strict=True))
                for old, new in zip(means, fresh, strict=True)
            ]
            cosines = [p / math.sqrt(a * b) for p, a, b in means]
            mean = sum(math.exp(m) * c for m, c in zip(mu, cosines, strict=True)) / sum(map(math.exp, mu))
            passed = (step - last) / 30 if settings.steps else math.log((step + 1) / (last + 1))
            moves = [settings.travel * passed * (c - mean) for c in cosines]
            mu = [0.0, mu[1] + moves[1], mu[2] + moves[2]]
            last, due = step, step + max(1, math.ceil(0.1 * step))
        weights = [math.exp(m) * peak["fit"] / peak[name] / 3 for m, name in zip(mu, TERMS, strict=True)]
        steps.zero_grad()
        sum(w * losses[name] for w, name in zip(weights, TERMS, strict=True)).backward()
        steps.step()
    assert max(map(abs, mu)) > 0.1
    torch.testing.assert_close(criterion.exponents.detach(), torch.tensor(mu[1:], dtype=torch.float64))
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("after", [False, True])
def test_the_loss_is_evaluated_only_when_a_measurement_is_near(after):
    model, criterion, optimizer = make()
    asked = []
    for step, x in enumerate(batches(400)):
        optimizer.zero_grad()
        for before in (True, False):
            if before != after:
                criterion.held_out(lambda step=step, x=x: asked.append(step) or held_out_loss(model, x))
            else:
                criterion(model(x)).backward()
        optimizer.step()
    assert 60 < len(asked) < 90
    assert asked[-1] > 300
    assert len(set(asked)) == len(asked)
    assert criterion.exponents.abs().max() > 0


def test_a_travel_of_0_evaluates_nothing():
    model, criterion, optimizer = make(signal=trainonce.HeldOut(travel=0))
    plain, other, steps = make()
    for x in batches(5):
        criterion.held_out(lambda: pytest.fail("evaluated"))
        train(model, criterion, optimizer, [x])
        train(plain, other, steps, [x])
    assert all(map(torch.equal, model.parameters(), plain.parameters()))
    assert torch.equal(criterion.weights, other.weights)


def test_without_held_out_data_the_exponents_rest():
    _, criterion, _ = made = make()
    train(*made, batches(30))
    assert criterion.exponents.tolist() == [0, 0]


def test_terms_that_agree_with_the_held_out_loss_gain():
    """The second term is the first on other data; the third is its opposite."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    criterion = trainonce.CompositeLoss(["fit", "same", "opposite"], units="gradient", signal=HeldOut(steps=100))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    trainonce.attach(optimizer, criterion)

    def fit(x):
        return (model(x) - x[:, :1]).square().mean()

    for x in batches(100, size=64):
        a, b, c, d = x.chunk(4)
        criterion.held_out(lambda d=d: fit(d))
        optimizer.zero_grad()
        criterion(fit=fit(a), same=fit(b), opposite=-fit(c)).backward()
        optimizer.step()
    same, opposite = criterion.exponents.tolist()
    assert opposite < -1
    assert abs(same) < 0.5
    assert criterion.shares[2] < 0.2
    assert criterion.weights[0] * criterion.total == pytest.approx(1 / 3)  # the base's weight is held


def test_a_resumed_run_is_the_same_bit_for_bit():
    data, held = data_of(40, torch.float32)
    whole = make(signal=HeldOut(steps=40))
    run(whole, data, held)
    first = make(signal=HeldOut(steps=40))
    run(first, data[:23], held[:23])
    saved = copy.deepcopy([part.state_dict() for part in first])
    second = make(signal=HeldOut(steps=40))
    for part, state in zip(second, saved, strict=True):
        part.load_state_dict(state)
    run(second, data[23:], held[23:])
    for a, b in zip(whole[0].parameters(), second[0].parameters(), strict=True):
        assert torch.equal(a, b)
    assert torch.equal(whole[1].exponents, second[1].exponents)


def test_a_checkpoint_with_the_terms_in_another_order_is_sorted():
    criterion = run(make(), *data_of(10, torch.float32))
    other = trainonce.CompositeLoss(["fit", "flat", "twice"], units="gradient")
    other.load_state_dict(criterion.state_dict())
    assert other.meter.drift.products.tolist() == [criterion.meter.drift.products.tolist()[i] for i in (0, 2, 1)]
    assert other.exponents.tolist() == criterion.exponents.tolist()[::-1]


def test_freeze_stops_the_drift():
    _model, criterion, _optimizer = made = make()
    run(made, *data_of(5, torch.float32))
    criterion.freeze()
    before = criterion.exponents.tolist()
    run(made, *data_of(5, torch.float32))
    assert criterion.exponents.tolist() == before


def test_weights_frozen_from_the_start_do_not_drift():
    model, criterion, optimizer = make()
    criterion.freeze()
    for x in batches(3):
        criterion.held_out(lambda: pytest.fail("evaluated"))
        train(model, criterion, optimizer, [x])
    assert criterion.exponents.tolist() == [0, 0]
    assert (criterion.weights > 0).all()


@pytest.mark.parametrize("options", [{"units": "raw"}, {"signal": "loss"}])
def test_criteria_that_have_no_use_for_it_ignore_it(options):
    """So that a loop works with any criterion, as a study needs it."""
    model, criterion, _ = make(**options)
    for given in (criterion, trainonce.FixedLoss(dict.fromkeys(TERMS, 1.0))):
        given.held_out(lambda: pytest.fail("evaluated"))
        given.share(model.trunk(batches(1)[0]))
        assert given(model(batches(1)[0])).isfinite()


@pytest.mark.parametrize("bad", [1.0, torch.ones(2, requires_grad=True), torch.ones(())])
def test_held_out_needs_a_scalar_loss_with_a_gradient(bad):
    model, criterion, _ = make()
    criterion.held_out(lambda: bad)
    with pytest.raises(TypeError, match="returns a scalar loss with a gradient"):
        criterion(model(batches(1)[0]))


def test_named_tensors_and_held_out_do_not_go_together():
    model, criterion, _ = make()
    x = batches(1)[0]
    features = model.trunk(x)
    criterion.share(features)
    criterion.held_out(lambda: held_out_loss(model, x))
    with pytest.raises(RuntimeError, match="measures at the tensors that share named"):
        criterion(fit=features.sum(), twice=features.mean(), flat=features.var())


def test_a_held_out_loss_that_is_not_finite_changes_nothing():
    model, criterion, _ = made = make()
    run(made, *data_of(3, torch.float32))
    products = criterion.meter.drift.products.clone()
    criterion.held_out(lambda: held_out_loss(model, batches(1)[0]) * math.nan)
    criterion(model(batches(1)[0]))
    assert torch.equal(criterion.meter.drift.products, products)
    assert all(map(math.isfinite, criterion.exponents.tolist()))


@pytest.mark.parametrize(
    ("settings", "message"), [({"steps": 0}, "whole number of steps"), ({"travel": -1}, "travel of at least 0")]
)
def test_wrong_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        HeldOut(**settings)


def test_a_run_that_is_longer_than_said_drifts_no_further():
    made = make(signal=HeldOut(steps=5))
    run(made, *data_of(6, torch.float32))
    at_the_end = made[1].exponents.tolist()
    run(made, *data_of(6, torch.float32))
    assert made[1].exponents.tolist() == at_the_end


@pytest.mark.parametrize("bad", [None, 3])
def test_held_out_needs_a_function(bad):
    with pytest.raises(TypeError, match="held_out needs a function"):
        make()[1].held_out(bad)
