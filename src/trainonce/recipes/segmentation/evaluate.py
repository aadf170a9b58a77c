"""Evaluation: whole images, one scale, one number for the whole set."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from trainonce.recipes.segmentation import metrics
from trainonce.recipes.segmentation.data.batches import UnreadableScene
from trainonce.recipes.segmentation.model.deeplab import DeepLab, upsample
from trainonce.recipes.vision.loading import data_loader, error_with_name, read_all
from trainonce.recipes.vision.precision import inference_autocast
from trainonce.study import torchrun

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from trainonce.recipes.segmentation.data.scenes import Scenes
    from trainonce.recipes.segmentation.settings import Settings

GROUP = 16  # scenes that the network sees at a time where all are in memory


class EvaluationLoader:
    """A set of scenes that is evaluated several times, kept in the device's memory or read each time.

    :param process: Rank and number of processes; each evaluates its share of the scenes.
    """

    def __init__(
        self, scenes: Scenes, settings: Settings, device: torch.device, process: tuple[int, int] = (0, 1)
    ) -> None:
        self._scenes, self._settings, self._device = scenes, settings, device
        self._indices = range(process[0], len(scenes), process[1])
        self._kept = list(self._read()) if settings.resident else None

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter(self._kept) if self._kept is not None else self._read()

    def _read(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Images and labels on the device, scenes of one size stacked."""
        group: list[tuple[Tensor, Tensor]] = []
        items = _Indexed(self._scenes, self._indices)
        resident, readers = self._settings.resident, self._settings.readers
        once = read_all(items.__getitem__, len(items), readers) if resident else None
        for item in data_loader(items, self._settings, self._device) if once is None else once:
            if isinstance(item, str):
                text = f"A scene cannot be read, and is left out of the metric: {item}"
                warnings.warn(text, UnreadableScene, stacklevel=2)
                continue
            limit = GROUP if resident else 1
            if group and (len(group) == limit or item[1].shape != group[0][1].shape):
                yield self._stack_on_device(group)
                group = []
            group.append(item)
        if group:
            yield self._stack_on_device(group)

    def _stack_on_device(self, group: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
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
            return error_with_name(self._scenes.name(index), error)


@torch.no_grad()
def predict(network: DeepLab, images: Tensor, size: Any, settings: Settings) -> Tensor:
    """The class of each pixel, uint8."""
    images = images.float()
    if settings.channels_last:
        images = images.to(memory_format=torch.channels_last)
    with inference_autocast(settings, images.device):
        logits = network(images)
    return upsample(logits.float(), size, settings.align_corners).argmax(1).to(torch.uint8)


def confusion_matrix(
    network: DeepLab, scenes: Iterable[tuple[Tensor, Tensor]], classes: int, settings: Settings, device: torch.device
) -> Tensor:
    """The confusion matrix over all scenes of a set, summed over the processes."""
    was_training = network.training
    network.eval()
    if torchrun.world_size() > 1:  # batch statistics differ between processes: evaluate with those of the first
        for buffer in network.buffers():
            torch.distributed.broadcast(buffer, 0)
    counts = torch.zeros(classes, classes, dtype=torch.int64, device=device)
    for images, labels in scenes:
        counts += metrics.confusion(predict(network, images, labels.shape[-2:], settings), labels, classes)
    network.train(was_training)
    if torchrun.world_size() > 1:
        torch.distributed.all_reduce(counts)
    return counts
