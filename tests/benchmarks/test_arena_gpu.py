"""The arena on a GPU: the same batches, and a step as a CUDA graph is the step."""

import warnings

import pytest
import torch
from _arena_toy import TOY

from benchmarks.arena.rules import Point
from benchmarks.arena.stack import Stack
from benchmarks.arena.variant import Variant

POINTS = [
    *(Point(rule, {}) for rule in ("uniform", "printed")),
    *(Point("units", settings) for settings in ({"every": 0.2}, {"every": 0.2, "travel": 5.0, "place": "last"})),
    *(Point(rule, {}) for rule in ("uw", "imtl-l", "dwa", "famo")),
]
AT_EVERY_STEP = [Point(rule, {}) for rule in ("gradnorm", "config", "upgrad")]


def train(points, device, optimizer, graph=False):
    stack = Stack(TOY, points, [0, 1], variant=Variant(optimizer=optimizer), device=device, graph=graph)
    return stack.train()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("points", [POINTS, AT_EVERY_STEP], ids=["at times", "always"])
def test_graph_device_and_cpu_agree(points, optimizer):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a capture that fails warns
        graph = train(points, "cuda", optimizer, graph=True)
    for other in (train(points, "cuda", optimizer), train(points, "cpu", optimizer)):
        torch.testing.assert_close(graph.curve, other.curve, atol=2e-3, rtol=2e-2)
        torch.testing.assert_close(graph.weights, other.weights, atol=2e-2, rtol=5e-2)
