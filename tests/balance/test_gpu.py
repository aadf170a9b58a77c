"""Gradient balance on a CUDA device: narrow precision, compiled models, CUDA graphs."""

import pytest
import torch
from torch import nn

import trainonce
from tests.balance._task import TERMS, Heads, batches

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def made(kind=torch.optim.AdamW, **options):
    model, criterion = Heads().cuda(), trainonce.BalancedLoss(TERMS).cuda()
    optimizer = kind(model.parameters(), lr=1e-2, **options)
    trainonce.attach(optimizer, criterion)
    return model, criterion, optimizer


def data():
    return [x.cuda() for x in batches(64)]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_with_a_scaler(dtype):
    results = []
    for enabled in (False, True):
        model, criterion, optimizer = made(fused=True)
        # A scale that is never too large: a skipped step would be another training.
        scaler = torch.amp.GradScaler("cuda", init_scale=2.0**8, enabled=enabled and dtype is torch.float16)
        for x in data()[:30]:
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype, enabled=enabled):
                losses = model(x)
            scaler.scale(criterion(losses)).backward()
            scaler.step(optimizer)
            scaler.update()
        results.append(criterion.coefficients())
    torch.testing.assert_close(results[1], results[0], rtol=0.05, atol=0)


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
    criterion = trainonce.BalancedLoss({"a": 1.0, "b": 1.0}).cuda()
    optimizer = torch.optim.AdamW([*trunk.parameters(), *(p for head in heads for p in head.parameters())])
    trainonce.attach(optimizer, criterion)
    for _ in range(4):
        z = trunk(x)
        optimizer.zero_grad()
        criterion(a=heads[0](z).square().mean(), b=100 * heads[1](z).abs().mean()).backward()
        optimizer.step()
    assert criterion.coefficients().isfinite().all()
    assert criterion.coefficients()[1] != 1


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
    graphed = torch.cuda.make_graphed_callables(model.trunk, (data()[0].requires_grad_(),))
    for x in data()[:5]:
        z = graphed(x)
        a = model.fit(z)
        optimizer.zero_grad()
        criterion(fit=a.square().mean(), twice=model.twice(z).square().mean(), flat=a.var(), at=z).backward()
        optimizer.step()
    assert criterion.coefficients().isfinite().all()
    assert (criterion.coefficients()[1:] != 1).all()


def test_a_captured_step_needs_a_frozen_balance():
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
