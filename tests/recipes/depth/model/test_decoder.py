"""The decoder's convolutions and upsampling against torch's own."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from trainonce.recipes.depth.model.decoder import (
    _upsampling_weights,
    conv_to_one_channel,
    depthwise_conv,
    upsample_2x,
)


def test_a_convolution_to_one_channel_is_nine_products():
    torch.manual_seed(0)
    head, along = nn.Conv2d(5, 1, 3, padding=1).double(), torch.randn(2, 1, 4, 7).double()
    x = torch.randn(2, 5, 4, 7, dtype=torch.float64, requires_grad=True)
    wanted = (x, *head.parameters())
    ours, torchs = ((y, *torch.autograd.grad(y, wanted, along)) for y in (conv_to_one_channel(head, x), head(x)))
    for found, expected in zip(ours, torchs, strict=True):
        torch.testing.assert_close(found, expected)


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
