"""The two loss terms: cross-entropy on the image, and the distance of its features from those of its stylised copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trainonce.recipes.segmentation.data.scenes import IGNORE
from trainonce.recipes.segmentation.model.deeplab import DeepLab, upsample

if TYPE_CHECKING:
    from collections.abc import Sequence

TERMS = ("ce", "invariance")
Distance = Literal["l2", "l1"]
Over = Literal["valid", "all"]


def cross_entropy(logits: Tensor, labels: Tensor, over: Over = "valid") -> Tensor:
    """The mean cross-entropy over the valid pixels, or with ``"all"`` over all, of which ignored ones count 0."""
    total = F.cross_entropy(logits.float(), labels, ignore_index=IGNORE, reduction="sum")
    return total / ((labels != IGNORE).sum().clamp(min=1) if over == "valid" else labels.numel())


def invariance(pairs: Sequence[tuple[Tensor, Tensor]], distance: Distance = "l2") -> Tensor:
    """The mean distance of the features of a layer, averaged over the layers. Gradients flow into both sides."""
    function = F.mse_loss if distance == "l2" else F.l1_loss
    return torch.stack([function(ours.float(), theirs.float()) for ours, theirs in pairs]).mean()


class Losses(nn.Module):
    """The loss terms of a batch as one module, so that one call is one forward pass for DDP and torch.compile.

    :param layers: The encoder's stages whose features are compared; by default the last.
    :param distance: ``"l2"`` or ``"l1"``.
    :param over: Which pixels the cross-entropy is the mean over.
    :param align_corners: How logits are brought to the labels' size.
    """

    def __init__(
        self,
        network: DeepLab,
        layers: Sequence[str] = (),
        distance: Distance = "l2",
        over: Over = "valid",
        align_corners: bool = True,
    ) -> None:
        super().__init__()
        self.network = network
        self.layers = tuple(layers) or (network.last,)
        unknown = [name for name in self.layers if name not in network.encoder.stages]
        if unknown:
            raise ValueError(f"layers are among {', '.join(network.encoder.stages)}; got {', '.join(unknown)}.")
        self.distance, self.over, self.align_corners = distance, over, align_corners

    def forward(self, images: Tensor, stylised: Tensor, labels: Tensor) -> dict[str, Tensor]:
        network, wanted = self.network, {*self.layers, self.network.last}
        if network.batch_norm == "frozen":  # no statistics are shared between images: one pass serves both
            both = network.features(torch.cat([images, stylised]), wanted)
            pairs = {name: (found[: len(images)], found[len(images) :]) for name, found in both.items()}
        else:
            ours, theirs = network.features(images, wanted), network.features(stylised, self.layers)
            pairs = {name: (found, theirs.get(name, found)) for name, found in ours.items()}
        logits = network.classify(pairs[network.last][0])
        logits = upsample(logits, labels.shape[-2:], self.align_corners)
        return {
            "ce": cross_entropy(logits, labels, self.over),
            "invariance": invariance([pairs[name] for name in self.layers], self.distance),
        }
