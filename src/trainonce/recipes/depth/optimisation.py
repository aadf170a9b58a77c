"""How the network is trained: groups, the learning rate's fall, clipping, and a running average of the weights."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from torch.optim import Optimizer

    import trainonce
    from trainonce.recipes.depth.network import UniDepth
    from trainonce.recipes.depth.settings import Settings


def optimizer(network: UniDepth, settings: Settings) -> Optimizer:
    """AdamW: the encoder with its own learning rate, and vectors, tokens and places without weight decay."""
    groups: dict[tuple[bool, bool], list[nn.Parameter]] = {}
    for name, parameter in network.named_parameters():
        if parameter.requires_grad:
            decays = parameter.ndim > 1 and not name.endswith(UNDECAYED)
            groups.setdefault((name.startswith("encoder."), decays), []).append(parameter)
    made = [
        {
            "params": parameters,
            "lr": settings.lr * (settings.encoder_lr if of_encoder else 1.0),
            "weight_decay": settings.weight_decay if decays else 0.0,
        }
        for (of_encoder, decays), parameters in groups.items()
    ]
    return torch.optim.AdamW(made, lr=settings.lr, betas=(0.9, 0.999))


#: The parameters that say where something is: they are matrices only by their shape.
UNDECAYED = ("cls_token", "pos_embed", "camera_module.places", "levels")


def rate(step: int, settings: Settings) -> float:
    """The learning rate at a step, relative to that of the start: constant, then a cosine to the lowest."""
    begin = settings.constant * settings.steps
    if step <= begin:
        return 1.0
    part = min(1.0, (step - begin) / max(1.0, settings.steps - begin))
    return settings.lowest + (1 - settings.lowest) * 0.5 * (1 + math.cos(math.pi * part))


def clipped(network: nn.Module, criterion: trainonce.CompositeLoss, settings: Settings) -> None:
    """Shorten the gradient to its largest norm, without waiting for the device."""
    if settings.clip:
        parameters = [*network.parameters(), *(criterion.parameters() if settings.clip_exponents else ())]
        nn.utils.clip_grad_norm_(parameters, settings.clip)


class Average:
    """A running average of a network's weights, which is evaluated in its place.

    Early on it forgets faster, so that it does not stay with the start.
    """

    def __init__(self, network: UniDepth, settings: Settings) -> None:
        self._stays, self._begin = settings.average, settings.average_from * settings.steps
        self._network = network
        self._kept: list[Tensor] = []
        self._count = 0

    def step(self, step: int) -> None:
        if not self._stays or step < self._begin:
            return
        now = [p.detach() for p in self._network.parameters()]
        self._count += 1
        if not self._kept:
            self._kept = [p.clone() for p in now]
            return
        stays = min(self._stays, (1 + self._count) / (10 + self._count))
        torch._foreach_lerp_(self._kept, now, 1 - stays)

    def __enter__(self) -> UniDepth:
        """The network with the average in place of its weights, until the end of a ``with``."""
        self._swap()
        return self._network

    def __exit__(self, *_: object) -> None:
        self._swap()

    def _swap(self) -> None:
        with torch.no_grad():
            for parameter, kept in zip(self._network.parameters(), self._kept, strict=False):
                parameter.data, kept.data = kept.data, parameter.data

    def state_dict(self) -> dict[str, Any]:
        return {"kept": self._kept, "count": self._count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        device = next(self._network.parameters()).device
        self._kept = [tensor.to(device) for tensor in state["kept"]]
        self._count = state["count"]
