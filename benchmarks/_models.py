"""The networks the overhead benchmark trains: a shared trunk with one small linear head per loss, on random data."""

from __future__ import annotations

import copy
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss, relu

if TYPE_CHECKING:
    from collections.abc import Callable

OUTPUTS = 8  # per head
POOL = 32  # batches: enough that no loss is fitted to zero, where tiny numbers would slow the CPU down


@dataclass
class Batch:
    inputs: Tensor
    targets: tuple[Tensor, ...]  # one per loss


class MultiHead(nn.Module):
    """A trunk and one linear head per loss. ``last_shared`` is the weight GradNorm takes its gradients at."""

    def __init__(self, trunk: nn.Module, width: int, losses: int, last_shared: nn.Parameter) -> None:
        super().__init__()
        self.trunk = trunk
        self.heads = nn.ModuleList(nn.Linear(width, OUTPUTS) for _ in range(losses))
        self._last_shared = next(name for name, p in self.named_parameters() if p is last_shared)

    @property
    def last_shared(self) -> nn.Parameter:
        return self.get_parameter(self._last_shared)


@dataclass
class Problem:
    """A model with its batches; every method trains its own copy of the model on the same batches."""

    model: MultiHead
    batches: list[Batch]
    autocast: bool = False

    def __post_init__(self) -> None:
        self._cycle = itertools.cycle(self.batches)

    @property
    def device(self) -> torch.device:
        return self.batches[0].inputs.device

    @property
    def count(self) -> int:
        return len(self.batches[0].targets)

    def next_batch(self) -> Batch:
        return next(self._cycle)

    def losses(self, batch: Batch) -> tuple[Tensor, list[Tensor]]:
        """The shared features and the losses of a batch."""
        if not self.autocast:
            return self._losses(batch)
        with torch.autocast(self.device.type, torch.bfloat16):
            return self._losses(batch)

    def _losses(self, batch: Batch) -> tuple[Tensor, list[Tensor]]:
        features = self.model.trunk(batch.inputs)
        pairs = zip(self.model.heads, batch.targets, strict=True)
        return features, [mse_loss(head(features), target) for head, target in pairs]

    def fresh(self) -> Problem:
        return Problem(copy.deepcopy(self.model), self.batches, self.autocast)


def make(name: str, losses: int, device: torch.device, seed: int) -> Problem:
    """The problem called ``name``; seeded on the host, so that it is the same on every device."""
    torch.manual_seed(seed)
    make_model, shape, pool = MODELS[name]
    model = make_model(losses)
    batches = [_batch(shape, losses, device) for _ in range(pool)]
    return Problem(model.to(device), batches, autocast=name == "vit")


def _batch(shape: tuple[int, ...], losses: int, device: torch.device) -> Batch:
    targets = torch.randn(losses, shape[0], OUTPUTS)
    return Batch(torch.randn(shape).to(device), targets.to(device).unbind())


def mlp(losses: int, width: int = 128) -> MultiHead:
    first, last = nn.Linear(64, width), nn.Linear(width, width)
    return MultiHead(nn.Sequential(first, nn.ReLU(), last, nn.ReLU()), width, losses, last.weight)


class Block(nn.Module):
    """Two 3 x 3 convolutions and a way around them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(outputs) for _ in range(2))
        self.around: nn.Module = nn.Identity()
        if stride > 1 or inputs != outputs:
            self.around = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        inside = self.norms[1](self.second(relu(self.norms[0](self.first(x)))))
        return relu(inside + self.around(x))


def resnet18(losses: int) -> MultiHead:
    """11.2 million parameters in the trunk, as ResNet-18 without its classifier."""
    stem = [nn.Conv2d(3, 64, 7, 2, padding=3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    widths = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2)]
    blocks = [Block(*sizes) for sizes in [*widths, (512, 512, 1)]]
    trunk = nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return MultiHead(trunk, 512, losses, blocks[-1].second.weight)


class Vit(nn.Module):
    """The encoder of ViT-B/16: 12 layers of width 768 over 196 patches, averaged."""

    def __init__(self, width: int = 768, layers: int = 12, heads: int = 12, patches: int = 196) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 16, 16)
        self.place = nn.Parameter(torch.randn(1, patches, width) * 0.02)
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.patch(images).flatten(2).transpose(1, 2) + self.place
        return self.encoder(tokens).mean(dim=1)


def vit(losses: int) -> MultiHead:
    trunk = Vit()
    return MultiHead(trunk, 768, losses, trunk.encoder.layers[-1].linear2.weight)


# Name: how to build it, the shape of a batch of inputs, how many batches.
MODELS: dict[str, tuple[Callable[[int], MultiHead], tuple[int, ...], int]] = {
    "mlp": (mlp, (32, 64), POOL),
    "resnet18": (resnet18, (8, 3, 96, 96), 4),
    "vit": (vit, (64, 3, 224, 224), 4),
}
