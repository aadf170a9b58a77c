"""Residual networks that keep their resolution: dilated from the third stage on, with torchvision's parameter names."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Literal

from torch import Tensor, nn
from torch.nn import functional as F

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

Style = Literal["torchvision", "caffe", "v1c"]

#: Blocks a stage, and whether they are bottlenecks. "small" is for training from scratch on little data.
DEPTHS = {
    "small": ((1, 1, 1, 1), False),
    "18": ((2, 2, 2, 2), False),
    "50": ((3, 4, 6, 3), True),
    "101": ((3, 4, 23, 3), True),
}


@dataclasses.dataclass(frozen=True)
class Design:
    """How the published variants differ.

    - ``torchvision``: a bottleneck strides in its 3x3 convolution.
    - ``caffe``: it strides in its first 1x1 convolution, and the pooling rounds up. Of DeepLab's own weights.
    - ``v1c``: three 3x3 convolutions instead of the 7x7 one at the start, and the first block of a dilated stage has
      half the stage's dilation.
    """

    early_stride: bool
    rounds_up: bool
    deep_stem: bool
    eased: bool


DESIGNS: dict[Style, Design] = {
    "torchvision": Design(early_stride=False, rounds_up=False, deep_stem=False, eased=True),
    "caffe": Design(early_stride=True, rounds_up=True, deep_stem=False, eased=False),
    "v1c": Design(early_stride=False, rounds_up=False, deep_stem=True, eased=True),
}


class ResNet(nn.Module):
    """Maps an image to the outputs of its four stages, by name; the last three are an eighth of its size.

    :param depth: One of :data:`DEPTHS`.
    :param style: One of :data:`DESIGNS`.
    :param width: The channels of the first stage.
    """

    stages = ("layer1", "layer2", "layer3", "layer4")

    def __init__(self, depth: str = "101", style: Style = "torchvision", width: int = 64) -> None:
        super().__init__()
        design = DESIGNS[style]
        blocks, bottleneck = DEPTHS[depth]
        block = Bottleneck if bottleneck else BasicBlock
        self.channels = {name: width * 2**i * block.expansion for i, name in enumerate(self.stages)}
        if design.deep_stem:
            half = width // 2
            self.stem = nn.Sequential(*_stem(3, half, 2), *_stem(half, half, 1), *_stem(half, width, 1))
        else:
            self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
            self.bn1 = nn.BatchNorm2d(width)
        self.maxpool = nn.MaxPool2d(3, 2, 1, ceil_mode=design.rounds_up)
        inward = width
        for i, (name, stride, dilation) in enumerate(zip(self.stages, (1, 2, 1, 1), (1, 1, 2, 4), strict=True)):
            first = dilation // 2 if design.eased and dilation > 1 else dilation
            stage = []
            for j in range(blocks[i]):
                shape = (inward, width * 2**i, stride if j == 0 else 1, dilation if j else first)
                stage.append(block(*shape, design.early_stride))
                inward = self.channels[name]
            self.add_module(name, nn.Sequential(*stage))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor, wanted: Collection[str] = stages) -> dict[str, Tensor]:
        """The outputs of the wanted stages."""
        x = self.stem(images) if hasattr(self, "stem") else F.relu(self.bn1(self.conv1(images)))
        x = self.maxpool(x)
        found = {}
        for name in self.stages:
            x = getattr(self, name)(x)
            if name in wanted:
                found[name] = x
        return found


def _stem(inward: int, outward: int, stride: int) -> Iterator[nn.Module]:
    yield nn.Conv2d(inward, outward, 3, stride, 1, bias=False)
    yield nn.BatchNorm2d(outward)
    yield nn.ReLU(inplace=True)


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, inward: int, width: int, stride: int, dilation: int, early_stride: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inward, width, 3, stride, dilation, dilation, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, dilation, dilation, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = _shortcut(inward, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        return F.relu(y + self.downsample(x), inplace=True)


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, inward: int, width: int, stride: int, dilation: int, early_stride: bool) -> None:
        super().__init__()
        outward = width * self.expansion
        first, second = (stride, 1) if early_stride else (1, stride)
        self.conv1 = nn.Conv2d(inward, width, 1, first, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, second, dilation, dilation, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outward, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outward)
        self.downsample = _shortcut(inward, outward, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = F.relu(self.bn2(self.conv2(y)), inplace=True)
        y = self.bn3(self.conv3(y))
        return F.relu(y + self.downsample(x), inplace=True)


def _shortcut(inward: int, outward: int, stride: int) -> nn.Sequential:
    """Nothing where the shapes agree: an empty sequence is the identity, and has no parameters to load."""
    if stride == 1 and inward == outward:
        return nn.Sequential()
    return nn.Sequential(nn.Conv2d(inward, outward, 1, stride, bias=False), nn.BatchNorm2d(outward))
