"""The depth network: its parts against plain arithmetic, its shapes, what gradients reach, checkpoints."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import trainonce
from trainonce.recipes.depth import training
from trainonce.recipes.depth.generated import rooms
from trainonce.recipes.depth.losses import TERMS
from trainonce.recipes.depth.model import attention, camera
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
from trainonce.recipes.depth.model.decoder import (
    ConvBlock,
    _upsampling_weights,
    conv_to_one_channel,
    depthwise_conv,
    upsample_2x,
)
from trainonce.recipes.depth.model.harmonics import harmonics, harmonics_table
from trainonce.recipes.depth.model.network import UniDepth
from trainonce.recipes.depth.model.vit import SHAPES, ViT, ViTBlock, embed_patches, running_max
from trainonce.recipes.depth.optimisation import Average, clipped, optimizer, rate
from trainonce.recipes.depth.settings import Settings

CPU = torch.device("cpu")
TINY = Settings(shape=(28, 42), dim=32, heads=2, steps=8, batch=4)


def images(*size, batch=2):
    return torch.randn(batch, 3, *size, generator=torch.Generator().manual_seed(0))


def small(**more):
    torch.manual_seed(0)
    return UniDepth("vit-tiny", 32, 2, (1, 1, 1), **more)


# Directions


def test_harmonics_are_orthonormal():
    """Integrated exactly: Gauss-Legendre points in z, equal steps around, enough for products of degree 16."""
    z, weights = (torch.tensor(part, dtype=torch.double) for part in _legendre(9))
    turn = torch.arange(18, dtype=torch.double) * 2 * math.pi / 18
    around = (1 - z**2).sqrt()
    x, y = around[:, None] * turn.cos(), around[:, None] * turn.sin()
    directions = torch.stack([x, y, z[:, None].expand_as(x)], -1)
    every = harmonics(directions, harmonics_table(dtype=directions.dtype)).flatten(0, 1)
    area = (weights[:, None] * 2 * math.pi / 18).expand_as(x).flatten()
    torch.testing.assert_close(every.T @ (every * area[:, None]), torch.eye(81, dtype=torch.double), atol=1e-12, rtol=0)


def _legendre(count):
    """Points and weights by Newton's method."""
    points, weights = [], []
    for i in range(count):
        z = math.cos(math.pi * (i + 0.75) / (count + 0.5))
        for _ in range(50):
            before, now = 1.0, z
            for n in range(2, count + 1):
                before, now = now, ((2 * n - 1) * z * now - (n - 1) * before) / n
            slope = count * (z * now - before) / (z * z - 1)
            z -= now / slope
        points.append(z)
        weights.append(2 / ((1 - z * z) * slope**2))
    return points, weights


def test_the_first_harmonics_are_the_coordinates():
    d = F.normalize(torch.randn(5, 3, dtype=torch.double), dim=1)
    expected = torch.stack([torch.full((5,), 0.2820948), *(0.4886025 * s for s in (-d[:, 1], d[:, 2], -d[:, 0]))], 1)
    torch.testing.assert_close(harmonics(d, harmonics_table(1)), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("degree", [0, 1, 2, 5, 8])
def test_harmonics_are_what_recurrences_give(degree):
    """One by one in Python's floats, and nearly so in float32; the poles and the equator are among them."""
    some = torch.randn(40, 3, dtype=torch.double, generator=torch.Generator().manual_seed(0))
    d = F.normalize(torch.cat([some, torch.eye(3), -torch.eye(3)]), dim=1)
    expected = torch.tensor([_harmonics(*row, degree) for row in d.tolist()], dtype=torch.double)
    torch.testing.assert_close(harmonics(d, harmonics_table(degree, dtype=d.dtype)), expected, atol=1e-13, rtol=0)
    torch.testing.assert_close(harmonics(d.float(), harmonics_table(degree)), expected.float(), atol=5e-6, rtol=0)


def _harmonics(x, y, z, degree):
    found = {}
    for m in range(degree + 1):
        around = complex(x, y) ** m
        before, now = 0.0, math.prod(range(1, 2 * m, 2))
        for n in range(m, degree + 1):
            if n > m:
                before, now = now, (z * (2 * n - 1) * now - (n + m - 1) * before) / (n - m)
            size = (2 * n + 1) / (4 * math.pi) * math.factorial(n - m) / math.factorial(n + m) * (2 if m else 1)
            value = (-1) ** m * math.sqrt(size) * now
            found[n, -m], found[n, m] = value * around.imag, value * around.real
    return [found[n, m] for n in range(degree + 1) for m in range(-n, n + 1)]


# Attention


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


def test_a_convolution_to_one_channel_is_nine_products():
    torch.manual_seed(0)
    head, along = nn.Conv2d(5, 1, 3, padding=1).double(), torch.randn(2, 1, 4, 7).double()
    x = torch.randn(2, 5, 4, 7, dtype=torch.float64, requires_grad=True)
    wanted = (x, *head.parameters())
    ours, torchs = ((y, *torch.autograd.grad(y, wanted, along)) for y in (conv_to_one_channel(head, x), head(x)))
    for found, expected in zip(ours, torchs, strict=True):
        torch.testing.assert_close(found, expected)


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


@pytest.mark.parametrize("narrow", [False, True])
def test_a_depthwise_convolution_is_that_of_torch(narrow):
    torch.manual_seed(0)
    layer, x, along = nn.Conv2d(4, 4, 7, padding=3, groups=4), torch.randn(2, 4, 5, 9), torch.randn(2, 4, 5, 9)
    x.requires_grad_()
    wanted = (x, *layer.parameters())
    with torch.autocast("cpu", torch.bfloat16, enabled=narrow):
        ours, torchs = (
            (y, *torch.autograd.grad(y, wanted, along.to(y.dtype))) for y in (depthwise_conv(x, layer), layer(x))
        )
        for found, expected in zip(ours, torchs, strict=True):
            assert found.dtype == expected.dtype
            torch.testing.assert_close(found, expected, **{"rtol": 0.02, "atol": 0.02} if narrow else {})


@pytest.mark.parametrize("size", [(1, 3), (4, 5), (37, 55)])
def test_upsampling_is_what_torch_interpolates(size):
    torch.manual_seed(0)
    x = torch.randn(2, 3, *size, dtype=torch.float64, requires_grad=True)
    expected = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True)
    torch.testing.assert_close(upsample_2x(x), expected, rtol=0, atol=1e-12)
    along = torch.randn_like(expected)
    ours, torchs = (torch.autograd.grad(y, x, along)[0] for y in (upsample_2x(x), expected))
    torch.testing.assert_close(ours, torchs, rtol=0, atol=1e-12)
    for n in size:
        weights = _upsampling_weights(n, torch.bfloat16, x.device)
        assert weights.shape == (2 * n, -(-n // 8) * 8)  # as tensor cores take it
        assert (weights.float().sum(1) == 1).all()
    narrow = upsample_2x(x.detach().bfloat16()).float()
    assert (narrow - expected).abs().max() < 0.03


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


# The encoder


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
    network = training.built(Settings(weights=str(tmp_path / "dino.pth"), dim=32, heads=2), CPU)
    torch.testing.assert_close(dict(network.encoder.state_dict()), dict(state))
    assert not network.encoder.patch_embed["proj"].weight.requires_grad
    assert network.encoder.pos_embed.requires_grad
    torch.save({k: v for k, v in state.items() if "blocks.3" not in k}, tmp_path / "part.pth")
    with pytest.raises(ValueError, match=r"part\.pth does not fit vit-tiny: it lacks blocks\.3\."):
        training.built(Settings(weights=str(tmp_path / "part.pth"), dim=32, heads=2), CPU)


# Camera and depth


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
    places = small()._places((2, 3), torch.zeros(1))
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


# Optimisation


def test_the_rate_is_constant_and_then_falls():
    settings = Settings(steps=100, constant=0.25, lowest=0.01)
    assert [rate(s, settings) for s in (0, 25)] == [1.0, 1.0]
    assert rate(62, settings) == pytest.approx(0.5154, abs=1e-3)
    assert rate(100, settings) == pytest.approx(0.01)
    assert rate(50, Settings(steps=100, constant=1.0)) == 1.0


def test_groups():
    network = small()
    made = optimizer(network, Settings(lr=1e-3, encoder_lr=0.1, weight_decay=0.1))
    known = {id(p): g for g in made.param_groups for p in g["params"]}
    named = {name: known[id(p)] for name, p in network.named_parameters()}
    assert len(named) == len(known)
    rates = {name.startswith("encoder."): g["lr"] for name, g in named.items()}
    assert rates == {True: pytest.approx(1e-4), False: 1e-3}
    free = {"encoder.cls_token", "encoder.pos_embed", "levels", "camera_module.places", "encoder.norm1"}
    for name, parameter in network.named_parameters():
        assert named[name]["weight_decay"] == (0.0 if parameter.ndim < 2 or name in free else 0.1), name


@pytest.mark.parametrize("inside", [False, True])
def test_the_exponents_are_clipped_only_if_asked_for(inside):
    network, criterion = small(), trainonce.CompositeLoss(["a", "b", "c"])
    weight = network.depth_module.heads[0].bias
    for parameter in (weight, *criterion.parameters()):
        parameter.grad = torch.full_like(parameter, 10.0)
    clipped(network, criterion, Settings(clip=1.0, clip_exponents=inside))
    assert (weight.grad.item() < 0.99) is inside
    assert (criterion.exponents.grad.max().item() < 10) is inside


def test_the_average_is_one_and_is_given_back():
    network = small()
    weight = network.depth_module.heads[0].bias
    average = Average(network, Settings(average=0.5, average_from=0.0, steps=10))
    expected = None
    for step in range(1, 5):
        weight.data.fill_(float(step))
        average.step(step)
        stays = min(0.5, (1 + step) / (10 + step))
        expected = float(step) if expected is None else stays * expected + (1 - stays) * step
    with average as shown:
        assert shown.depth_module.heads[0].bias.item() == pytest.approx(expected)
    assert weight.item() == 4.0
    other = Average(network, Settings(average=0.5, steps=10))
    other.load_state_dict(average.state_dict())
    with other:
        assert weight.item() == pytest.approx(expected)


# Parameters laid end to end


@pytest.mark.parametrize("frozen", [False, True])
def test_parameters_laid_end_to_end_are_trained_alike(frozen):
    """Without a GPU, graphed means that, and no graphs."""
    (plain, network), (flat, other) = (_trained(graphed, frozen) for graphed in (False, True))
    assert network.flat is None
    assert other.flat is not None
    torch.testing.assert_close(flat, plain, rtol=1e-5, atol=1e-6)
    assert plain[0].tolist() != plain[-1].tolist()
    expected, found = network.state_dict(), other.state_dict()
    assert list(found) == list(expected)
    for name, value in expected.items():
        assert (found[name] - value).abs().mean() < 2e-5, name  # a fiftieth of what a step may move a weight by


def _trained(graphed, frozen):
    """The loss terms of some steps on rooms, and the network after them."""
    settings = Settings(shape=(28, 42), dim=32, heads=2, steps=3, batch=4, graphed=graphed, lr=1e-3)
    torch.manual_seed(0)
    with pytest.MonkeyPatch.context() as patched:
        if frozen:
            patched.setattr(training, "UniDepth", _frozen)
        network = training.built(settings, CPU)
    before = network.encoder.patch_embed["proj"].weight.clone()
    steps, objective = optimizer(network, settings), training.wrapped(network, settings, CPU)
    criterion, average, found = trainonce.CompositeLoss(TERMS), Average(network, settings), []
    for step, views in training.fed(rooms.load(0, (30, 40), (4, 1, 1)), settings, network.patch, 0, CPU, 0):
        steps.zero_grad()
        terms = objective(*views[:4])
        sum(terms.values()).backward()
        clipped(network, criterion, settings)
        steps.step()
        average.step(step)
        found.append(torch.stack([terms[name].detach() for name in TERMS]))
    assert torch.equal(before, network.encoder.patch_embed["proj"].weight) is frozen
    return torch.stack(found), network


def _frozen(*given, **more):
    network = UniDepth(*given, **more)
    network.encoder.patch_embed.requires_grad_(False)
    return network
