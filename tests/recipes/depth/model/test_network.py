"""The whole network: its shapes, what it computes, what gradients reach, how it starts."""

import math

import pytest
import torch
from _depth_networks import images, small
from torch import nn
from torch.nn import functional as F

from trainonce.recipes.depth.model import attention, camera
from trainonce.recipes.depth.model.attention import (
    Block,
)
from trainonce.recipes.depth.model.decoder import (
    ConvBlock,
)
from trainonce.recipes.depth.model.harmonics import harmonics, harmonics_table
from trainonce.recipes.depth.model.network import UniDepth
from trainonce.recipes.depth.model.vit import ViTBlock


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # dynamo's own
@pytest.mark.filterwarnings("ignore:.*Function'> should not be instantiated:DeprecationWarning")  # dynamo's own
@pytest.mark.parametrize("kind", ["encoder", "convolution", "attention"])
def test_blocks_compile_for_any_shape(kind, monkeypatch):
    """As where a shape is drawn for every step; without the compiler's code, which takes long to make."""
    monkeypatch.setattr(attention, "MAX_HEAD_DIM", 4)
    torch.manual_seed(0)
    block = {"encoder": ViTBlock(8, 2), "convolution": ConvBlock(8), "attention": Block(8, 1)}[kind]
    compiled = torch.compile(block, backend="aot_eager", dynamic=True, fullgraph=True)
    for rows, columns in ((3, 5), (4, 6), (5, 3)):
        x = torch.randn(2, rows * columns, 8, requires_grad=True)
        if kind == "encoder":
            given = (x, torch.randn(2, rows * columns - 1, 8))
        else:
            given = (x.mT.unflatten(2, (rows, columns)),) if kind == "convolution" else (x,)
        ours, plain = (found if isinstance(found, tuple) else (found,) for found in (compiled(*given), block(*given)))
        torch.testing.assert_close(ours, plain)
        wanted = (x, *block.parameters())
        slopes = [torch.autograd.grad(sum(part.sin().sum() for part in y), wanted) for y in (ours, plain)]
        torch.testing.assert_close(*slopes)


def test_four_numbers_are_a_camera():
    found = camera.decode_camera(torch.tensor([[0.0, math.log(2), 0.0, math.log(3)]]), (40, 60))[0]
    torch.testing.assert_close(found, torch.tensor([[30.0, 0, 30], [0, 60, 30], [0, 0, 1]]))


@pytest.mark.parametrize(("encoder", "size", "grid"), [("vit-tiny", (28, 42), (2, 3)), ("lite0", (32, 48), (2, 3))])
def test_shapes(encoder, size, grid):
    torch.manual_seed(0)
    found = UniDepth(encoder, 32, 2, (1, 1, 1), kind="nystrom")(images(*size))
    assert found.depth.shape == (2, *size)
    assert found.camera.shape == (2, 3, 3)
    assert found.rays.shape == (2, 3, *size)
    assert found.features.shape == (2, 32, *grid)
    assert (found.depth > 0).all()
    torch.testing.assert_close(found.rays.norm(dim=1), torch.ones(2, *size))


def test_depth_is_read_off_as_described():
    """Against a plain forward pass of the same layers, with weights that make every part matter."""
    torch.manual_seed(0)
    network = small().double().depth_module
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.3 / max(1, parameter.shape[-1]) ** 0.5)
    maps, places = torch.randn(1, 4, 6, 32, dtype=torch.double), torch.randn(1, 24, 32, dtype=torch.double)
    rays = F.normalize(torch.randn(1, 3, 28, 42, dtype=torch.double) + torch.tensor([0, 0, 3.0])[:, None, None], dim=1)
    network.heads.float()
    seen = []
    for i, embed in enumerate(network.embed):
        smaller = F.interpolate(rays.float(), (2 * 2**i, 3 * 2**i), mode="bilinear", antialias=True)
        directions = F.normalize(smaller, dim=1).flatten(2).mT
        seen.append(embed(harmonics(directions, harmonics_table(dtype=directions.dtype)).double()))
    x = network.start(torch.cat(list(maps[0]), -1)[None])
    x = network.aggregate(x, torch.cat(list(maps[0]))[None], context_position=places)
    x = network.prompt(x, seen[0])
    found = []
    for i in range(3):
        for block in network.levels[i]:
            x = block(x, position=seen[i])
        if i == 0:
            shared = x
        square = (x + seen[i]).mT.reshape(1, -1, 2 * 2**i, 3 * 2**i)
        up = network.up[i]
        square = up.narrow(up.blocks(square))
        square = up.smooth(F.interpolate(square, scale_factor=2, mode="bilinear", align_corners=True))
        metres = network.heads[i](square.float()).clamp(-10, 10).exp()
        found.append(F.interpolate(metres, (28, 42), mode="bilinear", antialias=True)[:, 0])
        x = square.flatten(2).mT
    depth, features = network(maps, places, rays, (2, 3), (28, 42))
    torch.testing.assert_close(depth, torch.stack(found).mean(0), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(features, shared.mT.reshape(1, 32, 2, 3))
    assert (found[0] / found[1]).log().abs().mean() > 0.05  # so a mean of logarithms would differ
    assert depth.std() > 0.01


def test_each_map_and_each_cell_has_its_place():
    places = small()._cell_encodings((2, 3), torch.zeros(1))
    apart = torch.cdist(places[0], places[0]).fill_diagonal_(1)
    assert places.shape == (1, 24, 32)
    assert apart.min() > 0.05


def test_the_paper_s_network_has_its_size():
    with torch.device("meta"):
        count = sum(p.numel() for p in UniDepth("vit-l", 512, 8, (3, 2, 1)).parameters())
    assert 340e6 < count < 355e6


@pytest.mark.parametrize("encoder", ["vit-tiny", "resnet-small"])
@pytest.mark.parametrize("dim", [32, 128])
def test_a_narrow_network_begins_with_what_it_sees(encoder, dim):
    """It would long say the same of every image if its first weights were as small as a wide network's."""
    torch.manual_seed(0)
    network = UniDepth(encoder, dim, 2, (1, 1, 1))
    side = 4 * network.patch
    with torch.no_grad():
        found = network(images(side, side, batch=8))
    assert found.features.std(0).mean() > 0.1 * found.features.std()
    assert found.depth.log().mean() == pytest.approx(math.log(2.5), abs=0.3)
    torch.testing.assert_close(found.camera[:, :2, 2], torch.full((8, 2), side / 2), atol=side / 20, rtol=0)


def test_a_wide_network_begins_as_the_original():
    torch.manual_seed(0)
    weight = UniDepth("vit-tiny", 512, 8, (1, 0, 0)).depth_module.start[0].weight
    assert weight.std().item() == pytest.approx(0.02, rel=0.02)


def test_depth_does_not_train_the_camera_and_the_camera_does_not_train_class_tokens():
    network = small()
    found = network(images(28, 42))
    found.depth.log().sum().backward(retain_graph=True)
    assert all(p.grad is None for p in network.camera_module.parameters())
    network.zero_grad()
    seen = {}
    for name, adapter in network.token_adapters.named_children():
        adapter.register_forward_pre_hook(lambda _, given, name=name: seen.update({name: given[0].requires_grad}))
    network(images(28, 42)).rays.square().sum().backward()
    assert seen == dict.fromkeys("0123", False)
    assert network.encoder.blocks[0].norm1.weight.grad is not None  # through the maps


def test_an_unknown_encoder_is_one_sentence():
    with pytest.raises(ValueError, match=r"^encoder is one of 'vit-l', .*; got 'vit_l'\. Did you mean 'vit-l'\?$"):
        UniDepth("vit_l")
