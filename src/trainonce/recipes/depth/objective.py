"""The loss terms of a batch of views as one module, so that one call is one forward pass for DDP and torch.compile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.func import functional_call

from trainonce.recipes.depth import geometry, losses

if TYPE_CHECKING:
    from trainonce.recipes.depth.model.network import UniDepth


class Objective(nn.Module):
    """The loss terms of the network.

    :param camera: A key of :data:`~trainonce.recipes.depth.losses.CAMERA_ERRORS`.
    :param crossed: As in :func:`~trainonce.recipes.depth.losses.silog`.
    :param rounding: As in :func:`~trainonce.recipes.depth.losses.invariance`.
    """

    def __init__(
        self,
        network: UniDepth,
        *,
        camera: losses.Camera = "rays",
        crossed: bool = False,
        rounding: losses.Rounding = "none",
    ) -> None:
        super().__init__()
        self.network, self.crossed, self.rounding = network, crossed, rounding
        self.camera_error = losses.CAMERA_ERRORS[camera]
        self.long = nn.ParameterList([] if network.flat is None else network.flat.parameters().values())

    def forward(self, images: Tensor, depths: Tensor, cameras: Tensor, flips: Tensor) -> dict[str, Tensor]:
        flat = self.network.flat
        found = self.network(images) if flat is None else functional_call(self.network, flat.pieces(), (images,))
        with torch.autocast(images.device.type, enabled=False):
            truth = geometry.rays(cameras, (images.shape[-2], images.shape[-1]))
        return {
            "depth": losses.silog(found.depth, depths, crossed=self.crossed),
            "camera": self.camera_error(found.rays, truth),
            "invariance": losses.invariance(
                found.features,
                losses.cells(depths > 0, self.network.patch),
                cameras,
                flips,
                self.network.patch,
                rounding=self.rounding,
                crossed=self.crossed,
            ),
        }
