"""Gradient units wherever the criterion works: narrow precision, compile, checkpointed activations, odd models."""

import functools

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import trainonce
from tests.units._task import TERMS, Heads, batches, make, train
from trainonce import GradientUnits


def units_after(model, call, criterion, optimizer, steps=5):
    for x in batches(steps):
        optimizer.zero_grad()
        call(model, criterion, x).backward()
        optimizer.step()
    return criterion.units


def plain(model, criterion, x):
    return criterion(model(x))


@pytest.fixture(scope="module")
def expected():
    model, criterion, optimizer = make()
    return units_after(model, plain, criterion, optimizer)


# Precision


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype, expected):
    model, criterion, optimizer = make()

    def call(model, criterion, x):
        with torch.autocast("cpu", dtype):
            losses = model(x)
        return criterion(losses)

    torch.testing.assert_close(units_after(model, call, criterion, optimizer), expected, rtol=0.05, atol=0.0)


@pytest.mark.parametrize("size", [1e-7, 1e-3, 1e4])
def test_norms_survive_float16(size):
    """Without a scale of its own the gradient of a small loss is 0 in float16, that of a large one infinite."""
    narrow = nn.Linear(4, 4).half()
    criterion = trainonce.CompositeLoss(["a", "b"], units="gradient")
    optimizer = torch.optim.SGD(narrow.parameters(), lr=0.0)
    trainonce.attach(optimizer, criterion)
    for x in batches(10):
        out = narrow(x.half()).float()
        optimizer.zero_grad()
        criterion(a=out.mean(), b=size * out.mean()).backward()
        optimizer.step()
    assert criterion.units[1].item() == pytest.approx(size, rel=0.02)


def test_the_scale_shrinks_when_it_overflows_and_grows_again():
    narrow = nn.Linear(4, 4).half()
    criterion = trainonce.CompositeLoss(["a", "b"], units="gradient")
    x = batches(1)[0].half()
    start = criterion.meter.scale.item()

    def call(size):
        out = narrow(x).float()
        return criterion(a=out.mean(), b=size * out.mean())

    for _ in range(10):
        call(1e4)
    shrunk = criterion.meter.scale.item()
    assert shrunk < start
    assert criterion.units[1] > 5e3
    for _ in range(60):
        criterion.meter.next = 0
        call(1.0)
    assert criterion.meter.scale.item() == 2 * shrunk


@pytest.mark.parametrize("fused", [False, True])
def test_with_a_scaler(fused, expected):
    """GradScaler multiplies what the criterion returns; the units do not see it."""
    model, criterion, optimizer = make(optimizer=functools.partial(torch.optim.Adam, fused=fused))
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for x in batches(5):
        optimizer.zero_grad()
        scaler.scale(criterion(model(x))).backward()
        scaler.step(optimizer)
        scaler.update()
    torch.testing.assert_close(criterion.units, expected, rtol=1e-4, atol=0.0)


# torch.compile and recomputed activations


@pytest.fixture
def _fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.slow
@pytest.mark.usefixtures("_fresh_compiler")
@pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor that is not a leaf"
)  # dynamo's own, at a graph break
@pytest.mark.parametrize("what", ["model", "criterion", "both"])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled(what, backend, expected):
    model, criterion, optimizer = make()
    whole = torch.compile(lambda x: criterion(model(x)), backend=backend)
    parts = {
        "model": lambda m, c, x: c(torch.compile(m, backend=backend)(x)),
        "criterion": lambda m, c, x: torch.compile(c, backend=backend)(m(x)),
        "both": lambda m, c, x: whole(x),
    }
    found = units_after(model, parts[what], criterion, optimizer)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=0.0)
    assert criterion.meter.steps == 5


class Recomputed(nn.Sequential):
    reentrant = False

    def forward(self, x):
        return checkpoint(super().forward, x.requires_grad_(), use_reentrant=self.reentrant)


def recomputed(reentrant):
    torch.manual_seed(0)
    model = Heads()
    model.trunk = Recomputed(*model.trunk)
    model.trunk.reentrant = reentrant
    criterion = trainonce.CompositeLoss(TERMS, units="gradient")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    trainonce.attach(optimizer, criterion)
    return model, criterion, optimizer


def test_recomputed_activations(expected):
    model, criterion, optimizer = recomputed(reentrant=False)
    found = units_after(model, plain, criterion, optimizer)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=0.0)


def test_reentrant_checkpoints_are_refused_in_a_sentence():
    model, criterion, _ = recomputed(reentrant=True)
    with pytest.raises(RuntimeError, match=r"use_reentrant=True, which forbids .* Pass use_reentrant=False"):
        criterion(model(batches(1)[0]))


# Where


@pytest.mark.parametrize("how", ["module", "parameters", "names alone"])
def test_named_parameters(how, expected):
    model, _, _ = make()
    given = {"module": model.trunk, "parameters": model.trunk.parameters(), "names alone": "all"}[how]
    criterion = trainonce.CompositeLoss(TERMS, units=GradientUnits(shared=given))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    trainonce.attach(optimizer, criterion)
    torch.testing.assert_close(units_after(model, plain, criterion, optimizer), expected)


def test_the_last_shared_layer_is_the_last_of_the_trunk():
    model, criterion, optimizer = make(GradientUnits(shared="last"))
    found = units_after(model, plain, criterion, optimizer)
    assert {id(p) for p in criterion.meter._place} == {id(p) for p in model.trunk[2].parameters()}
    twin, _, _ = make()
    criterion = trainonce.CompositeLoss(TERMS, units=GradientUnits(shared=twin.trunk[2]))
    optimizer = torch.optim.Adam(twin.parameters(), lr=1e-2)
    trainonce.attach(optimizer, criterion)
    torch.testing.assert_close(units_after(twin, plain, criterion, optimizer), found)


@pytest.mark.parametrize("shared", ["all", "last"])
def test_a_stacked_tensor_of_losses(shared):
    def stacked(model, criterion, x):
        return criterion(torch.stack(list(model(x).values())))

    units = GradientUnits(shared=shared)
    apart = units_after(*reorder(make(units), plain))
    torch.testing.assert_close(units_after(*reorder(make(units), stacked)), apart)


def reorder(made, call):
    model, criterion, optimizer = made
    return model, call, criterion, optimizer


def test_shared_features():
    """At the features each norm is that of the gradient there, whatever lies below."""
    model, criterion, _ = make()
    x = batches(1)[0]
    features = model.trunk(x)
    a, b = model.fit(features), model.twice(features)
    losses = {"fit": a.square().mean(), "twice": b.square().mean(), "flat": a.var()}
    criterion.share(features)
    criterion(losses)
    norms = [torch.autograd.grad(loss, features, retain_graph=True)[0].norm() for loss in losses.values()]
    torch.testing.assert_close(criterion.units, torch.stack(norms) / norms[0])


def test_share_needs_tensors_with_gradients():
    with pytest.raises(TypeError, match="share needs tensors that carry gradients"):
        make()[1].share(torch.ones(1))


def test_validation_may_name_features_too():
    model, criterion, _ = make()
    with torch.no_grad():
        criterion.share(model.trunk(batches(1)[0]))
    assert criterion._call_state.places == ()


def test_one_parameter_may_be_named():
    model, _, _ = make()
    criterion = trainonce.CompositeLoss(TERMS, units=GradientUnits(shared=model.trunk[2].weight))
    criterion(model(batches(1)[0]))
    assert (criterion.units[1:] != 1).all()


def test_shared_features_are_not_kept_after_the_call():
    model, criterion, optimizer = make()
    train(model, criterion, optimizer, batches(1))
    criterion.share(model.trunk(batches(1)[0]))
    criterion(model(batches(1)[0]))  # measures nothing: the step has been measured
    assert criterion._call_state.places == ()


def test_frozen_layers_count_from_when_they_are_unfrozen():
    model, criterion, optimizer = make()
    model.trunk[0].requires_grad_(False)
    train(model, criterion, optimizer, batches(2))
    assert len(criterion.meter._place) == 2
    model.trunk[0].requires_grad_(True)
    train(model, criterion, optimizer, batches(8))
    assert len(criterion.meter._place) == 4


@pytest.mark.parametrize("holds", ["trunk", "heads"])
def test_two_optimizers(holds, expected):
    torch.manual_seed(0)
    model = Heads()
    trunk = torch.optim.Adam(model.trunk.parameters(), lr=1e-2)
    heads = torch.optim.Adam([*model.fit.parameters(), *model.twice.parameters()], lr=1e-2)
    criterion = trainonce.CompositeLoss(TERMS, units="gradient")
    trainonce.attach(trunk if holds == "trunk" else heads, criterion)
    for x in batches(5):
        trunk.zero_grad()
        heads.zero_grad()
        criterion(model(x)).backward()
        trunk.step()
        heads.step()
    torch.testing.assert_close(criterion.units, expected)


def test_an_optimizer_that_is_gone_does_not_stand_in_the_way():
    model, criterion, optimizer = make()
    del optimizer
    criterion(model(batches(1)[0]))
    assert criterion.units[1] != 1


def test_another_network_that_the_losses_pass_through_does_not_count():
    """A critic's parameters are reached by every term, but another optimizer trains them."""
    model, critic = Heads(), nn.Linear(1, 1)
    criterion = trainonce.CompositeLoss(["a", "b"], units="gradient")
    optimizer = torch.optim.Adam(model.parameters())
    trainonce.attach(optimizer, criterion)
    x = batches(1)[0]
    z = model.trunk(x)
    criterion(a=critic(model.fit(z)).mean(), b=critic(model.twice(z)).square().mean())
    assert {id(p) for p in criterion.meter._place} == {id(p) for p in model.trunk.parameters()}


def test_inputs_that_require_gradients_do_not_count():
    """A PINN differentiates with respect to its inputs."""
    model, criterion, _ = make()
    criterion(model(batches(1)[0].requires_grad_()))
    assert all(isinstance(p, nn.Parameter) for p in criterion.meter._place)


def test_sparse_gradients():
    table = nn.Embedding(10, 4, sparse=True)
    criterion = trainonce.CompositeLoss(["a", "b"], units="gradient")
    rows = table(torch.tensor([1, 1, 3]))
    criterion(a=rows.sum(), b=3 * rows.sum())
    assert criterion.units.tolist() == pytest.approx([1, 3])


def test_nothing_accumulates_and_hooks_stay_silent():
    model, criterion, _ = make()
    called = []
    model.trunk[0].weight.register_hook(called.append)
    model.trunk[0].weight.register_post_accumulate_grad_hook(called.append)
    criterion(model(batches(1)[0]))
    assert model.trunk[0].weight.grad is None
    assert not [c for c in called if c is model.trunk[0].weight]


# Records


def test_the_history_holds_units_and_a_replay_repeats_the_run(tmp_path):
    data = batches(20)
    model, criterion, optimizer = make()
    criterion.attachment.remove()
    history = trainonce.History(tmp_path / "history.jsonl")
    trainonce.attach(optimizer, criterion, history=history)
    train(model, criterion, optimizer, data)
    columns = trainonce.History.load(tmp_path / "history.jsonl").columns() if history.flush() is None else {}
    assert columns["unit/twice"][-1] == pytest.approx(criterion.units[1].item())
    assert columns["total"][-1] == pytest.approx(criterion.total.item())
    weights = [columns[f"weight/{t}"][-1] for t in TERMS]
    assert sum(weights) == pytest.approx(1)
    assert weights == pytest.approx(criterion.weights.tolist())

    torch.manual_seed(0)
    twin = Heads()
    again = trainonce.replay(tmp_path / "history.jsonl")
    steps = torch.optim.Adam(twin.parameters(), lr=1e-2)
    trainonce.attach(steps, again)
    train(twin, again, steps, data)
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
    assert again.total.item() == pytest.approx(criterion.total.item(), rel=1e-4)


def test_a_history_of_one_kind_of_units_does_not_take_the_other(tmp_path):
    model, criterion, optimizer = make()
    criterion.attachment.remove()
    trainonce.attach(optimizer, criterion, history=tmp_path / "history.jsonl")
    train(model, criterion, optimizer, batches(2))
    criterion.attachment.history.flush()
    raw = trainonce.CompositeLoss(TERMS)
    with pytest.raises(ValueError, match="begun with gradient units; this criterion has raw ones"):
        trainonce.attach(
            torch.optim.SGD(model.parameters()),
            raw,
            decay=0,
            history=trainonce.History(tmp_path / "history.jsonl", step=2),
        )


def test_what_is_logged_and_shown():
    model, criterion, optimizer = make()
    train(model, criterion, optimizer, batches(2))
    logged = criterion.log_dict()
    assert logged["unit/twice"] == criterion.units[1]
    assert logged["total"] == criterion.total
    assert logged["weight/twice"] == criterion.weights[1]
    assert "unit" in repr(criterion).splitlines()[1]
    assert criterion.as_dict() == dict(zip(TERMS, criterion.weights.tolist(), strict=True))
    last = criterion._last_call.losses
    torch.testing.assert_close(criterion.reference(), last.mean())
