"""Models of named parts, and the losses and metrics that several tasks share."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from torch import Tensor, nn

if TYPE_CHECKING:
    from benchmarks.arena.task import Net, Split, Tensors


class Parts(nn.ModuleDict):
    """A model whose parts are called by name, one after the other: ``net(images, "encoder", "classes")``."""

    def __init__(self, **parts: nn.Module) -> None:
        super().__init__(parts)

    def forward(self, x: Tensor, *names: str) -> Tensor:
        for name in names:
            x = self[name](x)
        return x


def mlp(*sizes: int, last: bool = False) -> nn.Sequential:
    """Linear layers with ReLU behind each; behind the last only if asked."""
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(sizes):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*(layers if last else layers[:-1]))


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean over the images; a gather, which is quick under vmap."""
    return -logits.log_softmax(-1).gather(-1, labels[..., None]).mean()


def consistency(a: Tensor, b: Tensor) -> Tensor:
    """The mean of the two Kullback-Leibler divergences between what two views are taken for."""
    p, q = a.log_softmax(-1), b.log_softmax(-1)
    return ((p.exp() - q.exp()) * (p - q)).sum(-1).mean() / 2


def accuracy(logits: Tensor, labels: Tensor) -> Tensor:
    """In per cent."""
    return 100 * (logits.argmax(-1) == labels).float().mean()


# For models with the parts "encoder" and "classes".


def held_out_cross_entropy(net: Net, data: Tensors, draw: Tensors) -> Tensor:
    """The base loss on the validation images that were drawn as ``held``."""
    held = draw["held"]
    return cross_entropy(net(data["validation"][held], "encoder", "classes"), data["validation_y"][held])


def class_accuracy(net: Net, data: Tensors, split: Split) -> Tensor:
    return accuracy(net(data[split], "encoder", "classes"), data[f"{split}_y"])
