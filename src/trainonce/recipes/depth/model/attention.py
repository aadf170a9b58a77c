"""The attention block of the decoder, full or by the Nyström method, and its parts."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Kind = Literal["full", "nystrom"]
LANDMARKS = 128
MAX_HEAD_DIM = 256  # the widest head that fused kernels support
LARGE = 1 << 22  # from so many values on, a pass over memory takes longer than starting a kernel
ALIGNMENT = 8  # tensor cores want widths and counts in bfloat16 that are multiples of it


class Block(nn.Module):
    """Cross-attention to a context, or self-attention, and an MLP, each added to its input with a learned scale.

    Positional encodings are added to queries and keys after their projections, and never to values.

    :param kind: ``"nystrom"`` for long sequences: time and memory grow with the length and not with its square.
    """

    def __init__(self, dim: int, heads: int, *, expansion: int = 4, kind: Kind = "full") -> None:
        super().__init__()
        if dim % heads:
            raise ValueError(f"The width {dim} cannot be shared by {heads} heads.")
        self.heads, self.kind = heads, kind
        self.norm, self.norm_context = Norm(dim), Norm(dim)
        self.query, self.key_value = nn.Linear(dim, dim), nn.Linear(dim, 2 * dim)
        self.out = nn.Linear(dim, dim)
        self.inner = MLP(dim, expansion)
        self.scale, self.scale_inner = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.ones(dim))

    def forward(
        self,
        x: Tensor,
        context: Tensor | None = None,
        *,
        position: Tensor | None = None,
        context_position: Tensor | None = None,
    ) -> Tensor:
        q = self.query(self.norm(x))
        k, v = self.key_value(self.norm_context(x if context is None else context)).chunk(2, dim=-1)
        q = q if position is None else q + position.to(q.dtype)
        k = k if context_position is None else k + context_position.to(k.dtype)
        split = [t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v)]
        found = nystrom(*split) if self.kind == "nystrom" else dot_product_attention(*split)
        x = add_scaled(x, self.scale, self.out, found.transpose(1, 2).flatten(2))
        return add_scaled(x, self.scale_inner, self.inner.narrow, self.inner.hidden(x))


class MLP(nn.Module):
    """A norm, a hidden layer of ``expansion`` times the width, and an output layer, by default of the same width."""

    def __init__(self, dim: int, expansion: int = 4, out: int | None = None) -> None:
        super().__init__()
        self.norm = Norm(dim)
        self.widen, self.narrow = nn.Linear(dim, dim * expansion), nn.Linear(dim * expansion, out or dim)

    def forward(self, x: Tensor) -> Tensor:
        if x.numel() >= LARGE and x.shape[-1] % ALIGNMENT:
            return self._forward_padded(x)
        found: Tensor = self.narrow(self.hidden(x))
        return found

    def _forward_padded(self, x: Tensor) -> Tensor:
        """The same with widths padded by zeros for tensor cores; the GELU of 0 is 0."""
        before, between = -self.widen.in_features % ALIGNMENT, -self.widen.out_features % ALIGNMENT
        wide = F.pad(self.widen.weight, (0, before, 0, between)), F.pad(self.widen.bias, (0, between))
        x = F.gelu(F.linear(F.pad(self.norm(x), (0, before)), *wide))
        return F.linear(x, F.pad(self.narrow.weight, (0, between)), self.narrow.bias)

    def hidden(self, x: Tensor) -> Tensor:
        """The activations of the hidden layer."""
        return F.gelu(self.widen(self.norm(x)))


class Norm(nn.LayerNorm):
    """A layer norm whose output has the type of its input, also where autocast would return float32.

    Means and variances are computed in float32 nonetheless.
    """

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            return F.layer_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.bias.to(x.dtype), self.eps)


def add_scaled(x: Tensor, scale: Tensor, layer: nn.Linear, inner: Tensor) -> Tensor:
    """``x + scale * layer(inner)``. For large tensors, the layer's weights are scaled instead."""
    if inner.numel() < LARGE:
        found: Tensor = x + scale.to(x.dtype) * layer(inner)
        return found
    return x + F.linear(inner, scale[:, None] * layer.weight, scale * layer.bias)


def dot_product_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention, (batch, heads, length, dim): by fused kernels, or for very wide heads by plain matrix products."""
    if q.shape[-1] <= MAX_HEAD_DIM:
        return F.scaled_dot_product_attention(q, k, v)
    count = k.shape[-2]
    k, v = pad_cells(k), pad_cells(v)
    scores = (q * q.shape[-1] ** -0.5) @ k.mT
    if count % ALIGNMENT:  # padding has no weight
        scores = scores.masked_fill(torch.arange(k.shape[-2], device=k.device) >= count, float("-inf"))
    with torch.autocast(q.device.type, enabled=False):  # sums in float32 in any case, but returns the narrow type
        weights = torch.softmax(scores, -1)
    return weights @ v


def pad_cells(cells: Tensor) -> Tensor:
    """Cells (..., cells, channels) padded with zeros to a multiple of :data:`ALIGNMENT`."""
    over = -cells.shape[-2] % ALIGNMENT
    return F.pad(cells, (0, 0, 0, over)) if over else cells


def nystrom(q: Tensor, k: Tensor, v: Tensor, landmarks: int = LANDMARKS, iterations: int = 6) -> Tensor:
    """Nyström attention by landmarks, the means of neighbouring queries and keys: (batch, heads, length, dim).

    Exact where there are no more keys and queries than landmarks.
    """
    if max(q.shape[-2], k.shape[-2]) <= landmarks:
        return dot_product_attention(q, k, v)
    few_q, few_k = (_segment_means(t, landmarks) for t in (q, k))
    scale = q.shape[-1] ** -0.5
    with torch.autocast(q.device.type, enabled=False):  # the inverse needs float32
        middle = torch.softmax(few_q.float() @ few_k.float().transpose(-1, -2) * scale, -1)
        inverse = pseudo_inverse(middle, iterations)
    summary = dot_product_attention(few_q, k, v)
    near = torch.softmax(q @ few_k.transpose(-1, -2) * scale, -1)
    return near @ (inverse.to(near.dtype) @ summary)


def _segment_means(x: Tensor, parts: int) -> Tensor:
    """The means of so many segments, as even as possible. Pooling on a GPU limits the channels; a product does not."""
    length, device = x.shape[-2], x.device
    parts = min(parts, length)
    starts = torch.arange(parts, device=device) * length // parts
    ends = -(-torch.arange(1, parts + 1, device=device) * length // parts)
    at = torch.arange(length, device=device)
    inside = (at >= starts[:, None]) & (at < ends[:, None])
    return inside.to(x.dtype) @ x / (ends - starts)[:, None]


def pseudo_inverse(x: Tensor, iterations: int) -> Tensor:
    """The Moore-Penrose inverse by an iteration of matrix products."""
    one = torch.eye(x.shape[-1], device=x.device, dtype=x.dtype)
    largest = x.abs().sum(-1).amax(-1) * x.abs().sum(-2).amax(-1)
    z = x.transpose(-1, -2) / largest[..., None, None]
    for _ in range(iterations):
        xz = x @ z
        z = 0.25 * z @ (13 * one - xz @ (15 * one - xz @ (7 * one - xz)))
    return z


def positional_encoding(height: int, width: int, dim: int, device: torch.device | None = None) -> Tensor:
    """The sinusoidal positional encoding of the cells of a grid: (height * width, dim).

    :param dim: A multiple of 4.
    """
    waves = torch.logspace(0, 4 / dim - 1, dim // 4, 10_000, device=device)
    centres = [torch.linspace(torch.pi / n, (2 - 1 / n) * torch.pi, n, device=device) for n in (height, width)]
    phases = torch.cat(centres)[:, None] * waves
    lines = torch.stack([phases.sin(), phases.cos()], dim=-1).flatten(1)
    rows, columns = lines[:height], lines[height:]
    both = [rows[:, None].expand(-1, width, -1), columns[None].expand(height, -1, -1)]
    return torch.cat(both, dim=-1).flatten(0, 1)
