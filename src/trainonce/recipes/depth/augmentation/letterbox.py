"""Letterboxing for evaluation: whole frames fitted into the network's input shape, and predictions brought back."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from trainonce.recipes.depth import geometry
from trainonce.recipes.depth.augmentation import sampling
from trainonce.recipes.depth.augmentation.views import Views, crop_windows, normalise


@dataclasses.dataclass(frozen=True)
class Undo:
    """Maps predictions for letterboxed frames back to the frames.

    :param top: Where the window starts in the frame: 0 or less, as ``left``.
    :param height: Of the window in pixels of the frame, as ``width``.
    :param size: Of the frame; ``shape``: of the letterboxed image.
    """

    top: float
    left: float
    height: float
    width: float
    size: tuple[int, int]
    shape: tuple[int, int]

    def depths(self, predicted: Tensor) -> Tensor:
        """Depths (batch, *shape), cropped and resized bilinearly to the frames' size."""

        def back(start: float, length: float, count: int, new: int) -> Tensor:
            at = (torch.arange(count, device=predicted.device, dtype=predicted.dtype) + 0.5 - start) * (new / length)
            return at.expand(len(predicted), -1)

        rows = back(self.top, self.height, self.size[0], self.shape[0])
        columns = back(self.left, self.width, self.size[1], self.shape[1])
        return sampling.interpolate_linear(predicted, rows, columns)

    def cameras(self, predicted: Tensor) -> Tensor:
        """Cameras of the letterboxed images as cameras of the frames."""
        whole = geometry.resize_camera(predicted, self.height / self.shape[0], self.width / self.shape[1])
        return geometry.crop_camera(whole, -self.top, -self.left)


@torch.no_grad()
def letterbox(images: Tensor, depths: Tensor, cameras: Tensor, shape: tuple[int, int]) -> tuple[Views, Undo]:
    """Whole frames, as large as fits, in the middle of a shape with 0 around, one view each; and the way back."""
    size = (images.shape[-2], images.shape[-1])
    scale = max(size[0] / shape[0], size[1] / shape[1])
    height, width = scale * shape[0], scale * shape[1]
    undo = Undo((size[0] - height) / 2, (size[1] - width) / 2, height, width, size, shape)
    numbers = torch.tensor([[undo.top, undo.left, height, width, 0.0]]).to(images.device, non_blocking=True)
    with torch.autocast(images.device.type, enabled=False):
        views = crop_windows(images.float() / 255, depths, cameras, numbers.expand(len(images), -1), shape)
        return views._replace(images=torch.where(views.valid[:, None], normalise(views.images), 0)), undo
