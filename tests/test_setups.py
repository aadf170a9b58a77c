"""One run, many set-ups: autocast, compile, clipping, averaged models, two optimizers, what is imported."""

import subprocess
import sys

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter

import trainonce
from trainonce import functional as F


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
        trainonce.attach(optimizer, criterion, decay=2.0)
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
    criterion = trainonce.CompositeLoss(["a", "b"], init=2.7).bfloat16()
    w = nn.Parameter(torch.ones(1, dtype=torch.bfloat16))
    optimizer = torch.optim.SGD([w], lr=1e-3)
    trainonce.attach(optimizer, criterion, decay=0.0)
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
    trainonce.attach(optimizer, criterion, decay=1.0, history=history)
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
        expected = torch.autograd.grad(expected_total, [w, *([criterion.exponents] if criterion.learned else [])])
        optimizer.zero_grad()
        if history is not None:
            criterion._tally.take()  # the eager call above is not part of the run
        total = compiled(w)
        total.backward()
        torch.testing.assert_close(total, expected_total)
        torch.testing.assert_close(w.grad, expected[0])
        if criterion.learned:
            torch.testing.assert_close(criterion.exponents.grad, expected[1])
        optimizer.step()
        if i == 1:
            settled = counter.frame_count
    assert counter.frame_count == settled  # no recompilation as the weights move
    assert settled == 1


@pytest.mark.usefixtures("_fresh_compiler")
def test_compiled_training_step_equals_eager():
    def run(backend):
        model, x = small_task(torch.float64)
        criterion = trainonce.CompositeLoss(NAMES).double()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        trainonce.attach(optimizer, criterion, decay=2.0)

        def loss():
            return criterion(terms(model, x))

        if backend:
            loss = torch.compile(loss, fullgraph=True, backend=backend)
        for _ in range(20):
            optimizer.zero_grad()
            loss().backward()
            optimizer.step()
        return criterion.exponents.detach()

    torch.testing.assert_close(run("aot_eager"), run(None), rtol=1e-10, atol=1e-12)


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


# Averaged models, several optimizers


def test_averaged_model_with_the_criterion_inside():
    net, x = small_task()
    model = nn.ModuleDict({"net": net, "criterion": trainonce.CompositeLoss(NAMES)})
    averaged = torch.optim.swa_utils.AveragedModel(model, avg_fn=lambda a, p, _: 0.5 * a + 0.5 * p)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    trainonce.attach(optimizer, model["criterion"], decay=1.0)
    averaged.update_parameters(model)
    for _ in range(5):
        optimizer.zero_grad()
        model["criterion"](terms(net, x)).backward()
        optimizer.step()
        averaged.update_parameters(model)
    assert averaged.module["criterion"].attachment is None
    assert not torch.equal(averaged.module["criterion"].exponents, model["criterion"].exponents)
    averaged.load_state_dict(averaged.state_dict())


def test_two_optimizers_each_with_a_criterion():
    """A generator and a discriminator: each step moves its own exponents only."""
    nets = [nn.Linear(2, 1) for _ in range(2)]
    criteria = [trainonce.CompositeLoss(["real", "extra"]) for _ in range(2)]
    optimizers = [torch.optim.Adam(net.parameters(), lr=0.01) for net in nets]
    for optimizer, criterion in zip(optimizers, criteria, strict=True):
        trainonce.attach(optimizer, criterion, decay=1.0)
    x = torch.randn(8, 2)
    for turn in (0, 1, 0):
        before = [c.exponents.detach().clone() for c in criteria]
        optimizers[turn].zero_grad()
        out = nets[turn](x)
        criteria[turn](real=out.square().mean(), extra=(out - 1).abs().mean()).backward()
        optimizers[turn].step()
        assert not torch.equal(criteria[turn].exponents, before[turn])
        assert torch.equal(criteria[1 - turn].exponents, before[1 - turn])


def test_a_term_that_starts_late():
    model, x = small_task()
    criterion = trainonce.CompositeLoss(NAMES)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    trainonce.attach(optimizer, criterion, decay=0.0)
    start = criterion.exponents.detach().clone()
    for step in range(6):
        optimizer.zero_grad()
        values = terms(model, x)
        criterion(values | ({"flat": None} if step < 3 else {})).backward()
        optimizer.step()
        assert (criterion.exponents[1] == start[1]).item() == (step < 3)
        assert criterion.exponents[0] != start[0]


# Many models side by side


def test_functional_under_vmap_trains_as_the_module_does():
    exponents = torch.log(torch.tensor([[0.1, 0.1], [1.0, 2.0], [5.0, 0.01]], dtype=torch.float64))
    values = torch.rand(3, 3, dtype=torch.float64)
    stacked = torch.func.vmap(torch.func.grad(F.composite))(exponents, values)
    for mu, x, grad in zip(exponents, values, stacked, strict=True):
        criterion = trainonce.CompositeLoss(NAMES, init=dict(zip(NAMES[1:], mu.exp().tolist(), strict=True))).double()
        criterion(x.clone().requires_grad_()).backward()
        torch.testing.assert_close(criterion.exponents.grad, grad, rtol=1e-12, atol=1e-14)


def test_functional_call():
    criterion = trainonce.CompositeLoss(["a", "b"])
    values = torch.tensor([1.0, 3.0], requires_grad=True)
    total = torch.func.functional_call(criterion, {"exponents": torch.zeros(1)}, (values,))
    assert total.item() == 2.0


# What is imported


def test_the_core_needs_torch_alone():
    code = (
        "import sys, torch\n"
        "before = set(sys.modules)\n"
        "import trainonce\n"
        "new = {name.split('.')[0] for name in set(sys.modules) - before}\n"
        "print(*sorted(new & {'numpy', 'sklearn', 'matplotlib', 'rich', 'safetensors', 'plotly', 'optuna'}))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
