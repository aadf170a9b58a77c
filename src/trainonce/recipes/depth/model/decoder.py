"""The depth module: from the encoder's maps and the rays of a camera to depth, at three scales."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trainonce.recipes.depth.model.attention import ALIGNMENT, MLP, Block, Kind, add_scaled, pad_cells
from trainonce.recipes.depth.model.camera import resize_rays
from trainonce.recipes.depth.model.harmonics import DEGREE, Harmonics, harmonics_table

if TYPE_CHECKING:
    from collections.abc import Sequence


class DepthModule(nn.Module):
    """Depth at twice, four and eight times the size of the grid, resized to the image and averaged.

    :param depths: Attention blocks at once, twice and four times the size of the grid.
    :param kind: Of the attention at the two larger sizes.
    """

    def __init__(self, dim: int, heads: int, depths: Sequence[int], kind: Kind) -> None:
        super().__init__()
        widths = (dim, dim // 2, dim // 4)
        self.start = nn.Sequential(nn.Linear(4 * dim, dim), MLP(dim, 2))
        self.embed = nn.ModuleList(MLP((DEGREE + 1) ** 2, 4, out=width) for width in widths)
        self.aggregate, self.prompt = Block(dim, 1), Block(dim, 1)
        self.levels = nn.ModuleList(
            nn.ModuleList(Block(width, max(1, heads >> i), kind="full" if i == 0 else kind) for _ in range(count))
            for i, (width, count) in enumerate(zip(widths, depths, strict=True))
        )
        self.up = nn.ModuleList(Up(width) for width in widths)
        self.harmonics = Harmonics()
        self.heads = nn.ModuleList(nn.Conv2d(width // 2, 1, 3, padding=1) for width in widths)

    def forward(
        self, maps: Tensor, places: Tensor, rays: Tensor, grid: tuple[int, int], size: tuple[int, int]
    ) -> tuple[Tensor, Tensor]:
        """Depth (batch, height, width) and the features that two views of a scene should share, (batch, dim, h, w).

        :param maps: The encoder's four maps, (batch, 4, cells, dim).
        :param places: The positional encoding of their cells, (1, 4 * cells, dim).
        :param rays: Of the camera at the image's size, without gradient.
        """
        rows, columns = grid
        sizes = [(rows << i, columns << i) for i in range(len(self.embed))]
        towards = resize_rays(rays, sizes)
        known = self.harmonics(towards, harmonics_table(DEGREE, towards.device, towards.dtype), maps.dtype)
        directions = known.split([r * c for r, c in sizes], dim=1)
        embeddings = [embed(part) for embed, part in zip(self.embed, directions, strict=True)]
        x = self.start(maps.transpose(1, 2).flatten(2))
        x = self.aggregate(x, maps.flatten(1, 2), context_position=places)
        x = self.prompt(x, embeddings[0])
        found, features = [], x
        for i, (blocks, up, head) in enumerate(zip(self.levels, self.up, self.heads, strict=True)):
            for block in blocks:  # type: ignore[attr-defined]
                x = block(x, position=embeddings[i])
            if i == 0:
                features = x
            square = (x + embeddings[i]).transpose(1, 2).unflatten(2, sizes[i])
            square = up(square)
            found.append(_depth_at_size(head, square, size))  # type: ignore[arg-type]
            x = square.flatten(2).transpose(1, 2)
        return torch.stack(found).mean(0), features.transpose(1, 2).unflatten(2, grid)


def _depth_at_size(head: nn.Conv2d, square: Tensor, size: tuple[int, int]) -> Tensor:
    """Depth from the features of one scale, at the image's size; in float32, since 8 bits of a logarithm are few."""
    with torch.autocast(square.device.type, enabled=False):
        depth = conv_to_one_channel(head, square.float()).clamp(-10, 10).exp()
        return F.interpolate(depth, size, mode="bilinear", antialias=True).squeeze(1)


def conv_to_one_channel(head: nn.Conv2d, square: Tensor) -> Tensor:
    """A 3x3 convolution to one channel, (batch, 1, height, width), as nine matrix products that are added up.

    The result is the same, but a convolution to one channel is slow on GPUs, its backward pass above all.
    """
    around = head.weight[0].flip(1, 2).flatten(1)
    products = (square.permute(0, 2, 3, 1) @ around).flatten(1, 2).mT
    return F.fold(products, square.shape[-2:], 3, padding=1) + head.bias  # type: ignore[operator]


class Up(nn.Module):
    """Twice the size and half the channels."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential(ConvBlock(dim), ConvBlock(dim))
        self.narrow = nn.Conv2d(dim, dim // 2, 1)
        self.smooth = nn.Conv2d(dim // 2, dim // 2, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.narrow(self.blocks(x))
        # On a busy CPU, many small matrix products are slow.
        twice = upsample_2x(x) if x.is_cuda else F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True)
        found: Tensor = self.smooth(twice)
        return found


def upsample_2x(x: Tensor) -> Tensor:
    """Bilinear upsampling of features (batch, channels, height, width) to twice the size, with aligned corners.

    It is a matrix product along either axis, whose backward pass adds in a fixed order; on a GPU, torch's does not.
    """
    batch, channels, height, width = x.shape
    down, across = (_upsampling_weights(count, x.dtype, x.device) for count in (height, width))
    cells = pad_cells(x.permute(0, 2, 3, 1).reshape(batch, height, -1))
    rows = torch.bmm(down.expand(batch, -1, -1), cells).view(-1, width, channels)
    both = torch.bmm(across.expand(2 * height * batch, -1, -1), pad_cells(rows))
    return both.view(batch, 2 * height, 2 * width, channels).permute(0, 3, 1, 2)


@functools.lru_cache(maxsize=256)
def _upsampling_weights(count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The weights of ``count`` cells in each of twice as many: (2 count, count), padded with zeros as the cells are.

    In a narrow type positions are rounded so that the weights of the two neighbours of a cell add up to 1.
    """
    with torch.inference_mode(False), torch.no_grad():  # it is cached, and training may follow evaluation
        steps, cells = torch.arange(2 * count) * (count - 1), 2 * count - 1
        before, beyond = steps // cells, (steps % cells).double() / cells
        if dtype in (torch.bfloat16, torch.float16):
            finest = torch.finfo(dtype).eps / 2
            beyond = (beyond / finest).round() * finest
        far = torch.arange(count) - before[:, None]
        weights = (far == 0) * (1 - beyond[:, None]) + (far == 1) * beyond[:, None]
        return F.pad(weights, (0, -count % ALIGNMENT)).to(device, dtype)


class ConvBlock(nn.Module):
    """A 7x7 depthwise convolution and an MLP on each cell, added to its input."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(dim, dim, 7, padding=3, groups=dim)
        self.inner = MLP(dim, 4)
        self.scale = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        y = self.inner.hidden(depthwise_conv(x, self.depthwise).permute(0, 2, 3, 1))
        return add_scaled(x.permute(0, 2, 3, 1), self.scale, self.inner.narrow, y).permute(0, 3, 1, 2)


def depthwise_conv(x: Tensor, layer: nn.Conv2d) -> Tensor:
    """A depthwise convolution with an odd kernel that keeps the size.

    The gradient of its input is a depthwise convolution too, with the kernel flipped; on a GPU the forward kernels are
    faster than torch's own for it.
    """
    kind = x.device.type
    narrow = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
    given = (part.to(narrow) for part in (x, layer.weight, layer.bias))  # type: ignore[union-attr]
    found: Tensor = _DepthwiseConv.apply(*given)  # type: ignore[no-untyped-call]
    return found


class _DepthwiseConv(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return F.conv2d(x, weight, bias, padding=weight.shape[-1] // 2, groups=len(weight))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        pad, count = [weight.shape[-1] // 2] * 2, len(weight)
        _, of_weight, of_bias = torch.ops.aten.convolution_backward(
            grad, x, weight, [count], [1, 1], pad, [1, 1], False, [0, 0], count, [False, True, True]
        )
        return F.conv2d(grad, weight.flip(2, 3), padding=pad, groups=count), of_weight, of_bias
