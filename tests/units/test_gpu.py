"""Gradient units on a CUDA device: no host synchronisation, narrow precision, compiled models, CUDA graphs."""

import pytest
import torch
from torch import nn

import trainonce
from tests.test_gpu import no_synchronisation
from tests.units._task import TERMS, Heads, batches
from trainonce import GradientUnits, HeldOut

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def made(units="gradient", history=None, kind=torch.optim.AdamW, **options):
    torch.manual_seed(0)
    model = Heads().cuda()
    criterion = trainonce.CompositeLoss(TERMS, units=units, signal=HeldOut(steps=200)).cuda()
    optimizer = kind(model.parameters(), lr=1e-2, **options)
    trainonce.attach(optimizer, criterion, history=history)
    return model, criterion, optimizer


DATA = 64


def data():
    return [x.cuda() for x in batches(DATA)]


@pytest.mark.parametrize("shared", ["all", "last"])
@pytest.mark.parametrize("with_history", [False, True])
def test_no_host_synchronisation(shared, with_history):
    """Also where it measures, asks for the held-out loss, takes a health sample and when a term is absent."""
    history = trainonce.History(block=8) if with_history else None
    model, criterion, optimizer = made(GradientUnits(shared=shared), history, fused=True)
    inputs = data()

    def step(i):
        criterion.held_out(lambda: model(inputs[(i + 1) % DATA])["fit"])
        losses = model(inputs[i % DATA])
        criterion(losses | ({"flat": None} if i % 7 == 3 else {})).backward()
        optimizer.step()
        optimizer.zero_grad()

    for i in range(5):
        step(i)
    with no_synchronisation():
        for i in range(5, 120):
            step(i)
            criterion.log_dict()
    assert criterion.units[1] != 1
    assert criterion.exponents.abs().max() > 0


def test_the_same_units_as_on_the_cpu():
    model, criterion, optimizer = made()
    twin = Heads()
    twin.load_state_dict(model.state_dict())
    other = trainonce.CompositeLoss(TERMS, units="gradient")
    steps = torch.optim.AdamW(twin.parameters(), lr=1e-2)
    trainonce.attach(steps, other)
    for x in batches(20):
        for net, weigh, opt, at in ((model, criterion, optimizer, x.cuda()), (twin, other, steps, x)):
            opt.zero_grad()
            weigh(net(at)).backward()
            opt.step()
    torch.testing.assert_close(criterion.units.cpu(), other.units, rtol=1e-2, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_with_a_scaler(dtype):
    results = []
    for enabled in (False, True):
        model, criterion, optimizer = made(fused=True)
        scaler = torch.amp.GradScaler("cuda", enabled=enabled and dtype is torch.float16)
        for x in data()[:30]:
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype, enabled=enabled):
                losses = model(x)
            scaler.scale(criterion(losses)).backward()
            scaler.step(optimizer)
            scaler.update()
        results.append(criterion.units)
    torch.testing.assert_close(results[1], results[0], rtol=0.3, atol=0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_a_compiled_model():
    """Inductor may reuse buffers of the backward pass, which a second pass would need."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    trunk = torch.compile(
        nn.Sequential(
            nn.Conv2d(3, 16, 3), nn.GroupNorm(4, 16), nn.GELU(), nn.Flatten(), nn.LazyLinear(32), nn.LayerNorm(32)
        ).cuda()
    )
    heads = [nn.Linear(32, 1).cuda(), nn.Linear(32, 1).cuda()]
    x = torch.randn(8, 3, 12, 12, device="cuda")
    trunk(x)
    criterion = trainonce.CompositeLoss(["a", "b"], units="gradient").cuda()
    optimizer = torch.optim.AdamW([*trunk.parameters(), *(p for head in heads for p in head.parameters())])
    trainonce.attach(optimizer, criterion)
    for _ in range(4):
        z = trunk(x)
        optimizer.zero_grad()
        criterion(a=heads[0](z).square().mean(), b=100 * heads[1](z).abs().mean()).backward()
        optimizer.step()
    assert criterion.units.isfinite().all()
    assert criterion.units[1] > 5


@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream")
def test_a_graphed_module_is_refused_in_a_sentence():
    model, criterion, _ = made()
    graphed = torch.cuda.make_graphed_callables(model.trunk, (data()[0].requires_grad_(),))
    z = graphed(data()[1])
    with pytest.raises(RuntimeError, match="make_graphed_callables, which cannot be run backward twice"):
        criterion(fit=z.square().mean(), twice=z.mean(), flat=z.var())


@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream")
def test_behind_a_graphed_module_the_features_can_be_measured_at():
    model, criterion, optimizer = made()
    criterion.meter.drift = None
    graphed = torch.cuda.make_graphed_callables(model.trunk, (data()[0].requires_grad_(),))
    for x in data()[:5]:
        z = graphed(x)
        a = model.fit(z)
        criterion.share(z)
        optimizer.zero_grad()
        criterion(fit=a.square().mean(), twice=model.twice(z).square().mean(), flat=a.var()).backward()
        optimizer.step()
    assert criterion.units.isfinite().all()
    assert (criterion.units[1:] != 1).all()


def test_a_captured_step_needs_frozen_units():
    model, criterion, optimizer = made(capturable=True)
    x = data()[0]
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            optimizer.zero_grad()
            criterion(model(x)).backward()
            optimizer.step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="inside a CUDA graph"), torch.cuda.graph(graph):
        criterion(model(x))
