"""Evaluation: whole frames, one by one or in groups, and the mean of each metric over a set."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING

import torch

from trainonce.recipes.depth.augmentation.letterbox import letterbox
from trainonce.recipes.depth.data.batches import UNREADABLE, UnreadableFrame
from trainonce.recipes.depth.data.frames import Frame, generate
from trainonce.recipes.depth.metrics import METRICS, measure
from trainonce.recipes.vision.loading import error_with_name, read_all
from trainonce.recipes.vision.precision import inference_autocast
from trainonce.study import torchrun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

    from trainonce.recipes.depth.data.frames import EvaluationSet
    from trainonce.recipes.depth.model.network import Prediction, UniDepth
    from trainonce.recipes.depth.settings import Settings

GROUP = 16  # frames of one size that the network sees at a time


def stack_frames(frames: Sequence[Frame], device: torch.device) -> Frame:
    """Frames of one size, stacked, on the device, wherever each of them is."""

    def whole(part: Sequence[Tensor]) -> Tensor:
        apart = len({one.device for one in part}) > 1
        return torch.stack([one.to(device) for one in part] if apart else list(part)).to(device, non_blocking=True)

    return Frame(*map(whole, zip(*frames, strict=True)))


def predict(network: UniDepth, frames: Frame, settings: Settings) -> tuple[Tensor, Tensor]:
    """The network's depth and cameras for stacked frames, at the frames' own size."""
    fitted, undo = letterbox(*frames, _shape(settings, network.patch, frames.image.shape[-2:]))
    with torch.no_grad(), inference_autocast(settings, frames.image.device):
        found: Prediction = network(fitted.images)
    return undo.depths(found.depth.float()), undo.cameras(found.camera.float())


def _shape(settings: Settings, patch: int, size: tuple[int, ...]) -> tuple[int, int]:
    """The shape that a frame is evaluated at: that of training or, where that varies, its largest number of pixels."""
    if settings.shape:
        wanted = (float(settings.shape[0]), float(settings.shape[1]))
    else:
        ratio = min(2.0, max(0.66, size[1] / size[0]))
        wanted = ((settings.pixels[1] / ratio) ** 0.5, (settings.pixels[1] * ratio) ** 0.5)
    height, width = (max(1, round(side / patch)) * patch for side in wanted)
    return height, width


def mean_metrics(
    network: UniDepth,
    examined: EvaluationSet,
    settings: Settings,
    device: torch.device,
    *,
    with_points: bool = True,
    seen: Callable[[Sequence[int], Tensor, Tensor], None] = lambda indices, depths, cameras: None,
) -> dict[str, float]:
    """The mean of each metric over the frames of a set, of all processes.

    :param with_points: Whether the distances of point clouds, which take longest, are measured as well.
    :param seen: Gets the predictions for some frames: their indices, depths and cameras.
    """
    was_training = network.training
    network.eval()
    most = settings.points if with_points else 0
    names = [name for name in METRICS if most or name != "f_a"]
    sums = torch.zeros(1 + len(names), dtype=torch.float64, device=device)  # first the number of frames
    for indices, group in _groups(examined, settings, device):
        frames = stack_frames(group, device)
        depths, cameras = predict(network, frames, settings)
        seen(indices, depths, cameras)
        found = measure(depths, cameras, frames, examined.range, examined.window, most=most, squared=settings.squared)
        counts = found["pixels"] > 0
        values = torch.stack([torch.ones_like(found["focal"]), *(found[name] for name in names)]).double()
        sums += torch.where(counts, values, 0.0).sum(1)
    network.train(was_training)
    if torchrun.world_size() > 1:
        torch.distributed.all_reduce(sums)
    count, *totals = sums.tolist()
    means = {name: total / count if count else math.nan for name, total in zip(names, totals, strict=True)}
    return {name: 100 * value if name in PERCENT else value for name, value in means.items()}


#: The metrics that are in percent.
PERCENT = ("delta_1", "f_a", "focal")


def _groups(
    examined: EvaluationSet, settings: Settings, device: torch.device
) -> Iterator[tuple[list[int], list[Frame]]]:
    """The frames of this process with their indices, those of one size together."""
    mine = range(torchrun.rank(), len(examined.frames), torchrun.world_size())
    group: list[Frame] = []
    indices: list[int] = []
    for start in range(0, len(mine), GROUP):
        part = mine[start : start + GROUP]
        if (generated := generate(examined.frames, part, device)) is not None:
            yield list(part), [Frame(*each) for each in zip(*generated, strict=True)]
            continue

        def read(i: int, part: range = part) -> Frame | str:
            try:
                return examined.frames.frame(part[i])
            except UNREADABLE as error:
                return error_with_name(examined.frames.name(part[i]), error)

        for index, frame in zip(part, read_all(read, len(part), settings.readers), strict=True):
            if isinstance(frame, str):
                text = f"A frame cannot be read, and is left out of the metrics: {frame}"
                warnings.warn(text, UnreadableFrame, stacklevel=2)
                continue
            if group and (len(group) == GROUP or frame.depth.shape != group[0].depth.shape):
                yield indices, group
                indices, group = [], []
            indices.append(index)
            group.append(frame)
    if group:
        yield indices, group
