"""The attention block of the decoder, in full or by landmarks, and its small companions."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Kind = Literal["full", "nystrom"]
LANDMARKS = 128


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
        self.norm, self.norm_context = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.query, self.key_value = nn.Linear(dim, dim), nn.Linear(dim, 2 * dim)
        self.out = nn.Linear(dim, dim)
        self.inner = MLP(dim, expansion)
        self.scale, self.scale_inner = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.ones(dim))

    def forward(
        self, x: Tensor, context: Tensor | None = None, *, at: Tensor | None = None, context_at: Tensor | None = None
    ) -> Tensor:
        q = self.query(self.norm(x))
        k, v = self.key_value(self.norm_context(x if context is None else context)).chunk(2, dim=-1)
        q = q if at is None else q + at
        k = k if context_at is None else k + context_at
        split = [t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v)]
        found = nystrom(*split) if self.kind == "nystrom" else F.scaled_dot_product_attention(*split)
        x = x + self.scale * self.out(found.transpose(1, 2).flatten(2))
        out: Tensor = x + self.scale_inner * self.inner(x)
        return out


class MLP(nn.Module):
    """Normalised, widened, and brought to a width, by default the same."""

    def __init__(self, dim: int, expansion: int = 4, out: int | None = None) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.widen, self.narrow = nn.Linear(dim, dim * expansion), nn.Linear(dim * expansion, out or dim)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.narrow(F.gelu(self.widen(self.norm(x))))
        return found


def nystrom(q: Tensor, k: Tensor, v: Tensor, landmarks: int = LANDMARKS, iterations: int = 6) -> Tensor:
    """Attention through few landmarks, which are means of neighbouring queries and keys: (batch, heads, length, dim).

    Exact where there are no more keys and queries than landmarks.
    """
    if max(q.shape[-2], k.shape[-2]) <= landmarks:
        return F.scaled_dot_product_attention(q, k, v)
    few_q, few_k = (_means(t, landmarks) for t in (q, k))
    scale = q.shape[-1] ** -0.5
    with torch.autocast(q.device.type, enabled=False):  # an inverse, though of few
        middle = torch.softmax(few_q.float() @ few_k.float().transpose(-1, -2) * scale, -1)
        inverse = pseudo_inverse(middle, iterations)
    gathered = F.scaled_dot_product_attention(few_q, k, v)
    near = torch.softmax(q @ few_k.transpose(-1, -2) * scale, -1)
    return near @ (inverse.to(near.dtype) @ gathered)


def _means(x: Tensor, parts: int) -> Tensor:
    flat = x.flatten(0, 1).transpose(1, 2)
    means = F.adaptive_avg_pool1d(flat, min(parts, x.shape[-2])).transpose(1, 2)
    return means.reshape(*x.shape[:2], *means.shape[1:])


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
    """Where each cell of a grid is, as sines of its row and its column: (height * width, dim)."""
    half = dim // 2
    waves = 10_000 ** (2 * (torch.arange(half, device=device) // 2) / half)

    def line(count: int) -> Tensor:
        at = (torch.arange(count, device=device) + 0.5) / count * 2 * torch.pi
        turned = at[:, None] / waves
        return torch.where(torch.arange(half, device=device) % 2 == 0, turned.sin(), turned.cos())

    rows, columns = line(height), line(width)
    both = [rows[:, None].expand(-1, width, -1), columns[None].expand(height, -1, -1)]
    return torch.cat(both, dim=-1).flatten(0, 1)
