"""Evaluation: whole images, one scale, one number for the whole set."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from trainonce.recipes.segmentation import metrics
from trainonce.recipes.segmentation.data.batches import UnreadableScene, at_once, loader, named
from trainonce.recipes.segmentation.model.deeplab import DeepLab, upsample
from trainonce.study import torchrun

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainonce.recipes.segmentation.data.scenes import Scenes
    from trainonce.recipes.segmentation.settings import Settings

TOGETHER = 16  # scenes that are looked at at a time where all are in memory


class Examined:
    """A set of scenes to be looked at again and again, in the device's memory or read each time.

    :param share: Which of how many processes this is; each looks at its share of the scenes.
    """

    def __init__(
        self, scenes: Scenes, settings: Settings, device: torch.device, share: tuple[int, int] = (0, 1)
    ) -> None:
        self._scenes, self._settings, self._device = scenes, settings, device
        self._indices = range(share[0], len(scenes), share[1])
        self._kept = list(self._read()) if settings.resident else None

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter(self._kept) if self._kept is not None else self._read()

    def _read(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Images and labels on the device; scenes of one size go together."""
        group: list[tuple[Tensor, Tensor]] = []
        items = _Indexed(self._scenes, self._indices)
        resident, readers = self._settings.resident, self._settings.readers
        once = at_once(items.__getitem__, len(items), readers) if resident else None
        for item in loader(items, self._settings, self._device) if once is None else once:
            if isinstance(item, str):
                text = f"A scene cannot be read, and is left out of the metric: {item}"
                warnings.warn(text, UnreadableScene, stacklevel=2)
                continue
            limit = TOGETHER if resident else 1
            if group and (len(group) == limit or item[1].shape != group[0][1].shape):
                yield self._placed(group)
                group = []
            group.append(item)
        if group:
            yield self._placed(group)

    def _placed(self, group: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        images, labels = (torch.stack(column) for column in zip(*group, strict=True))
        return images.to(self._device, non_blocking=True), labels.to(self._device, non_blocking=True)


class _Indexed(Dataset[Any]):
    def __init__(self, scenes: Scenes, indices: range) -> None:
        self._scenes, self._indices = scenes, indices

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor] | str:
        index = self._indices[number]
        try:
            return self._scenes.image(index), self._scenes.label(index)
        except (OSError, ValueError) as error:
            return named(self._scenes.name(index), error)


@torch.no_grad()
def predicted(network: DeepLab, images: Tensor, size: Any, settings: Settings) -> Tensor:
    """The class of each pixel, uint8."""
    images = images.float()
    if settings.channels_last:
        images = images.to(memory_format=torch.channels_last)
    with torch.autocast(images.device.type, torch.bfloat16, enabled=settings.precision == "bfloat16"):
        logits = network(images)
    return upsample(logits.float(), size, settings.align_corners).argmax(1).to(torch.uint8)


def counted(network: DeepLab, scenes: Examined, classes: int, settings: Settings, device: torch.device) -> Tensor:
    """The confusion matrix over all scenes of a set, of all processes."""
    was_training = network.training
    network.eval()
    if torchrun.world_size() > 1:  # each process has seen its own batch last: one network is examined, the first's
        for buffer in network.buffers():
            torch.distributed.broadcast(buffer, 0)
    counts = torch.zeros(classes, classes, dtype=torch.int64, device=device)
    for images, labels in scenes:
        counts += metrics.confusion(predicted(network, images, labels.shape[-2:], settings), labels, classes)
    network.train(was_training)
    if torchrun.world_size() > 1:
        torch.distributed.all_reduce(counts)
    return counts
