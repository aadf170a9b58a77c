"""The convolutional encoders: shapes, published sizes, dilation."""

import types

import pytest
import torch
from torch import nn

from trainonce.recipes.vision.efficientnet import (
    EfficientNetLite,
    Same,
    batch_to_space,
    convolve_and_normalise,
    space_to_batch,
)
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
    plain, folded = norm(convolution(x, dilation)), convolve_and_normalise(x, convolution, norm, dilation)
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


def test_splitting_for_dilation_changes_nothing():
    torch.manual_seed(1)
    network = EfficientNetLite().double().eval()
    for norm in (m for m in network.modules() if isinstance(m, nn.BatchNorm2d)):
        norm.running_mean.normal_(std=0.1)
    whole = images(64, 96).double() / 255
    quick = network(whole)["stage7"]
    plain = network.forward.__globals__
    before, plain["space_to_batch"] = plain["space_to_batch"], None  # without dilation nothing may be split
    try:
        network._dilations, dilations = [1] * len(network._dilations), network._dilations
        for block, dilation in zip(network.blocks, dilations, strict=True):
            block.forward = types.MethodType(lambda self, x, _, d=dilation: type(self).forward(self, x, d), block)
        slow = network(whole)["stage7"]
    finally:
        plain["space_to_batch"] = before
    torch.testing.assert_close(quick, slow, rtol=0, atol=1e-12)


def test_sizes_that_cannot_be_split_are_dilated_instead():
    network = EfficientNetLite().eval()
    assert network(images(72, 104))["stage7"].shape[-2:] == (9, 13)


def test_space_to_batch_and_back():
    x = torch.rand(2, 5, 8, 12)
    assert space_to_batch(x, 4).shape == (32, 5, 2, 3)
    assert torch.equal(batch_to_space(space_to_batch(x, 4), 4), x)
    assert torch.equal(space_to_batch(x, 2)[1], x[0, :, ::2, 1::2])
