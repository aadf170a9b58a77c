"""The vision transformer, shaped and named as DINOv2's, so that its checkpoints load."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from trainonce.recipes.depth.model.attention import Norm, add_scaled, dot_product_attention

if TYPE_CHECKING:
    from collections.abc import Sequence


class EncoderOutput(NamedTuple):
    """The output of an encoder.

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
    :param cells: The side of the grid of its positional embeddings.
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

    def forward(self, images: Tensor) -> EncoderOutput:
        x, grid = embed_patches(images, self.patch_embed["proj"])  # type: ignore[arg-type]
        first = self.cls_token.to(x.dtype).expand(len(x), -1, -1)
        x = torch.cat([first, x], dim=1)
        x = x + self._positions(grid).to(x.dtype)
        maps: list[Tensor] = []
        tokens: list[Tensor] = []
        starts = {0, *self.shape.ends[:-1]}
        for i, block in enumerate(self.blocks):
            before = None if i in starts else maps.pop()
            again = self.recompute and self.training
            x, now = checkpoint(block, x, before, use_reentrant=False) if again else block(x, before)
            maps.append(now)
            tokens = [x[:, 0], *tokens[:3]]
        return EncoderOutput(maps, tokens, grid)

    def _positions(self, grid: tuple[int, int]) -> Tensor:
        """The positional embeddings of the class token and of the cells, interpolated to another grid."""
        cells, dim = self.shape.cells, self.shape.dim
        if grid == (cells, cells):
            return self.pos_embed
        rows, columns = (_bicubic(cells, n, self.pos_embed.device) for n in grid)
        with torch.autocast(rows.device.type, enabled=False):
            square = self.pos_embed[0, 1:].float().reshape(cells, cells * dim)
            resized = columns @ (rows @ square).reshape(-1, cells, dim)
        return torch.cat([self.pos_embed[:, :1].float(), resized.reshape(1, -1, dim)], dim=1)


@functools.lru_cache(maxsize=64)
def _bicubic(old: int, new: int, device: torch.device) -> Tensor:
    """Bicubic interpolation along a side as a matrix, (new, old), with the checkpoints' shift of a tenth of a cell.

    Two small matrix products replace torch's interpolation of 1,024 channels, which takes 7 ms on an H200.
    """
    with torch.inference_mode(False), torch.no_grad():  # it is cached, and training may follow evaluation
        unit = torch.eye(old)[None, :, :, None]
        found = F.interpolate(unit, scale_factor=((new + 0.1) / old, 1.0), mode="bicubic")
        return found[0, :, :, 0].T.contiguous().to(device)


def embed_patches(images: Tensor, projection: nn.Conv2d) -> tuple[Tensor, tuple[int, int]]:
    """The patch embeddings of images, (batch, cells, channels), and their grid: the convolution as one matrix product.

    Patches do not overlap, so the result is the same; a convolution of three channels leaves tensor cores idle.
    """
    height, width = images.shape[-2:]
    if height % PATCH or width % PATCH:
        found = f"got {height}x{width}. Crop or resize them first"
        raise ValueError(f"The sides of images must be multiples of {PATCH} pixels, the size of a patch; {found}.")
    rows, columns = height // PATCH, width // PATCH
    patches = images.reshape(len(images), -1, rows, PATCH, columns, PATCH).permute(0, 2, 4, 1, 3, 5)
    cells = patches.reshape(len(images), rows * columns, -1)
    return F.linear(cells, projection.weight.flatten(1), projection.bias), (rows, columns)


def running_max(x: Tensor, before: Tensor | None) -> Tensor:
    """The elementwise maximum of the stage so far and a block's cells with its class token added.

    Its gradient takes fewer passes than that of torch.maximum: of equal values, one gets all of it.
    """
    token, cells = torch.split(x, [1, x.shape[1] - 1], dim=1)
    now = cells + token
    return now if before is None else torch.where(before > now, before, now)


class ViTBlock(nn.Module):
    """Attention and an MLP, each with a norm before and a layer scale after. Names as in the checkpoints.

    Returns, beside its own values, the maximum of its stage so far: compiled with it, that takes fewer passes.
    """

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = Norm(dim, eps=1e-6), Norm(dim, eps=1e-6)
        self.attn = nn.ModuleDict({"qkv": nn.Linear(dim, 3 * dim), "proj": nn.Linear(dim, dim)})
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(dim, 4 * dim), "fc2": nn.Linear(4 * dim, dim)})
        self.ls1, self.ls2 = _Scale(dim), _Scale(dim)

    def forward(self, x: Tensor, before: Tensor | None) -> tuple[Tensor, Tensor]:
        three = self.attn["qkv"](self.norm1(x)).unflatten(-1, (3, self.heads, -1)).unbind(2)
        found = dot_product_attention(*(part.transpose(1, 2) for part in three)).transpose(1, 2).flatten(2)
        x = add_scaled(x, self.ls1.gamma, self.attn["proj"], found)  # type: ignore[arg-type]
        inner = F.gelu(self.mlp["fc1"](self.norm2(x)))
        x = add_scaled(x, self.ls2.gamma, self.mlp["fc2"], inner)  # type: ignore[arg-type]
        return x, running_max(x, before)


class _Scale(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(dim))


#: Prefixes of what a checkpoint holds and this encoder does not need.
UNUSED: Sequence[str] = ("norm.", "mask_token", "register_tokens", "head.")
