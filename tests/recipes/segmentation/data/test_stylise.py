"""Stylisation against the Fourier transform."""

import numpy as np
import pytest
import torch

from trainonce.recipes.segmentation.data.stylise import stylise


def by_fourier(image, style, bandwidth):
    """The published description, word for word, of one channel."""
    height, width = image.shape
    b = int(np.floor(bandwidth * min(height, width)))
    ours, theirs = np.fft.fft2(image), np.fft.fft2(style)
    amplitude, phase = np.fft.fftshift(np.abs(ours)), np.angle(ours)
    middle = (slice(height // 2 - b, height // 2 + b + 1), slice(width // 2 - b, width // 2 + b + 1))
    amplitude[middle] = np.fft.fftshift(np.abs(theirs))[middle]
    return np.fft.ifft2(np.fft.ifftshift(amplitude) * np.exp(1j * phase)).real


@pytest.mark.parametrize("size", [(37, 50), (64, 64), (45, 30)])
@pytest.mark.parametrize("bandwidth", [0.0, 0.02, 0.1, 0.3])
def test_stylisation_is_the_swap_of_amplitudes(size, bandwidth):
    image, style = (torch.rand(2, 3, *size, dtype=torch.float64) * 255 for _ in range(2))
    found = stylise(image, style, bandwidth)
    for i in range(2):
        for c in range(3):
            expected = by_fourier(image[i, c].numpy(), style[i, c].numpy(), bandwidth)
            np.testing.assert_allclose(found[i, c].numpy(), expected, rtol=0, atol=1e-9)


def test_an_image_in_its_own_style_is_itself():
    image = torch.rand(1, 3, 40, 60) * 255
    torch.testing.assert_close(stylise(image, image, 0.1), image, rtol=0, atol=1e-3)


def test_the_style_may_have_another_size_and_gives_its_brightness():
    image, style = torch.rand(1, 3, 40, 60) * 255, 30 + 5 * torch.rand(1, 3, 33, 21)
    found = stylise(image, style, 0.01)
    torch.testing.assert_close(found.mean((2, 3)), style.mean((2, 3)), rtol=1e-4, atol=1e-3)


def test_a_grey_image_has_no_phase_to_keep():
    assert torch.isfinite(stylise(torch.zeros(1, 3, 8, 8), torch.rand(1, 3, 8, 8), 0.2)).all()


@pytest.mark.parametrize("bandwidth", [-0.1, 0.5, float("nan")])
def test_a_window_larger_than_the_image_is_refused(bandwidth):
    with pytest.raises(ValueError, match=r"from 0 to below 0.5; got"):
        stylise(torch.rand(1, 3, 8, 8), torch.rand(1, 3, 8, 8), bandwidth)
