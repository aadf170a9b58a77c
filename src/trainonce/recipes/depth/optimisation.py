"""How the network is trained: parameter groups, learning-rate schedule, clipping, and an EMA of the weights."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from torch.optim import Optimizer

    import trainonce
    from trainonce.recipes.depth.model.network import UniDepth
    from trainonce.recipes.depth.settings import Settings


class Kind(NamedTuple):
    """What decides how a parameter is trained.

    :param wide: Whether what is computed with it is computed in float32 whatever autocast says.
    """

    of_encoder: bool
    decays: bool
    wide: bool


def trainable_parameters(network: UniDepth) -> dict[Kind, list[nn.Parameter]]:
    """The parameters to train, by kind: the network's own, or the flat ones that hold their values."""
    if network.flat is not None:
        return {kind: [flat] for kind, flat in network.flat.parameters().items()}
    own = dict(network.named_parameters())
    return {kind: [own[name] for name in names] for kind, names in kinds(network).items()}


def kinds(network: UniDepth) -> dict[Kind, list[str]]:
    """The names of the network's own parameters by kind: vectors, tokens and positions have no weight decay."""
    norms = tuple(f"{name}." for name, module in network.named_modules() if isinstance(module, nn.BatchNorm2d))
    found: dict[Kind, list[str]] = {}
    for name, parameter in network.named_parameters():
        if parameter.requires_grad:
            decays = parameter.ndim > 1 and not name.endswith(UNDECAYED)
            kind = Kind(name.startswith("encoder."), decays, name.startswith((*WIDE, *norms)))
            found.setdefault(kind, []).append(name)
    return found


def build_optimizer(network: UniDepth, settings: Settings) -> Optimizer:
    """AdamW, with a learning rate of its own for the encoder; on a GPU its fused kernel."""
    groups: list[dict[str, Any]] = [
        {
            "params": parameters,
            "lr": settings.lr * (settings.encoder_lr if kind.of_encoder else 1.0),
            "weight_decay": settings.weight_decay if kind.decays else 0.0,
        }
        for kind, parameters in trainable_parameters(network).items()
    ]
    fused = all(parameter.is_cuda for group in groups for parameter in group["params"])
    return torch.optim.AdamW(groups, lr=settings.lr, betas=(0.9, 0.999), fused=fused or None)


#: Position and class embeddings: matrices only by their shape.
UNDECAYED = ("cls_token", "pos_embed", "camera_module.places", "levels")


#: The layers that are computed in float32; batch norms are as well.
WIDE = ("camera_module.say.", "depth_module.heads.")


def learning_rate_factor(step: int, settings: Settings) -> float:
    """The learning rate at a step, as a multiple of ``lr``: constant, then a cosine down to ``lowest``."""
    begin = settings.constant * settings.steps
    if step <= begin:
        return 1.0
    part = min(1.0, (step - begin) / max(1.0, settings.steps - begin))
    return settings.lowest + (1 - settings.lowest) * 0.5 * (1 + math.cos(math.pi * part))


def clip_gradients_(network: UniDepth, criterion: trainonce.LossWeighting, settings: Settings) -> None:
    """Clip the norm of the gradients in place, without waiting for the device."""
    if settings.clip:
        own = network.parameters() if network.flat is None else network.flat.parameters().values()
        nn.utils.clip_grad_norm_([*own, *(criterion.parameters() if settings.clip_exponents else ())], settings.clip)


class EMA:
    """An exponential moving average of a network's weights, evaluated in their place inside a ``with`` block.

    Its decay is smaller at first, so that the initial weights are soon forgotten.
    """

    def __init__(self, network: UniDepth, settings: Settings) -> None:
        self._decay, self._begin = settings.average, settings.average_from * settings.steps
        self._network = network
        self._now = [parameter.detach() for group in trainable_parameters(network).values() for parameter in group]
        self._kept: list[Tensor] = []
        self._count = 0

    def step(self, step: int) -> None:
        """Take the weights after an optimizer step into the average."""
        if not self._decay or step < self._begin:
            return
        self._count += 1
        if not self._kept:
            self._kept = [values.clone() for values in self._now]
            return
        decay = min(self._decay, (1 + self._count) / (10 + self._count))
        torch._foreach_lerp_(self._kept, self._now, 1 - decay)

    def __enter__(self) -> UniDepth:
        """The network, with the average in place of its weights until the block ends."""
        self._swap()
        return self._network

    def __exit__(self, *_: object) -> None:
        self._swap()

    def _swap(self) -> None:
        for now, kept in zip(self._now, self._kept, strict=bool(self._kept)):
            before = now.clone()
            now.copy_(kept)
            kept.copy_(before)

    def state_dict(self) -> dict[str, Any]:
        return {"kept": self._kept, "count": self._count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        device = next(self._network.parameters()).device
        self._kept = [tensor.to(device) for tensor in state["kept"]]
        self._count = state["count"]
