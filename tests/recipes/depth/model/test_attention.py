"""Attention, its block and its parts against plain arithmetic."""

import pytest
import torch
from _depth_networks import images, small
from torch import nn
from torch.nn import functional as F

from trainonce.recipes.depth.model import attention
from trainonce.recipes.depth.model.attention import (
    MLP,
    Block,
    Norm,
    add_scaled,
    dot_product_attention,
    nystrom,
    positional_encoding,
    pseudo_inverse,
)


def test_wide_heads_are_attended_as_narrow_ones():
    rng = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 1, n, 264, dtype=torch.double, generator=rng, requires_grad=True) for n in (5, 9, 9))
    found, expected = dot_product_attention(q, k, v), F.scaled_dot_product_attention(q, k, v)
    torch.testing.assert_close(found, expected)
    weights = torch.randn(found.shape, dtype=torch.double, generator=rng)
    ours, theirs = (torch.autograd.grad((out * weights).sum(), (q, k, v)) for out in (found, expected))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(("length", "parts"), [(256, 64), (271, 64), (10, 7), (5, 8)])
def test_landmarks_are_means_of_neighbours(length, parts):
    x = torch.randn(2, 3, length, 4, dtype=torch.double)
    expected = F.adaptive_avg_pool1d(x.flatten(0, 1).mT, min(parts, length)).mT
    torch.testing.assert_close(attention._segment_means(x, parts).flatten(0, 1), expected)


@pytest.mark.parametrize("many", [0, 1 << 30])
def test_a_scaled_layer_is_added_whichever_is_scaled(monkeypatch, many):
    monkeypatch.setattr(attention, "LARGE", many)
    layer, scale = nn.Linear(6, 4).double(), torch.randn(4, dtype=torch.double, requires_grad=True)
    x, inner = (torch.randn(2, 3, n, dtype=torch.double, requires_grad=True) for n in (4, 6))
    given = (x, scale, layer.weight, layer.bias, inner)
    found, expected = add_scaled(x, scale, layer, inner), x + scale * (inner @ layer.weight.mT + layer.bias)
    torch.testing.assert_close(found, expected)
    ours, theirs = (torch.autograd.grad(out.square().sum(), given) for out in (found, expected))
    torch.testing.assert_close(ours, theirs)


def test_odd_widths_are_padded_with_zeros(monkeypatch):
    torch.manual_seed(0)
    mlp = MLP(81, out=16).double()
    x, along = torch.randn(3, 5, 81).double(), torch.randn(3, 5, 16).double()

    def found(many):
        monkeypatch.setattr(attention, "LARGE", many)
        y = mlp(x)
        return y, *torch.autograd.grad(y, list(mlp.parameters()), along)

    products, widths = F.linear, []
    monkeypatch.setattr(F, "linear", lambda *given: widths.append(given[1].shape) or products(*given))
    for aligned, plain in zip(found(1), found(1 << 22), strict=True):
        torch.testing.assert_close(aligned, plain)
    assert widths == [(328, 88), (16, 328), (324, 81), (16, 324)]


def test_norms_give_what_they_got():
    norm = Norm(8)
    nn.init.normal_(norm.weight)
    x = torch.randn(3, 8)
    torch.testing.assert_close(norm(x), F.layer_norm(x, (8,), norm.weight, norm.bias), rtol=0, atol=0)
    with torch.autocast("cpu", torch.bfloat16):
        narrow = norm(x.bfloat16())
    assert narrow.dtype == torch.bfloat16
    torch.testing.assert_close(narrow.float(), norm(x), rtol=0.03, atol=0.03)


def test_blocks_stay_narrow_under_autocast():
    """Nothing as large as what goes through the network is converted between layers."""
    seen = []
    network = small()
    for module in network.modules():
        if isinstance(module, (Block, MLP, Norm)) and module is not network.camera_module.say:
            module.register_forward_pre_hook(lambda _, given: seen.append(given[0].dtype))
    for module in network.camera_module.say.modules():
        module._forward_pre_hooks.clear()
    with torch.autocast("cpu", torch.bfloat16):
        found = network(images(28, 42))
    assert set(seen) == {torch.bfloat16}
    assert [value.dtype for value in found[:3]] == [torch.float32] * 3


def test_few_cells_are_attended_to_exactly_and_many_nearly():
    q, k, v = torch.randn(3, 1, 2, 256, 8, generator=torch.Generator().manual_seed(0)).unbind()
    full = F.scaled_dot_product_attention(q, k, v)
    torch.testing.assert_close(nystrom(q, k, v, landmarks=256), full)
    rng = torch.Generator().manual_seed(0)
    drawn = [4 * torch.randn(2, 8, 271, generator=rng) for _ in range(3)]
    smooth = [F.avg_pool1d(t, 16, 1).mT[None] for t in drawn]  # neighbours alike, as in images
    full, near = F.scaled_dot_product_attention(*smooth), nystrom(*smooth, landmarks=64)
    assert (near - full).norm() < 0.05 * full.norm()
    assert (full - smooth[2].mean(2, keepdim=True)).norm() > 0.5 * full.norm()  # so averaging all would not do


def test_the_inverse_is_one():
    x = torch.softmax(torch.randn(3, 16, 16, dtype=torch.double) * 2, -1) + torch.eye(16)
    torch.testing.assert_close(
        pseudo_inverse(x, 12) @ x, torch.eye(16, dtype=torch.double).expand_as(x), atol=1e-6, rtol=0
    )


def test_a_block_is_what_its_description_says():
    block = Block(8, 2).double()
    for parameter in block.parameters():
        nn.init.normal_(parameter, std=0.5)
    x, context = torch.randn(1, 3, 8, dtype=torch.double), torch.randn(1, 5, 8, dtype=torch.double)
    at, context_position = torch.randn(1, 3, 8, dtype=torch.double), torch.randn(1, 5, 8, dtype=torch.double)
    q = block.query(block.norm(x)) + at
    k, v = block.key_value(block.norm_context(context)).split(8, -1)
    k = k + context_position
    heads = []
    for h in range(2):
        part = slice(4 * h, 4 * h + 4)
        heads.append(torch.softmax(q[..., part] @ k[..., part].mT / 2, -1) @ v[..., part])
    y = x + block.scale * block.out(torch.cat(heads, -1))
    expected = y + block.scale_inner * block.inner(y)
    torch.testing.assert_close(block(x, context, position=at, context_position=context_position), expected)


def test_every_cell_of_a_grid_has_its_own_place():
    places = positional_encoding(5, 7, 32)
    assert places.shape == (35, 32)
    assert torch.cdist(places, places).fill_diagonal_(1).min() > 0.05


def test_heads_must_share_the_width():
    with pytest.raises(ValueError, match=r"^The width 30 cannot be shared by 4 heads\.$"):
        Block(30, 4)
