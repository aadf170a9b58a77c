"""Stylisation: an image takes on the low-frequency amplitudes of another and keeps its own phases."""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor


def stylise(images: Tensor, styles: Tensor, bandwidth: float = 0.01) -> Tensor:
    r"""Give each image the amplitudes of its style at the lowest frequencies, the mean colour included.

    With :math:`F` the discrete Fourier transform, :math:`|v|, |u| \le b` and :math:`b = \lfloor \beta \min(h, w)
    \rfloor`, the result has :math:`|F_{style}| e^{i \arg F_{image}}` in that square window around the mean, and
    :math:`F_{image}` elsewhere. No clipping, no rounding.

    :param images: Floats, (batch, channels, height, width).
    :param styles: The same number of images, of any size. Amplitudes are taken per pixel, so that brightness is
        carried over between sizes; for equal sizes that changes nothing.
    :param bandwidth: :math:`\beta`, below 0.5.

    Only the window is transformed, by a product with its few waves; other frequencies do not change.

    >>> grey, red = torch.full((1, 3, 8, 8), 100.0), torch.zeros(1, 3, 4, 4)
    >>> red[:, 0] = 200
    >>> stylise(grey, red)[0, :, 0, 0].round()
    tensor([200.,   0.,   0.])
    """
    if not 0 <= bandwidth < 0.5:
        raise ValueError(
            f"The bandwidth of a stylisation is a part of the image, from 0 to below 0.5; got {bandwidth}."
        )
    height, width = images.shape[-2:]
    b = math.floor(bandwidth * min(height, width, *styles.shape[-2:]))
    down, across = (_waves(n, k, images) for n, k in zip((height, width), _ranges(b), strict=True))
    own = _transform(images, down, across)
    theirs = _transform(styles, *(_waves(n, k, styles) for n, k in zip(styles.shape[-2:], _ranges(b), strict=True)))
    phase = torch.where(own.abs() > 0, own / own.abs().clamp_min(torch.finfo(own.real.dtype).tiny), 1)
    change = theirs.abs() * phase - own
    change[..., 1:] *= 2  # negative frequencies are the complex conjugates
    back = torch.einsum("vy,bcvu,ux->bcyx", down.conj(), change, across.conj())
    return images + back.real


def _ranges(b: int) -> tuple[range, range]:
    return range(-b, b + 1), range(b + 1)


def _waves(length: int, frequencies: range, like: Tensor) -> Tensor:
    return _cached_waves(length, frequencies, like.device, like.dtype == torch.float64)


@functools.lru_cache(maxsize=16)
def _cached_waves(length: int, frequencies: range, device: torch.device, double: bool) -> Tensor:
    """The waves of the given frequencies, one a row, computed in double precision since phases grow large."""
    k = torch.arange(frequencies.start, frequencies.stop, dtype=torch.float64)
    x = torch.arange(length, dtype=torch.float64)
    turns = (k[:, None] * x / length) % 1
    waves = torch.polar(torch.ones_like(turns), -2 * math.pi * turns)
    return waves.to(device, torch.complex128 if double else torch.complex64)


def _transform(images: Tensor, down: Tensor, across: Tensor) -> Tensor:
    """The amplitude and phase of each wave in each channel, per pixel."""
    pixels = images.shape[-1] * images.shape[-2]
    return torch.einsum("vy,bcyx,ux->bcvu", down, images.to(down.dtype), across) / pixels
