"""The global random states of a process: seeded when a trial starts, kept with its checkpoint."""

from __future__ import annotations

import importlib
import random
import sys
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping


def seed_everything(seed: int) -> None:
    """Give torch, Python and, where it is loaded, numpy the seed."""
    random.seed(seed)
    torch.manual_seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)


def collect(device: torch.device) -> dict[str, Any]:
    """The states of torch, on the CPU and on a CUDA device, of Python and, where it is loaded, of numpy."""
    states = {"torch": torch.get_rng_state(), "python": random.getstate()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    if "numpy" in sys.modules:
        states["numpy"] = _plain(sys.modules["numpy"].random.get_state(legacy=False))
    return states


def put_back(states: Mapping[str, Any], device: torch.device) -> None:
    """Make the states those that :func:`collect` has returned."""
    torch.set_rng_state(states["torch"])
    random.setstate(states["python"])
    if "cuda" in states and device.type == "cuda":
        torch.cuda.set_rng_state(states["cuda"], device)
    if "numpy" in states:
        importlib.import_module("numpy").random.set_state(states["numpy"])


def _plain(state: Any) -> Any:
    """numpy's state with lists in place of arrays, which a checkpoint does not hold."""
    if isinstance(state, dict):
        return {key: _plain(value) for key, value in state.items()}
    return state.tolist() if hasattr(state, "tolist") else state
