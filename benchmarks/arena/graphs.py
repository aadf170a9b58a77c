"""A step as a CUDA graph: one launch instead of hundreds, which is what small models spend their time on."""

from __future__ import annotations

import gc
import warnings
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

EAGER = 3  # calls before the capture: libraries and the optimizer set themselves up


class Replay:
    """A function without arguments that works in place, captured at its fourth call and replayed from then on.

    Where the capture fails the function goes on as it was, with one warning.
    """

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function
        self._calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        self._calls += 1
        if self._calls == EAGER + 1:
            self._graph = _capture(self._function)
        if self._graph is not None:
            self._graph.replay()
        elif self._calls <= EAGER:
            _beside(self._function)
        else:
            self._function()


def _beside(function: Callable[[], None]) -> None:
    """Run it on another stream, as the capture will."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        function()
    torch.cuda.current_stream().wait_stream(side)


def _capture(function: Callable[[], None]) -> torch.cuda.CUDAGraph | None:
    gc.collect()  # a graph of an earlier stack that is collected during a capture would end it
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            function()
    except RuntimeError as error:
        torch.cuda.synchronize()
        warnings.warn(f"This task cannot be a CUDA graph and runs without: {error}", stacklevel=2)
        return None
    return graph
