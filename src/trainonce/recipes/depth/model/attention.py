"""The attention block of the decoder, in full or by landmarks, and its small companions."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Kind = Literal["full", "nystrom"]
LANDMARKS = 128
WIDEST = 256  # the widest head that fast kernels take
MANY = 1 << 22  # so many values take longer to pass over than a kernel takes to start
ALIGNED = 8  # the widths and counts that fast products in bfloat16 take are multiples of it


class Block(nn.Module):
    """Attention to a context, or to itself, and a small network, each added to its input with a learned scale.

    Positions are added to queries and keys after their projections, and never to values.

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
        self, x: Tensor, context: Tensor | None = None, *, at: Tensor | None = None, context_at: Tensor | None = None
    ) -> Tensor:
        q = self.query(self.norm(x))
        k, v = self.key_value(self.norm_context(x if context is None else context)).chunk(2, dim=-1)
        q = q if at is None else q + at.to(q.dtype)
        k = k if context_at is None else k + context_at.to(k.dtype)
        split = [t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v)]
        found = nystrom(*split) if self.kind == "nystrom" else attended(*split)
        x = added(x, self.scale, self.out, found.transpose(1, 2).flatten(2))
        return added(x, self.scale_inner, self.inner.narrow, self.inner.widened(x))


class MLP(nn.Module):
    """Normalised, widened, and brought to a width, by default the same."""

    def __init__(self, dim: int, expansion: int = 4, out: int | None = None) -> None:
        super().__init__()
        self.norm = Norm(dim)
        self.widen, self.narrow = nn.Linear(dim, dim * expansion), nn.Linear(dim * expansion, out or dim)

    def forward(self, x: Tensor) -> Tensor:
        if x.numel() >= MANY and x.shape[-1] % ALIGNED:
            return self._aligned(x)
        found: Tensor = self.narrow(self.widened(x))
        return found

    def _aligned(self, x: Tensor) -> Tensor:
        """The same, with zeros that make odd widths such as tensor cores take; the GELU of 0 is 0."""
        before, between = -self.widen.in_features % ALIGNED, -self.widen.out_features % ALIGNED
        wide = F.pad(self.widen.weight, (0, before, 0, between)), F.pad(self.widen.bias, (0, between))
        x = F.gelu(F.linear(F.pad(self.norm(x), (0, before)), *wide))
        return F.linear(x, F.pad(self.narrow.weight, (0, between)), self.narrow.bias)

    def widened(self, x: Tensor) -> Tensor:
        return F.gelu(self.widen(self.norm(x)))


class Norm(nn.LayerNorm):
    """A layer norm whose result is as wide as what it is given, also where autocast would widen it.

    Its means and variances are computed in float32 nonetheless.
    """

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            return F.layer_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.bias.to(x.dtype), self.eps)


def added(x: Tensor, scale: Tensor, layer: nn.Linear, inner: Tensor) -> Tensor:
    """``x + scale * layer(inner)``. Where these are many values, the layer's few weights are scaled in their place."""
    if inner.numel() < MANY:
        found: Tensor = x + scale.to(x.dtype) * layer(inner)
        return found
    return x + F.linear(inner, scale[:, None] * layer.weight, scale * layer.bias)


def attended(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention: (batch, heads, length, dim). Fast kernels are not made for very wide heads; plain products are."""
    if q.shape[-1] <= WIDEST:
        return F.scaled_dot_product_attention(q, k, v)
    count = k.shape[-2]
    k, v = filled(k), filled(v)
    scores = (q * q.shape[-1] ** -0.5) @ k.mT
    if count % ALIGNED:  # what was filled in has no weight
        scores = scores.masked_fill(torch.arange(k.shape[-2], device=k.device) >= count, float("-inf"))
    with torch.autocast(q.device.type, enabled=False):  # adds up in float32 in any case, but keeps what it gives narrow
        weights = torch.softmax(scores, -1)
    return weights @ v


def filled(cells: Tensor) -> Tensor:
    """Cells (..., cells, channels) with zeros after them, up to a number that tensor cores take."""
    over = -cells.shape[-2] % ALIGNED
    return F.pad(cells, (0, 0, 0, over)) if over else cells


def nystrom(q: Tensor, k: Tensor, v: Tensor, landmarks: int = LANDMARKS, iterations: int = 6) -> Tensor:
    """Attention through few landmarks, which are means of neighbouring queries and keys: (batch, heads, length, dim).

    Exact where there are no more keys and queries than landmarks.
    """
    if max(q.shape[-2], k.shape[-2]) <= landmarks:
        return attended(q, k, v)
    few_q, few_k = (_means(t, landmarks) for t in (q, k))
    scale = q.shape[-1] ** -0.5
    with torch.autocast(q.device.type, enabled=False):  # an inverse, though of few
        middle = torch.softmax(few_q.float() @ few_k.float().transpose(-1, -2) * scale, -1)
        inverse = pseudo_inverse(middle, iterations)
    gathered = attended(few_q, k, v)
    near = torch.softmax(q @ few_k.transpose(-1, -2) * scale, -1)
    return near @ (inverse.to(near.dtype) @ gathered)


def _means(x: Tensor, parts: int) -> Tensor:
    """Of so many runs of neighbours, as even as can be. Pooling on a GPU is limited in channels; a product is not."""
    length, device = x.shape[-2], x.device
    parts = min(parts, length)
    starts = torch.arange(parts, device=device) * length // parts
    ends = -(-torch.arange(1, parts + 1, device=device) * length // parts)
    at = torch.arange(length, device=device)
    inside = (at >= starts[:, None]) & (at < ends[:, None])
    return inside.to(x.dtype) @ x / (ends - starts)[:, None]


def pseudo_inverse(x: Tensor, iterations: int) -> Tensor:
    """The inverse by repeated products, which converge fast from a start that is small enough."""
    one = torch.eye(x.shape[-1], device=x.device, dtype=x.dtype)
    largest = x.abs().sum(-1).amax(-1) * x.abs().sum(-2).amax(-1)
    z = x.transpose(-1, -2) / largest[..., None, None]
    for _ in range(iterations):
        xz = x @ z
        z = 0.25 * z @ (13 * one - xz @ (15 * one - xz @ (7 * one - xz)))
    return z


def sine_grid(height: int, width: int, dim: int, device: torch.device | None = None) -> Tensor:
    """Where each cell of a grid is, as sines of its row and its column: (height * width, dim).

    :param dim: A multiple of 4.
    """
    waves = torch.logspace(0, 4 / dim - 1, dim // 4, 10_000, device=device)
    middles = [torch.linspace(torch.pi / n, (2 - 1 / n) * torch.pi, n, device=device) for n in (height, width)]
    turned = torch.cat(middles)[:, None] * waves
    lines = torch.stack([turned.sin(), turned.cos()], dim=-1).flatten(1)
    rows, columns = lines[:height], lines[height:]
    both = [rows[:, None].expand(-1, width, -1), columns[None].expand(height, -1, -1)]
    return torch.cat(both, dim=-1).flatten(0, 1)
