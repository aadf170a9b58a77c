"""BalancedLoss: what it measures and when, in every setting that it takes."""

import copy
import functools
import math

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import trainonce
from tests.balance._task import TERMS, Heads, batches, by_hand, make, train
from trainonce import BalancedLoss, health

SGD = functools.partial(torch.optim.SGD)


def norms_at(losses, places):
    found = []
    for loss in losses:
        parts = torch.autograd.grad(loss, places, retain_graph=True, allow_unused=True)
        found.append(torch.stack([p.norm() for p in parts if p is not None]).norm())
    return torch.stack(found)


# Against a slow reference


@pytest.mark.parametrize(
    ("weights", "held", "options"),
    [
        (None, False, {}),
        (None, False, {"follow": 0.0, "every": 0.2}),
        ([2.0, 0.1, 5.0], False, {"follow": 1.0}),
        (None, True, {"steps": 30, "travel": 20.0}),
        ([1.0, 0.3, 0.1], True, {}),
    ],
)
def test_a_training_is_what_a_slow_reference_makes_of_it(weights, held, options):
    both = batches(60, torch.float64)
    data, other = both[:30], both[30:]
    terms = TERMS if weights is None else dict(zip(TERMS, weights, strict=True))
    model, criterion, optimizer = make(terms, optimizer=SGD, dtype=torch.float64, lr=0.05, **options)
    found = []
    for x, y in zip(data, other, strict=True):
        if held:
            criterion.validation = lambda y=y: model(y)["fit"]
        optimizer.zero_grad()
        criterion(model(x)).backward()
        found.append(criterion.coefficients().tolist())
        optimizer.step()
    expected, twin = by_hand([[x] for x in data], [[y] for y in other] if held else None, weights=weights, **options)
    torch.testing.assert_close(torch.tensor(found), torch.tensor(expected), rtol=1e-6, atol=1e-9)
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)
    assert (criterion.alignment.abs().max() > 0.01) == held


# From nothing, from weights


@pytest.mark.parametrize("factor", [1e-3, 1e4])
def test_the_scale_of_an_auxiliary_loss_does_not_matter(factor):
    found = [train(*make(), batches(30), factors=(1, f, 1)).coefficients() for f in (1.0, factor)]
    torch.testing.assert_close(found[1] * torch.tensor([1.0, factor, 1.0]), found[0], rtol=1e-3, atol=0)
    assert found[0][0] == 1


def test_from_weights_the_first_coefficients_are_exactly_these():
    """And so is each term's strength relative to that start, from which it goes on."""
    weights = {"fit": 1.0, "twice": 0.1, "flat": 3.0}
    model, criterion, optimizer = make(weights)
    criterion(model(batches(1)[0]))
    assert torch.equal(criterion.coefficients(), torch.tensor(list(weights.values())))
    train(model, criterion, optimizer, batches(30))
    grown = criterion.coefficients()
    tenfold = make(weights | {"twice": 1.0})
    train(*tenfold, batches(1))
    assert tenfold[1].coefficients()[1].item() == pytest.approx(1.0)
    assert grown[0] == 1
    assert (grown[1:] / torch.tensor([0.1, 3.0]) - 1).abs().max() > 0.01


@pytest.mark.parametrize(
    ("terms", "options", "message"),
    [
        (TERMS, {"follow": 2}, "needs follow between 0 and 1; got 2"),
        (TERMS, {"every": "x"}, "needs every between 0 and 1; got 'x'"),
        (TERMS, {"steps": 0}, "whole number of steps of the training; got steps=0"),
        (TERMS, {"travel": -1}, "needs a travel of at least 0; got -1"),
        (TERMS, {"at": "first"}, "got at='first'"),
        ({"fit": 0, "twice": 1}, {}, "BalancedLoss needs a weight above 0 for the base; got 0 for 'fit'"),
        ({"fit": 1, "twice": math.nan}, {}, "weights of at least 0; got nan for 'twice'"),
    ],
)
def test_wrong_settings(terms, options, message):
    with pytest.raises(ValueError, match=message):
        BalancedLoss(terms, **options)


@pytest.mark.parametrize("at", [[], [torch.ones(1)], 3, torch.ones(2)])
def test_places_are_parameters(at):
    with pytest.raises(TypeError, match="needs parameters that require gradients as at="):
        BalancedLoss(TERMS, at=at)


# When


def test_measurements_are_log_spaced_and_once_a_step():
    model, criterion, optimizer = make(every=0.2)
    found = []
    for _ in range(40):
        before = criterion._places.measured
        for x in batches(3):
            (criterion(model(x)) / 3).backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(criterion._places.measured - before)
    assert [i for i, count in enumerate(found) if count] == [0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 18, 22, 27, 33]
    assert max(found) == 1


def test_terms_come_in_over_their_first_steps():
    model, criterion, optimizer = make(lr=0.0)
    shares = []
    for step in range(26):
        losses = model(batches(1)[0])
        criterion(losses if step >= 12 else losses | {"flat": None}).backward()
        shares.append(criterion.coefficients().tolist())
        optimizer.step()
    twice = [row[1] / shares[-1][1] for row in shares]
    flat = [row[2] / shares[-1][2] for row in shares[12:]]
    assert twice == pytest.approx([min(1.0, step / 10) for step in range(26)])
    assert flat == pytest.approx([min(1.0, step / 10) for step in range(14)])


# What is not there


def test_a_batch_without_the_base_measures_nothing():
    model, criterion, _ = make()
    criterion(model(batches(1)[0]) | {"fit": None})
    assert criterion.norms.isnan().all()
    assert criterion.coefficients().tolist() == [1, 1, 1]


@pytest.mark.parametrize("bad", [0.0, math.nan, math.inf])
@pytest.mark.parametrize("frozen", [False, True])
def test_a_term_without_a_gradient_keeps_its_start_until_it_has_one(bad, frozen):
    model, criterion, optimizer = make(lr=0.0)
    if frozen:
        criterion.freeze()
    losses = model(batches(1)[0])
    criterion(losses | {"flat": losses["flat"] * bad})
    assert criterion.coefficients()[2] == 1
    found = criterion(model(batches(1)[0]))
    if frozen:
        assert criterion.coefficients()[2] != 1
        assert found.isfinite()
    else:
        train(model, criterion, optimizer, batches(12))
        assert criterion.coefficients()[2] not in (0, 1)


def test_frozen_before_the_first_call_it_is_what_that_call_finds():
    model, criterion, optimizer = make()
    criterion.freeze()
    criterion(model(batches(1)[0]) | {"flat": None})
    first = criterion.coefficients()
    assert first[2] == 1
    assert first[1] != 1
    train(model, criterion, optimizer, batches(5))
    assert torch.equal(criterion.coefficients()[:2], first[:2])  # what is known stays
    assert criterion.coefficients()[2] != 1  # a term that comes later gets one


# Where


@pytest.mark.parametrize("how", ["module", "parameters", "names alone"])
def test_named_parameters(how):
    model = Heads()
    given = {"module": model.trunk, "parameters": model.trunk.parameters(), "names alone": "all"}[how]
    found = train(*make(model=model, at=given), batches(5)).coefficients()
    torch.testing.assert_close(found, train(*make(), batches(5)).coefficients())


@pytest.mark.parametrize("stacked", [False, True])
def test_the_last_shared_layer_is_the_last_of_the_trunk(stacked):
    def call(criterion):
        return (lambda losses: criterion(torch.stack(list(losses.values())))) if stacked else criterion

    model, criterion, optimizer = make(at="last")
    found = train(model, criterion, optimizer, batches(5), call=call(criterion))
    twin = Heads()
    named = train(*make(model=twin, at=twin.trunk[2]), batches(5))
    torch.testing.assert_close(found.coefficients(), named.coefficients())


def test_features_of_the_call():
    """There each norm is that of the gradient at them, whatever lies below."""
    model, criterion, _ = make()
    criterion.freeze()  # else the terms come in from 0
    features = model.trunk(batches(1)[0])
    a, b = model.fit(features), model.twice(features)
    losses = {"fit": a.square().mean(), "twice": b.square().mean(), "flat": a.var()}
    criterion(losses, at=features)
    norms = norms_at(losses.values(), [features])
    torch.testing.assert_close(criterion.coefficients(), norms[0] / norms)
    with pytest.raises(TypeError, match=r"BalancedLoss measures at tensors that carry gradients.*got Tensor"):
        criterion(model(batches(1)[0]), at=torch.ones(1))
    with torch.no_grad():
        criterion(model(batches(1)[0]), at=model.trunk(batches(1)[0]))  # validation may name them, too


def test_features_and_a_validation_loss_do_not_go_together():
    model, criterion, _ = make(validation=lambda: model(batches(1)[0])["fit"])
    features = model.trunk(batches(1)[0])
    a = model.fit(features)
    with pytest.raises(RuntimeError, match="compared at parameters, but this call names tensors"):
        criterion(fit=a.square().mean(), twice=a.mean(), flat=a.var(), at=[features])


def test_what_counts_as_shared():
    """Not another network's parameters, inputs, or frozen layers; sparse ones and losses that are parameters do."""
    model, critic = Heads(), nn.Linear(1, 1)
    criterion = BalancedLoss(["a", "b"])
    optimizer = torch.optim.Adam(model.parameters())
    trainonce.attach(optimizer, criterion)
    x = batches(1)[0].requires_grad_()
    z = model.trunk(x)
    losses = [critic(model.fit(z)).mean(), critic(model.twice(z)).square().mean()]
    criterion.freeze()(losses)
    norms = norms_at(losses, list(model.trunk.parameters()))
    torch.testing.assert_close(criterion.coefficients()[1], norms[0] / norms[1])
    table = nn.Embedding(10, 4, sparse=True)
    rows = table(torch.tensor([1, 1, 3]))
    sparse = BalancedLoss(["a", "b"])
    sparse(a=rows.sum(), b=4 * rows.sum())
    assert sparse.coefficients().tolist() == pytest.approx([1, 0.25])
    w = nn.Parameter(torch.ones(()))
    itself = BalancedLoss(["a", "b"])
    itself(a=w, b=2 * w)
    assert itself.coefficients().tolist() == pytest.approx([1, 0.5])


def test_a_layer_may_be_frozen_and_unfrozen():
    model, criterion, optimizer = make()
    model.trunk[0].requires_grad_(False)
    train(model, criterion, optimizer, batches(2))
    model.trunk[0].requires_grad_(True)
    train(model, criterion, optimizer, batches(8))
    twin = make()
    train(*twin, batches(10))
    assert criterion.coefficients().isfinite().all()
    assert not torch.equal(criterion.coefficients(), twin[1].coefficients())


@pytest.mark.parametrize("holds", ["trunk", "heads"])
def test_two_optimizers(holds):
    model = Heads()
    trunk = torch.optim.Adam(model.trunk.parameters(), lr=1e-2)
    heads = torch.optim.Adam([*model.fit.parameters(), *model.twice.parameters()], lr=1e-2)
    criterion = BalancedLoss(TERMS)
    trainonce.attach(trunk if holds == "trunk" else heads, criterion)
    for x in batches(5):
        trunk.zero_grad(), heads.zero_grad()
        criterion(model(x)).backward()
        trunk.step(), heads.step()
    if holds == "trunk":
        torch.testing.assert_close(criterion.coefficients(), train(*make(), batches(5)).coefficients())
    assert criterion.coefficients().isfinite().all()


# Precision and recomputation


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("scaled", [False, True])
def test_autocast(dtype, scaled):
    model, criterion, optimizer = make(optimizer=functools.partial(torch.optim.Adam, fused=True))
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=scaled)
    for x in batches(15):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype):
            losses = model(x)
        scaler.scale(criterion(losses)).backward()
        scaler.step(optimizer)
        scaler.update()
    expected = train(*make(), batches(15)).coefficients()
    torch.testing.assert_close(criterion.coefficients(), expected, rtol=0.1, atol=0)


@pytest.mark.parametrize("size", [1e-7, 1e-3, 1e4])
def test_norms_survive_float16(size):
    """Without a scale of its own the gradient of a small loss is 0 in float16, that of a large one infinite."""
    narrow, criterion = nn.Linear(4, 4).half(), BalancedLoss(["a", "b"])
    optimizer = torch.optim.SGD(narrow.parameters(), lr=0.0)
    trainonce.attach(optimizer, criterion)
    for x in batches(25):
        out = narrow(x.half()).float()
        optimizer.zero_grad()
        criterion(a=out.mean(), b=size * out.mean()).backward()
        optimizer.step()
    assert criterion.coefficients()[1].item() == pytest.approx(1 / size, rel=0.02)


class Recomputed(nn.Sequential):
    reentrant = False

    def forward(self, x):
        return checkpoint(super().forward, x.requires_grad_(), use_reentrant=self.reentrant)


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputed_activations(reentrant):
    model = Heads()
    model.trunk = Recomputed(*model.trunk)
    model.trunk.reentrant = reentrant
    made = make(model=model)
    if reentrant:
        with pytest.raises(RuntimeError, match=r"use_reentrant=True, which forbids .* Pass use_reentrant=False"):
            train(*made, batches(1))
    else:
        expected = train(*make(), batches(5)).coefficients()
        torch.testing.assert_close(train(*made, batches(5)).coefficients(), expected)


# Alignment


def test_terms_that_agree_with_the_validation_loss_gain():
    """The second term is the first on other data; the third is its opposite."""
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))

    def fit(x):
        return (model(x) - x[:, :1]).square().mean()

    parts = [x.chunk(4) for x in batches(100, size=64)]
    asked = []
    criterion = BalancedLoss(["fit", "same", "opposite"], steps=100)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    trainonce.attach(optimizer, criterion)
    for step, (a, b, c, d) in enumerate(parts):
        criterion.validation = lambda d=d, step=step: asked.append(step) or fit(d)
        optimizer.zero_grad()
        criterion(fit=fit(a), same=fit(b), opposite=-fit(c)).backward()
        optimizer.step()
    same, opposite = criterion.alignment.tolist()
    assert opposite < -1
    assert abs(same) < 0.5
    assert criterion.coefficients()[0] == 1
    assert len(asked) == criterion._places.measured < 60  # where it measures alone


@pytest.mark.parametrize("how", ["travel=0", "frozen"])
def test_a_validation_loss_without_a_use_is_not_evaluated(how):
    model, criterion, optimizer = make(
        validation=lambda: pytest.fail("evaluated"), travel=0 if how == "travel=0" else None
    )
    if how == "frozen":
        criterion.freeze()
    train(model, criterion, optimizer, batches(3))
    assert criterion.alignment.tolist() == [0, 0]


@pytest.mark.parametrize("bad", [1.0, torch.ones(2, requires_grad=True), torch.ones(())])
def test_a_validation_loss_is_a_scalar_with_a_gradient(bad):
    model, criterion, _ = make(validation=lambda: bad)
    with pytest.raises(TypeError, match="validation needs to return a scalar loss with a gradient"):
        criterion(model(batches(1)[0]))
    with pytest.raises(TypeError, match="validation must be a function"):
        criterion.validation = 3


# Copies of a model that holds what is measured at


@pytest.mark.parametrize("criterion_first", [False, True])
def test_a_copy_with_its_model_measures_at_that_model(criterion_first):
    heads = Heads()
    parts = {"heads": heads, "criterion": BalancedLoss(TERMS, at=heads.trunk)}
    model = nn.ModuleDict(dict(reversed(parts.items())) if criterion_first else parts)
    twin = copy.deepcopy(model)
    assert twin["criterion"]._places.at is twin["heads"].trunk
    twin["criterion"](twin["heads"](batches(1)[0]))
    assert (twin["criterion"].coefficients() != 1).any()


def test_a_copy_alone_measures_where_the_original_does():
    heads = Heads()
    criterion = BalancedLoss(TERMS, at=list(heads.trunk.parameters()))
    criterion(heads(batches(1)[0]))
    twin = copy.deepcopy(criterion)
    for each in (criterion, twin):
        each.next = 0
        each(heads(batches(2)[1]))
    assert torch.equal(twin.coefficients(), criterion.coefficients())
    lost = BalancedLoss(TERMS, at=Heads().trunk)
    with pytest.raises(RuntimeError, match=r"they are another model's.*copy or pickle the criterion.*with its model"):
        lost(heads(batches(1)[0]))
    assert lost.norms.isnan().all()


@pytest.mark.parametrize("use_buffers", [False, True])
def test_an_averaged_model_can_be_evaluated(use_buffers):
    model = nn.ModuleDict({"heads": Heads(), "criterion": BalancedLoss(TERMS)})
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    trainonce.attach(optimizer, model["criterion"])
    swa = torch.optim.swa_utils
    average = swa.AveragedModel(model, multi_avg_fn=swa.get_ema_multi_avg_fn(0.9), use_buffers=use_buffers)
    for x in batches(10):
        optimizer.zero_grad()
        model["criterion"](model["heads"](x)).backward()
        optimizer.step()
        average.update_parameters(model)
    found = average.module["criterion"]
    with torch.no_grad():
        assert found(average.module["heads"](batches(1)[0])).isfinite()
    assert found.coefficients().isfinite().all()


def test_terms_apart_are_named_once():
    model, criterion, optimizer = make()
    own = nn.Parameter(torch.ones(3))
    with pytest.warns(health.NothingShared, match="both the base and 'flat'"):
        train(model, criterion, optimizer, batches(1), call=lambda losses: criterion(losses | {"flat": own.sum()}))
    assert criterion.coefficients()[2] == 1
    assert criterion.coefficients()[1] != 1
