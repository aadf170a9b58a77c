"""One run, many set-ups: autocast, compile, clipping, two optimizers, functional calls."""

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter

import trainonce


def small_task(dtype=torch.float32):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).to(dtype), torch.randn(16, 4, dtype=dtype)


def terms(model, x):
    out = model(x)
    return {"fit": (out - 1).square().mean(), "small": out.abs().mean(), "flat": out.var()}


NAMES = ["fit", "small", "flat"]


# Mixed precision


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("fused", [False, True])
def test_autocast_with_a_scaler(dtype, fused):
    """Same exponents as in float32 up to what the narrow losses differ; exponents and total stay float32."""

    def run(enabled):
        model, x = small_task()
        criterion = trainonce.CompositeLoss(NAMES)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=fused)
        trainonce.attach(optimizer, criterion)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=enabled)
        for _ in range(30):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype, enabled=enabled):
                total = criterion(terms(model, x))
            assert total.dtype == torch.float32
            scaler.scale(total).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
        assert criterion.exponents.dtype == torch.float32
        return criterion.exponents.detach()

    narrow, wide = run(True), run(False)
    assert not torch.equal(wide, trainonce.CompositeLoss(NAMES).exponents)
    torch.testing.assert_close(narrow, wide, rtol=0.05, atol=0.01)


def test_bfloat16_losses_still_move_the_exponents():
    """Steps of 1e-3 would vanish in a bfloat16 exponent near 1."""
    criterion = trainonce.CompositeLoss(["a", "b"], init=2.7, decay=0, lr="model").bfloat16()
    w = nn.Parameter(torch.ones(1, dtype=torch.bfloat16))
    optimizer = torch.optim.SGD([w], lr=1e-3)
    trainonce.attach(optimizer, criterion)
    start = criterion.exponents.item()
    for _ in range(100):
        optimizer.zero_grad()
        criterion(a=(w * 3).sum(), b=(w * 2).sum()).backward()
        optimizer.step()
    assert 0.01 < criterion.exponents.item() - start < 0.1


# torch.compile


@pytest.fixture
def _fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.usefixtures("_fresh_compiler")
@pytest.mark.parametrize("form", ["dict", "keywords", "list", "stacked", "absent", "fixed", "history"])
def test_compiled_criterion_is_one_graph(form):
    criterion = trainonce.CompositeLoss(NAMES)
    if form == "fixed":
        criterion = trainonce.FixedLoss(dict.fromkeys(NAMES, 1.0))
    w = nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))
    optimizer = torch.optim.SGD([w], lr=0.1)
    history = trainonce.History() if form == "history" else None
    trainonce.attach(optimizer, criterion, history=history)
    counter = CompileCounter()

    def call(values):
        losses = values.square().unbind()
        if form == "keywords":
            return criterion(fit=losses[0], small=losses[1], flat=losses[2])
        if form == "list":
            return criterion(list(losses))
        if form == "stacked":
            return criterion(values.square())
        if form == "absent":
            return criterion(fit=losses[0], small=None, flat=losses[2])
        return criterion(dict(zip(NAMES, losses, strict=True)))

    compiled = torch.compile(call, fullgraph=True, backend=counter)
    for i in range(6):
        expected_total = call(w)
        expected = torch.autograd.grad(expected_total, [w, *([criterion.exponents] if criterion.trainable else [])])
        optimizer.zero_grad()
        if history is not None:
            criterion._call.tally.take()  # the eager call above is not part of the run
        total = compiled(w)
        total.backward()
        torch.testing.assert_close(total, expected_total)
        torch.testing.assert_close(w.grad, expected[0])
        if criterion.trainable:
            torch.testing.assert_close(criterion.exponents.grad, expected[1])
        optimizer.step()
        if i == 1:
            settled = counter.frame_count
    assert counter.frame_count == settled  # no recompilation as the weights move
    assert settled == 1


# Clipping


def test_clipping_without_the_exponents():
    """A loss of another scale makes a large gradient of the exponents; the model's clipped step must not see it."""
    net = nn.Linear(2, 1)
    model = nn.ModuleDict({"net": net, "criterion": trainonce.CompositeLoss(["a", "b"], init=1.0)})
    out = net(torch.ones(4, 2))
    model["criterion"](a=100 * out.square().mean() + 300, b=out.abs().mean()).backward()
    kept = model["criterion"].exponents.grad.clone()
    assert kept.abs().item() > 10
    nn.utils.clip_grad_norm_(trainonce.model_parameters(model), 1.0)
    norm = torch.stack([p.grad.norm() for p in net.parameters()]).norm()
    assert norm.item() == pytest.approx(1.0, rel=1e-4)
    assert torch.equal(model["criterion"].exponents.grad, kept)


# Several optimizers


def test_two_optimizers_each_with_a_criterion():
    """A generator and a discriminator: each step moves its own exponents only."""
    nets = [nn.Linear(2, 1) for _ in range(2)]
    criteria = [trainonce.CompositeLoss(["real", "extra"]) for _ in range(2)]
    optimizers = [torch.optim.Adam(net.parameters(), lr=0.01) for net in nets]
    for optimizer, criterion in zip(optimizers, criteria, strict=True):
        trainonce.attach(optimizer, criterion)
    x = torch.randn(8, 2)
    for turn in (0, 1, 0):
        before = [c.exponents.detach().clone() for c in criteria]
        optimizers[turn].zero_grad()
        out = nets[turn](x)
        criteria[turn](real=out.square().mean(), extra=(out - 1).abs().mean()).backward()
        optimizers[turn].step()
        assert not torch.equal(criteria[turn].exponents, before[turn])
        assert torch.equal(criteria[1 - turn].exponents, before[1 - turn])


def test_functional_call():
    criterion = trainonce.CompositeLoss(["a", "b"])
    values = torch.tensor([1.0, 3.0], requires_grad=True)
    total = torch.func.functional_call(criterion, {"exponents": torch.zeros(1)}, (values,))
    assert total.item() == 2.0
