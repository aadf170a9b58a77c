"""On a CUDA device: no host synchronisation on the step path, the whole step in a graph, AMP, devices."""

import contextlib
import functools
import math
import warnings

import pytest
import torch
from _rules import RULES, Loop, batch
from torch import nn

import trainonce

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore::trainonce.health.OtherScale"),  # the toy losses shrink apart
]

NAMES = ["a", "b", "c"]


def setting(kind=torch.optim.AdamW, history=None, criterion=None, dtype=torch.float32, **settings):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4)).to("cuda", dtype)
    criterion = (criterion or trainonce.CompositeLoss(NAMES)).to("cuda", dtype)
    optimizer = kind(model.parameters(), **({"lr": 1e-2} | settings))
    trainonce.attach(optimizer, criterion, history=history)
    return model, criterion, optimizer, torch.randn(64, 16, device="cuda", dtype=dtype)


def terms(model, x):
    out = model(x)
    return {"a": (out - 1).square().mean(), "b": out.abs().mean(), "c": out.var()}


def step(model, criterion, optimizer, x, absent=False):
    values = terms(model, x)
    criterion(values | ({"c": None} if absent else {})).backward()
    optimizer.step()
    optimizer.zero_grad()


@contextlib.contextmanager
def no_synchronisation():
    torch.cuda.synchronize()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch calls the mode a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


OPTIMIZERS = [
    pytest.param(torch.optim.AdamW, {"fused": True}, id="AdamW-fused"),
    pytest.param(torch.optim.AdamW, {"foreach": True}, id="AdamW-foreach"),
    pytest.param(torch.optim.AdamW, {"capturable": True}, id="AdamW-capturable"),
    pytest.param(torch.optim.SGD, {"momentum": 0.9}, id="SGD"),
    pytest.param(torch.optim.SGD, {"momentum": 0.9, "fused": True}, id="SGD-fused"),
    pytest.param(trainonce.SGDW, {"momentum": 0.9, "weight_decay": 0.1}, id="SGDW"),
    pytest.param(trainonce.SGDW, {"momentum": 0.9, "foreach": False}, id="SGDW-single"),
    pytest.param(torch.optim.RMSprop, {"capturable": True}, id="RMSprop-capturable"),
    pytest.param(torch.optim.NAdam, {"capturable": True}, id="NAdam-capturable"),
]


@pytest.mark.parametrize("with_history", [False, True])
@pytest.mark.parametrize(("kind", "settings"), OPTIMIZERS)
def test_no_host_synchronisation(kind, settings, with_history):
    """Also through the health samples at steps 10 and 100 and through the history's blocks."""
    history = trainonce.History(block=8) if with_history else None
    run = setting(kind, history, **settings)
    for _ in range(3):
        step(*run)
    with no_synchronisation():
        for i in range(110):
            step(*run, absent=i % 7 == 0)
            run[1].log_dict()
            run[1].reference()
    if history is not None:
        assert len(history) == 113


@pytest.mark.parametrize("rule", RULES)
def test_no_rule_makes_the_host_wait(rule):
    """Also where it measures, takes a health sample and when a term is absent."""
    loop = Loop(RULES[rule], functools.partial(torch.optim.AdamW, lr=1e-3, fused=True), device="cuda")
    loop.run(range(5))
    for number in range(5, 120):
        batch(number, device="cuda")  # there before it is asked for
    with no_synchronisation():
        loop.run(range(5, 120), lambda step: ("far",) if step % 7 == 3 else ())
        loop.criterion.log_dict()


@pytest.mark.parametrize("rule", RULES)
def test_the_same_as_on_the_cpu(rule):
    here, there = (Loop(RULES[rule], functools.partial(torch.optim.SGD, lr=1e-3), device=d) for d in ("cpu", "cuda"))
    for loop in (here, there):
        loop.run(range(20))
    torch.testing.assert_close(there.criterion.coefficients().cpu(), here.criterion.coefficients(), rtol=1e-2, atol=0)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        pytest.param(torch.optim.AdamW, {"capturable": True}, id="AdamW"),
        pytest.param(torch.optim.AdamW, {"capturable": True, "fused": True}, id="AdamW-fused"),
        pytest.param(torch.optim.AdamW, {"capturable": True, "lr": "tensor"}, id="AdamW-tensor-lr"),
        pytest.param(torch.optim.SGD, {"momentum": 0.9}, id="SGD"),
        pytest.param(trainonce.SGDW, {"momentum": 0.9, "weight_decay": 0.1}, id="SGDW"),
    ],
)
def test_whole_step_in_a_cuda_graph(kind, settings):
    def make():
        chosen = dict(settings)
        if chosen.get("lr") == "tensor":
            chosen["lr"] = torch.tensor(1e-2, device="cuda")
        return setting(kind, criterion=trainonce.CompositeLoss(NAMES, lr="model"), dtype=torch.float64, **chosen)

    eager = make()
    for _ in range(3 + 20):
        step(*eager)
    model, criterion, optimizer, x = make()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step(model, criterion, optimizer, x)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(model, criterion, optimizer, x)
    for _ in range(20):
        graph.replay()
    torch.testing.assert_close(criterion.exponents, eager[1].exponents, rtol=1e-9, atol=1e-11)
    assert not torch.equal(criterion.exponents, trainonce.CompositeLoss(NAMES).to("cuda", torch.float64).exponents)


def test_a_pace_of_ones_own_is_refused_in_a_graph():
    run = setting(capturable=True)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step(*run)
    torch.cuda.synchronize()
    with (
        pytest.raises(RuntimeError, match=r"counts the steps in Python.*lr='model'"),
        torch.cuda.graph(torch.cuda.CUDAGraph()),
    ):
        step(*run)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_and_skipped_steps(fused, dtype):
    model, criterion, optimizer, x = setting(fused=fused)
    scaler = torch.amp.GradScaler("cuda", init_scale=64.0)
    moved = []
    for bad in (False, True, False):
        before = criterion.exponents.detach().clone()
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype):
            total = criterion(terms(model, x))
        assert total.dtype == torch.float32
        scaler.scale(total).backward()
        if bad:
            next(model.parameters()).grad.fill_(math.inf)
        scaler.step(optimizer)
        scaler.update()
        moved.append(not torch.equal(before, criterion.exponents))
    assert moved == [True, False, True]


@pytest.mark.filterwarnings("ignore::UserWarning")  # inductor's advice on speed
def test_compiled_with_inductor():
    def run(compiled):
        model, criterion, optimizer, x = setting(dtype=torch.float64)

        def loss():
            return criterion(terms(model, x))

        if compiled:
            loss = torch.compile(loss, fullgraph=True)
        for _ in range(10):
            optimizer.zero_grad()
            loss().backward()
            optimizer.step()
        return criterion.exponents.detach()

    torch.testing.assert_close(run(True), run(False), rtol=1e-9, atol=1e-11)


def test_moving_after_attach_keeps_the_optimizer():
    criterion = trainonce.CompositeLoss(NAMES)
    model = nn.Linear(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    trainonce.attach(optimizer, criterion)
    model.cuda(), criterion.cuda()
    start = criterion.exponents.detach().clone()
    step(model, criterion, optimizer, torch.randn(8, 16, device="cuda"))
    assert not torch.equal(criterion.exponents, start)


def test_losses_on_another_device():
    criterion = trainonce.CompositeLoss(["a", "b"])
    with pytest.raises(
        ValueError, match=r"losses are on cuda:0, the criterion is on cpu. Call criterion.to\('cuda:0'\)"
    ):
        criterion(torch.ones(2, device="cuda", requires_grad=True))
    a, b = torch.ones((), requires_grad=True), torch.ones((), device="cuda", requires_grad=True)
    with pytest.raises(ValueError, match="one device; got 'a' on cpu, 'b' on cuda:0"):
        criterion(a=a, b=b)
