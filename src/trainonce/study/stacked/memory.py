"""How many models fit into the memory that is free, from what one of them needs in a step."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trainonce.study.stacked.models import StackedModel
from trainonce.study.stacked.random_numbers import draw
from trainonce.study.stacked.training import in_order

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trainonce.study.stacked.stackable import Stackable

SHARE = 0.5  # of the free memory
COPIES = 4  # of the parameters: themselves, the gradient, and two that an optimizer like Adam keeps
ON_CPU = 128  # models: more gain nothing there, and leave the processor's caches
MARGIN = 2  # for what the backward pass needs beside what the forward pass keeps


def models_that_fit(make: Callable[[int], Stackable], terms: Sequence[str], device: str, seed: int) -> int:
    """At least 1; an estimate, so a stack may still have to be halved."""
    fit = max(1, int(SHARE * free_bytes(device) / bytes_of_a_model(make(seed), terms)))
    return min(fit, ON_CPU) if torch.device(device).type == "cpu" else fit


def bytes_of_a_model(parts: Stackable, terms: Sequence[str]) -> int:
    """Of its parameters with what the optimizer keeps, and of what a step keeps for the backward pass."""
    model = StackedModel([parts.model], 1, torch.device("cpu"), None)
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    drawn = draw(parts)
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        model.look(lambda *args: in_order(parts.losses, terms, *args), parts.data, drawn)
    own = sum(value.nbytes for value in (*model.parameters.values(), *model.buffers.values()))
    return COPIES * own + MARGIN * sum(kept.values()) + 1


def free_bytes(device: str) -> int:
    """Of the device that is asked for."""
    if torch.device(device).type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return int(min(_free_of_machine(), _free_of_group()))


def _free_of_machine() -> int:
    """With what the system holds as a cache; where it does not say that, half of all memory."""
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def _free_of_group(folder: Path = Path("/sys/fs/cgroup")) -> float:
    """What a container still has; more than any machine where it has no limit."""
    try:
        limit, used = (int((folder / f"memory.{name}").read_text(encoding="ascii")) for name in ("max", "current"))
    except (OSError, ValueError):  # there is no group, or its limit is "max"
        return math.inf
    return max(0, limit - used)
