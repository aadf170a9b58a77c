"""Precision and wrappers of a training step."""

from types import SimpleNamespace

import pytest
import torch

from trainonce.recipes.vision import parallel
from trainonce.recipes.vision.parallel import synchronize_if, wrap_losses
from trainonce.recipes.vision.precision import allow_tf32_if_asked, autocast, inference_autocast

CPU = torch.device("cpu")


def settings(precision="float32", graphed=False):
    return SimpleNamespace(precision=precision, graphed=graphed)


@pytest.mark.parametrize("context", [autocast, inference_autocast])
@pytest.mark.parametrize(
    ("precision", "dtype"), [("float32", torch.float32), ("tf32", torch.float32), ("bfloat16", torch.bfloat16)]
)
def test_products_have_the_precision_that_is_set(context, precision, dtype):
    with context(settings(precision), CPU):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == dtype


@pytest.mark.parametrize("graphed", [False, True])
def test_converted_weights_are_cached_unless_graphs_replay_the_step(graphed):
    with autocast(settings("bfloat16", graphed), CPU):
        assert torch.is_autocast_cache_enabled() is not graphed


def test_tf32_is_allowed_and_forbidden():
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    try:
        for precision, allowed in (("tf32", True), ("float32", False), ("bfloat16", False)):
            allow_tf32_if_asked(settings(precision))
            assert torch.backends.cuda.matmul.allow_tf32 is allowed
            assert torch.backends.cudnn.allow_tf32 is allowed
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


@pytest.mark.parametrize("graphed", [False, True])
def test_on_a_cpu_losses_are_called_as_they_are(graphed):
    losses = torch.nn.Linear(2, 2)

    def example():
        raise AssertionError("a graph is captured on a GPU alone")

    assert wrap_losses(losses, settings(graphed=graphed), CPU, example) is losses


def test_on_a_gpu_losses_are_captured_with_the_example(monkeypatch):
    calls = []

    def capture(module, example):
        calls.append((module, example, torch.is_autocast_enabled("cpu")))
        return "captured"

    monkeypatch.setattr(parallel, "capture_graph", capture)
    monkeypatch.setattr(parallel, "autocast", lambda *_: torch.autocast("cpu", torch.bfloat16))
    losses, gpu = torch.nn.Linear(2, 2), torch.device("cuda")
    assert wrap_losses(losses, settings(graphed=True), gpu, lambda: ("x",)) == "captured"
    assert calls == [(losses, ("x",), True)]
    assert wrap_losses(losses, settings(graphed=False), gpu, lambda: ("x",)) is losses


def test_gradients_are_averaged_in_the_last_micro_batch_alone(monkeypatch):
    entered = []

    class Distributed(torch.nn.Module):
        def no_sync(self):
            entered.append(1)
            return torch.no_grad()

    monkeypatch.setattr(parallel, "DistributedDataParallel", Distributed)
    with synchronize_if(True, Distributed()):
        assert not entered
    with synchronize_if(False, torch.nn.Linear(1, 1)):
        assert not entered
    with synchronize_if(False, Distributed()):
        assert entered == [1]
