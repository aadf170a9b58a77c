"""Colour jitter: brightness, contrast, saturation, hue, gamma, blur. Random numbers are drawn before it is applied."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

JITTERS = ("brightness", "contrast", "saturation", "hue")
KERNEL = 13  # pixels: of the blur
GREY = (0.299, 0.587, 0.114)


class ColourJitter(NamedTuple):
    """What is done to the colours of an image, in this order.

    :param jitters: Names among :data:`JITTERS` with amounts: factors, of which 1 changes nothing; of ``"hue"`` the
        part of a turn, of which 0 changes nothing.
    :param gamma: The exponent of its values.
    :param blur: The standard deviation of a Gaussian blur in pixels; 0: none.
    :param grey: Whether the image becomes grey.
    """

    jitters: tuple[tuple[str, float], ...] = ()
    gamma: float = 1.0
    blur: float = 0.0
    grey: bool = False


def draw_jitter(draws: Iterator[float]) -> ColourJitter:
    """A random colour jitter from numbers between 0 and 1; it always takes the same count of them."""
    order = sorted(range(len(JITTERS)), key=[next(draws) for _ in JITTERS].__getitem__)
    factors = {name: (next(draws) < 0.8, 1 + 0.4 * _to_signed(next(draws))) for name in JITTERS}
    amounts = {
        "brightness": factors["brightness"][1],
        "contrast": factors["contrast"][1],
        "saturation": factors["saturation"][1] / 2,  # as the original has it: colours only ever get paler
        "hue": (factors["hue"][1] - 1) / 4,
    }
    jitters = tuple((JITTERS[i], amounts[JITTERS[i]]) for i in order if factors[JITTERS[i]][0])
    has_gamma, gamma = next(draws) < 0.8, 1 + 0.2 * _to_signed(next(draws))
    has_blur, sigma = next(draws) < 0.2, 0.1 + 1.9 * next(draws)
    return ColourJitter(jitters, gamma if has_gamma else 1.0, sigma if has_blur else 0.0, next(draws) < 0.2)


def apply_jitter(images: Tensor, inside: Tensor, jitters: Sequence[ColourJitter]) -> Tensor:
    """Each image with its colour jitter. Images that get the same operation at the same turn get it together.

    :param images: From 0 to 1, (batch, 3, height, width). They are not changed.
    :param inside: The pixels that belong to the image, (batch, height, width): contrast is about their mean.
    """
    images = images.clone()

    def apply_(function: Callable[..., Tensor], chosen: list[tuple[int, float]]) -> None:
        if chosen:
            numbers = torch.tensor(chosen, dtype=torch.float64).to(images.device, non_blocking=True)
            which, amounts = numbers[:, 0].long(), numbers[:, 1].to(images.dtype)[:, None, None, None]
            images.index_copy_(0, which, function(images[which], amounts, inside[which]).clamp(0, 1))

    for turn in range(len(JITTERS)):
        done = [(i, *each.jitters[turn]) for i, each in enumerate(jitters) if turn < len(each.jitters)]
        for name, function in JITTER_FUNCTIONS.items():
            apply_(function, [(i, amount) for i, kind, amount in done if kind == name])
    apply_(lambda x, gamma, _: x**gamma, [(i, each.gamma) for i, each in enumerate(jitters) if each.gamma != 1])
    apply_(lambda x, sigma, _: blur(x, sigma), [(i, each.blur) for i, each in enumerate(jitters) if each.blur])
    apply_(lambda x, _, __: grey(x).expand_as(x), [(i, 0.0) for i, each in enumerate(jitters) if each.grey])
    return images


# Operations on images (batch, 3, height, width) by amounts (batch, 1, 1, 1)


def grey(images: Tensor) -> Tensor:
    """The luminance of pixels, (batch, 1, height, width)."""
    red, green, blue = images.unbind(1)
    return (GREY[0] * red + GREY[1] * green + GREY[2] * blue)[:, None]


def contrast(images: Tensor, amount: Tensor, inside: Tensor) -> Tensor:
    """Interpolate between the mean luminance of an image and the image."""
    inside = inside[:, None]
    mean = (grey(images) * inside).sum((1, 2, 3)) / inside.sum((1, 2, 3)).clamp(min=1)
    return torch.lerp(mean[:, None, None, None].expand_as(images), images, amount)


def shift_hue(images: Tensor, amount: Tensor) -> Tensor:
    """Shift hues by that part of a turn round the colour wheel; saturation and value stay."""
    red, green, blue = images.unbind(1)
    most, least = images.amax(1), images.amin(1)
    strong = most - least
    some = torch.where(strong > 0, strong, 1)
    hue = torch.where(
        most == red,
        (green - blue) / some,
        torch.where(most == green, 2 + (blue - red) / some, 4 + (red - green) / some),
    )
    hue = hue + 6 * amount[:, 0]
    steps = ((hue + n).remainder(6) for n in (5, 3, 1))
    return torch.stack([most - strong * torch.minimum(k, 4 - k).clamp(0, 1) for k in steps], 1)


def blur(images: Tensor, sigma: Tensor) -> Tensor:
    """Blur by a Gaussian of that standard deviation, cut off after 6 pixels, with reflection at the border."""
    far = torch.arange(KERNEL, device=images.device, dtype=images.dtype) - KERNEL // 2
    kernel = (-0.5 * (far / sigma[:, :, 0]).square()).exp()  # (batch, 1, KERNEL)
    kernel = (kernel / kernel.sum(-1, keepdim=True)).repeat_interleave(3, 0)
    flat = F.pad(images, [KERNEL // 2] * 4, mode="reflect").flatten(0, 1)[None]
    flat = F.conv2d(flat, kernel[:, :, :, None], groups=flat.shape[1])
    flat = F.conv2d(flat, kernel[:, :, None, :], groups=flat.shape[1])
    return flat.reshape(images.shape)


JITTER_FUNCTIONS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "brightness": lambda images, amount, _: images * amount,
    "contrast": contrast,
    "saturation": lambda images, amount, _: torch.lerp(grey(images).expand_as(images), images, amount),
    "hue": lambda images, amount, _: shift_hue(images, amount),
}


def _to_signed(draw: float) -> float:
    return 2 * draw - 1
