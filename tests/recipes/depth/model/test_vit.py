"""The vision transformer: stages, positions, checkpoints."""

import pytest
import torch
from _depth_networks import CPU, images, small
from torch import nn
from torch.nn import functional as F

from trainonce.recipes.depth import training
from trainonce.recipes.depth.model.vit import SHAPES, ViT, embed_patches, running_max
from trainonce.recipes.depth.settings import Settings


def test_patches_are_embedded_as_by_their_convolution():
    torch.manual_seed(0)
    layer, along = nn.Conv2d(3, 5, 14, 14).double(), torch.randn(2, 6, 5).double()
    x = torch.randn(2, 3, 28, 42, dtype=torch.float64, requires_grad=True)
    cells, grid = embed_patches(x, layer)
    assert grid == (2, 3)
    wanted = (x, *layer.parameters())
    ours, torchs = ((y, *torch.autograd.grad(y, wanted, along)) for y in (cells, layer(x).flatten(2).mT))
    for found, expected in zip(ours, torchs, strict=True):
        torch.testing.assert_close(found, expected)
    with pytest.raises(ValueError, match=r"multiples of 14 pixels, the size of a patch; got 28x41\. Crop or resize"):
        embed_patches(x[..., :41], layer)


def test_the_larger_one_gets_the_gradient():
    before = torch.tensor([1.0, 3.0, torch.nan, 5.0]).view(1, 4, 1)
    x = torch.tensor([1.0, 1.0, 1.0, 0.0, torch.nan]).view(1, 5, 1)  # the token first: it is added to the cells
    torch.testing.assert_close(running_max(x, before)[0, :2, 0], torch.tensor([2.0, 3.0]))
    assert running_max(x, before)[0, 3].isnan()  # what is wrong now is not hidden by what was before
    before, x = before[:, :2].requires_grad_(), x[:, :3].requires_grad_()
    running_max(x, before).sum().backward()
    assert before.grad.flatten().tolist() == [0.0, 1.0]
    assert x.grad.flatten().tolist() == [1.0, 1.0, 0.0]
    torch.testing.assert_close(running_max(x, None)[0, :, 0], torch.tensor([2.0, 2.0]))


def test_a_stage_is_the_largest_of_its_blocks():
    torch.manual_seed(0)
    encoder = ViT(SHAPES["vit-tiny"])
    found = encoder(images(28, 42))
    assert found.grid == (2, 3)
    x = encoder.patch_embed["proj"](images(28, 42)).flatten(2).mT
    x = torch.cat([encoder.cls_token.expand(2, -1, -1), x], 1) + encoder._positions((2, 3))
    outputs = []
    for block in encoder.blocks:
        x, _ = block(x, None)
        outputs.append(x)
    stages = [(0, 2), (2, 3), (3, 5), (5, 6)]
    for one, (first, last) in zip(found.maps, stages, strict=True):
        torch.testing.assert_close(one, torch.stack([o[:, 1:] + o[:, :1] for o in outputs[first:last]]).amax(0))
    for token, output in zip(found.tokens, reversed(outputs), strict=False):
        torch.testing.assert_close(token, output[:, 0])


def test_positions_are_brought_to_other_grids():
    encoder = ViT(SHAPES["vit-tiny"])
    side = SHAPES["vit-tiny"].cells
    slope = torch.linspace(0, 1, side)[:, None].expand(side, side).reshape(1, -1, 1)
    encoder.pos_embed.data[:, 1:] = slope
    resized = encoder._positions((side // 2, side + 3))[0, 1:, 0].reshape(side // 2, side + 3)
    assert (resized.diff(dim=0) > 0).all()
    torch.testing.assert_close(resized, resized[:, :1].expand_as(resized))
    assert encoder._positions((side, side)) is encoder.pos_embed


def test_positions_are_interpolated_as_torch_does():
    encoder = ViT(SHAPES["vit-tiny"])
    side, grid = SHAPES["vit-tiny"].cells, (7, SHAPES["vit-tiny"].cells + 5)
    square = encoder.pos_embed[:, 1:].unflatten(1, (side, side)).permute(0, 3, 1, 2)
    resized = F.interpolate(square, scale_factor=[(n + 0.1) / side for n in grid], mode="bicubic")
    expected = torch.cat([encoder.pos_embed[:, :1], resized.flatten(2).transpose(1, 2)], dim=1)
    with torch.autocast("cpu", torch.bfloat16):
        found = encoder._positions(grid)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7)
    wanted = torch.randn(found.shape, generator=torch.Generator().manual_seed(0))
    gradients = [torch.autograd.grad((one * wanted).sum(), encoder.pos_embed)[0] for one in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-5)


def test_a_grid_that_was_first_seen_in_inference_mode_can_be_trained_on():
    network = small()
    with torch.inference_mode():
        network(images(42, 70))
    network(images(42, 70)).depth.sum().backward()
    assert network.encoder.pos_embed.grad.abs().sum() > 0


def test_recomputing_changes_nothing():
    plain, saving = small(), small(recompute=True)
    for network in (plain, saving):
        network(images(28, 42)).depth.log().sum().backward()
    for a, b in zip(plain.parameters(), saving.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)


def test_a_dinov2_checkpoint_loads_and_its_patches_stay(tmp_path):
    torch.manual_seed(1)
    state = ViT(SHAPES["vit-tiny"]).state_dict()
    extra = {"mask_token": torch.zeros(1, 192), "norm.weight": torch.ones(192), "norm.bias": torch.zeros(192)}
    torch.save(state | extra, tmp_path / "dino.pth")
    network = training.build_network(Settings(weights=str(tmp_path / "dino.pth"), dim=32, heads=2), CPU)
    torch.testing.assert_close(dict(network.encoder.state_dict()), dict(state))
    assert not network.encoder.patch_embed["proj"].weight.requires_grad
    assert network.encoder.pos_embed.requires_grad
    torch.save({k: v for k, v in state.items() if "blocks.3" not in k}, tmp_path / "part.pth")
    with pytest.raises(ValueError, match=r"part\.pth does not fit vit-tiny: it lacks blocks\.3\."):
        training.build_network(Settings(weights=str(tmp_path / "part.pth"), dim=32, heads=2), CPU)
