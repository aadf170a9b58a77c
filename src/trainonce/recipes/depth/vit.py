"""The vision transformer, shaped and named as DINOv2's, so that its checkpoints load."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from trainonce.recipes.depth.attention import Norm, added, attended

if TYPE_CHECKING:
    from collections.abc import Sequence


class Encoded(NamedTuple):
    """What a decoder gets of an encoder.

    :param maps: Four maps of one grid, (batch, cells, channels).
    :param tokens: Four tokens of the whole image, (batch, channels).
    :param grid: Rows and columns of cells.
    """

    maps: list[Tensor]
    tokens: list[Tensor]
    grid: tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Shape:
    """The size of a transformer.

    :param ends: After which blocks each of the four stages ends.
    :param cells: The side of the grid that its positions are learned on.
    """

    dim: int
    blocks: int
    heads: int
    ends: tuple[int, int, int, int]
    cells: int = 37


SHAPES = {
    "vit-l": Shape(1024, 24, 16, (5, 12, 18, 24)),
    "vit-b": Shape(768, 12, 12, (3, 6, 9, 12)),
    "vit-s": Shape(384, 12, 6, (3, 6, 9, 12)),
    "vit-tiny": Shape(192, 6, 3, (2, 3, 5, 6), 16),
}
PATCH = 14


class ViT(nn.Module):
    """Maps images to four maps and four tokens.

    Each block's patch tokens get its class token added, and a stage is the largest of its blocks' values. The tokens
    are the class tokens of the last four blocks, newest first. The last norm of the checkpoint is not used, and the
    patch embedding is not trained where it was pretrained.

    :param recompute: Keep only the blocks' inputs for the backward pass, and compute the rest again.
    """

    patch = PATCH

    def __init__(self, shape: Shape, *, recompute: bool = False) -> None:
        super().__init__()
        self.shape, self.recompute = shape, recompute
        self.channels = [shape.dim] * 4
        self.patch_embed = nn.ModuleDict({"proj": nn.Conv2d(3, shape.dim, PATCH, PATCH)})
        self.cls_token = nn.Parameter(torch.zeros(1, 1, shape.dim))
        self.pos_embed = nn.Parameter(torch.zeros(1, 1 + shape.cells**2, shape.dim))
        self.blocks = nn.ModuleList(ViTBlock(shape.dim, shape.heads) for _ in range(shape.blocks))
        for parameter in (self.cls_token, self.pos_embed):
            nn.init.trunc_normal_(parameter, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)

    def forward(self, images: Tensor) -> Encoded:
        x = self.patch_embed["proj"](images)
        grid = (x.shape[2], x.shape[3])
        first = self.cls_token.to(x.dtype).expand(len(x), -1, -1)
        x = torch.cat([first, x.flatten(2).transpose(1, 2)], dim=1)
        x = x + self._positions(grid).to(x.dtype)
        maps: list[Tensor] = []
        tokens: list[Tensor] = []
        starts = {0, *self.shape.ends[:-1]}
        for i, block in enumerate(self.blocks):
            x = checkpoint(block, x, use_reentrant=False) if self.recompute and self.training else block(x)
            token, cells = torch.split(x, [1, x.shape[1] - 1], dim=1)
            here = cells + token
            if i in starts:
                maps.append(here)
            else:
                maps[-1] = larger(maps[-1], here)
            tokens = [token[:, 0], *tokens[:3]]
        return Encoded(maps, tokens, grid)

    def _positions(self, grid: tuple[int, int]) -> Tensor:
        """Those of the class token and of the cells, brought to another grid."""
        cells, dim = self.shape.cells, self.shape.dim
        if grid == (cells, cells):
            return self.pos_embed
        square = self.pos_embed[:, 1:].float().reshape(1, cells, cells, dim).permute(0, 3, 1, 2)
        scale = [(n + 0.1) / cells for n in grid]
        resized = F.interpolate(square, scale_factor=scale, mode="bicubic")
        return torch.cat([self.pos_embed[:, :1].float(), resized.flatten(2).transpose(1, 2)], dim=1)


def larger(before: Tensor, now: Tensor) -> Tensor:
    """Of each two values the larger, whose gradient takes fewer passes than torch.maximum's: equals do not share it."""
    return torch.where(before > now, before, now)


class ViTBlock(nn.Module):
    """Attention and a small network, normalised before and scaled after. Names as in the checkpoints."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = Norm(dim, eps=1e-6), Norm(dim, eps=1e-6)
        self.attn = nn.ModuleDict({"qkv": nn.Linear(dim, 3 * dim), "proj": nn.Linear(dim, dim)})
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(dim, 4 * dim), "fc2": nn.Linear(4 * dim, dim)})
        self.ls1, self.ls2 = _Scale(dim), _Scale(dim)

    def forward(self, x: Tensor) -> Tensor:
        three = self.attn["qkv"](self.norm1(x)).unflatten(-1, (3, self.heads, -1)).unbind(2)
        found = attended(*(part.transpose(1, 2) for part in three)).transpose(1, 2).flatten(2)
        x = added(x, self.ls1.gamma, self.attn["proj"], found)  # type: ignore[arg-type]
        inner = F.gelu(self.mlp["fc1"](self.norm2(x)))
        return added(x, self.ls2.gamma, self.mlp["fc2"], inner)  # type: ignore[arg-type]


class _Scale(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(dim))


#: How the names of what a checkpoint holds and this encoder does not need begin.
UNUSED: Sequence[str] = ("norm.", "mask_token", "register_tokens", "head.")
