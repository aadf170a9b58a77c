"""DeepLabv2: an encoder that keeps its resolution, and a head that sums atrous convolutions."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trainonce.recipes.vision.efficientnet import SCALES, EfficientNetLite
from trainonce.recipes.vision.resnet import DEPTHS, DESIGNS, ResNet
from trainonce.recipes.vision.weights import load_weights
from trainonce.text import did_you_mean, quoted

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from typing import Self

BatchNorm = Literal["trained", "batch", "frozen"]
RATES = (6, 12, 18, 24)
BACKBONES = (*(f"resnet-{depth}" for depth in DEPTHS), *SCALES)


@dataclasses.dataclass(frozen=True)
class Normalisation:
    """How images of values from 0 to 255 are normalised for an encoder; ``reversed``: channels become BGR."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    reversed: bool = False


IMAGENET = Normalisation((123.675, 116.28, 103.53), (58.395, 57.12, 57.375))
CAFFE = Normalisation((104.00698793, 116.66876762, 122.67891434), (1.0, 1.0, 1.0), reversed=True)
LITE = Normalisation((127.0, 127.0, 127.0), (128.0, 128.0, 128.0))


class DeepLab(nn.Module):
    """Maps images of values from 0 to 255 to logits.

    :param classes: How many.
    :param backbone: One of :data:`BACKBONES`.
    :param style: Of a ResNet: see :class:`~trainonce.recipes.vision.resnet.Design`.
    :param batch_norm: ``"trained"``: as usual. ``"batch"``: with the statistics of the batch, and fixed scales and
        shifts. ``"frozen"``: with the statistics that are there, fixed throughout.
    :param rates: The dilations of the head's convolutions.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        classes: int,
        backbone: str = "resnet-101",
        *,
        style: str = "torchvision",
        batch_norm: BatchNorm = "trained",
        rates: Sequence[int] = RATES,
    ) -> None:
        super().__init__()
        _check_choice("backbone", backbone, BACKBONES)
        _check_choice("style", style, list(DESIGNS))
        _check_choice("batch_norm", batch_norm, get_args(BatchNorm))
        self.backbone = backbone
        self.encoder: ResNet | EfficientNetLite
        if backbone in SCALES:
            self.encoder, self.normalisation = EfficientNetLite(backbone), LITE
        else:
            depth = backbone.removeprefix("resnet-")
            width = 32 if depth == "small" else 64
            self.encoder = ResNet(depth, style, width)  # type: ignore[arg-type]
            self.normalisation = CAFFE if style == "caffe" else IMAGENET
        for name, values in (("mean", self.normalisation.mean), ("std", self.normalisation.std)):
            self.register_buffer(name, torch.tensor(values)[:, None, None], persistent=False)
        self.last = self.encoder.stages[-1]
        channels = self.encoder.channels[self.last]
        self.head = nn.ModuleList(nn.Conv2d(channels, classes, 3, padding=r, dilation=r) for r in rates)
        for convolution in self.head:
            nn.init.normal_(convolution.weight, std=0.01)  # type: ignore[arg-type]
            nn.init.zeros_(convolution.bias)  # type: ignore[arg-type]
        self.batch_norm = batch_norm
        if batch_norm != "trained":
            for norm in self._norms():
                norm.requires_grad_(False)
        self.train()

    def _norms(self) -> list[nn.BatchNorm2d]:
        return [module for module in self.modules() if isinstance(module, nn.BatchNorm2d)]

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        if self.batch_norm == "frozen":
            for norm in self._norms():
                norm.eval()
        return self

    def forward(self, images: Tensor) -> Tensor:
        """The logits, at the encoder's resolution."""
        return self.classify(self.features(images, (self.last,))[self.last])

    def features(self, images: Tensor, wanted: Collection[str]) -> dict[str, Tensor]:
        """The outputs of some of the encoder's stages."""
        x = images.flip(1) if self.normalisation.reversed else images
        found: dict[str, Tensor] = self.encoder((x - self.mean) / self.std, wanted)
        return found

    def classify(self, last: Tensor) -> Tensor:
        """The logits for the last stage's output."""
        return torch.stack([convolution(last) for convolution in self.head]).sum(0)


def upsample(logits: Tensor, size: Sequence[int], align_corners: bool) -> Tensor:
    """Resize logits bilinearly to an image's size."""
    return F.interpolate(logits, list(size), mode="bilinear", align_corners=align_corners)


# Pretrained weights


def load_encoder(network: DeepLab, source: str) -> None:
    """Load a checkpoint into the encoder; see :func:`~trainonce.recipes.vision.weights.load_weights`."""
    load_weights(network.encoder, network.backbone, source)


def _check_choice(what: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise ValueError(f"{what} is one of {quoted(known)}; got {value!r}.{did_you_mean(value, known)}")
