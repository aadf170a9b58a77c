"""Batches: which scenes a step trains on, read ahead, stylised, cropped and mirrored on the device.

Everything random about a sample is a function of the seed and of the sample's number, so a resumed training sees what
it would have seen, and two processes with one scene each see what one process with two would.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import Dataset

from trainonce.recipes.segmentation.data.stylise import stylise
from trainonce.recipes.vision.indices import permutation, sample_numbers, seeded_generator
from trainonce.recipes.vision.loading import check_one_size, data_loader, read_all, read_or_next

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trainonce.recipes.segmentation.data.scenes import Domains, Scenes
    from trainonce.recipes.segmentation.settings import Settings


class Batch(NamedTuple):
    """Images and stylised copies of values from 0 to 255, (batch, 3, height, width), and the images' labels."""

    images: Tensor
    stylised: Tensor
    labels: Tensor


class WholeScenes(NamedTuple):
    """Whole scenes as they are stored, before anything is done to them: uint8."""

    images: Tensor
    labels: Tensor
    styles: Tensor


class Sample(NamedTuple):
    """What is random about a sample: its scene, its style, its crop (as shares of what is possible), its flip."""

    source: int
    style: int
    top: float
    left: float
    mirrored: bool


def sample(number: int, sources: int, styles: int, flip: float, seed: int) -> Sample:
    """The sample of that number: every epoch has each source scene once; the style is any."""
    epoch, at = divmod(number, sources)
    source = int(permutation(sources, seed, "epoch", epoch)[at])
    generator = seeded_generator(seed, "sample", number)
    style, top, left, coin = torch.rand(4, generator=generator, dtype=torch.float64).tolist()
    return Sample(source, int(style * styles), top, left, coin < flip)


@dataclasses.dataclass(frozen=True)
class SampleOrder(Sequence[list[Sample]]):
    """The samples of each of some steps in one process.

    :param process: Rank and number of processes.
    """

    sources: int
    styles: int
    batch: int
    flip: float
    seed: int
    steps: range
    process: tuple[int, int] = (0, 1)

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, index: Any) -> Any:
        numbers = sample_numbers(self.steps[index], self.batch, self.process)
        return [sample(n, self.sources, self.styles, self.flip, self.seed) for n in numbers]


# On the device


def make_batch(whole: WholeScenes, samples: Sequence[Sample], crop: tuple[int, int], bandwidth: float) -> Batch:
    """Stylise whole scenes, then take the same random crop of each scene, its copy and its label, mirrored or not."""
    images = whole.images.float()
    stylised = stylise(images, whole.styles.float(), bandwidth)
    height, width = images.shape[-2:]
    tops = [int(s.top * (height - crop[0] + 1)) for s in samples]
    lefts = [int(s.left * (width - crop[1] + 1)) for s in samples]
    steps = [-1 if s.mirrored else 1 for s in samples]
    starts = [left + crop[1] - 1 if step < 0 else left for left, step in zip(lefts, steps, strict=True)]
    at = torch.tensor([tops, starts, steps]).to(images.device, non_blocking=True)
    rows = at[0, :, None] + torch.arange(crop[0], device=images.device)
    columns = at[1, :, None] + at[2, :, None] * torch.arange(crop[1], device=images.device)
    number = torch.arange(len(images), device=images.device)[:, None, None]
    pick = (number, rows[:, :, None], columns[:, None, :])
    cut, copy = (x.permute(0, 2, 3, 1)[pick].permute(0, 3, 1, 2) for x in (images, stylised))
    return Batch(cut, copy, whole.labels[pick].long())


def crop_centre(scene: Tensor, frame: tuple[int, int] | tuple[()]) -> Tensor:
    """The centre of a scene, (..., height, width), at the size of a frame; a smaller scene as it is."""
    if not frame or any(have < want for have, want in zip(scene.shape[-2:], frame, strict=True)):
        return scene
    top, left = ((have - want) // 2 for have, want in zip(scene.shape[-2:], frame, strict=True))
    return scene[..., top : top + frame[0], left : left + frame[1]]


# Where scenes come from


class DeviceCache:
    """All scenes, read once and kept in the device's memory."""

    def __init__(self, domains: Domains, settings: Settings, device: torch.device) -> None:
        frame, source, style = settings.frame, domains.source, domains.style

        def read(scene: Callable[[int], Tensor], count: int) -> Tensor:
            return stack_scenes(read_all(lambda i: crop_centre(scene(i), frame), count, settings.readers)).to(device)

        self.images, self.labels = (read(scene, len(source)) for scene in (source.image, source.label))
        self.styles = read(style.image, len(style))

    def batches(self, order: SampleOrder) -> Iterator[WholeScenes]:
        for samples in order:
            at = torch.tensor([[s.source for s in samples], [s.style for s in samples]])
            source, style = at.to(self.images.device, non_blocking=True)
            yield WholeScenes(self.images[source], self.labels[source], self.styles[style])


def stack_scenes(scenes: Sequence[Tensor]) -> Tensor:
    """Scenes of one size as one tensor."""
    check_one_size("Scenes", scenes)
    return torch.stack(list(scenes))


class StreamLoader:
    """Scenes read by worker processes while the device trains."""

    def __init__(self, domains: Domains, settings: Settings, device: torch.device) -> None:
        self._domains, self._settings, self._device = domains, settings, device

    def batches(self, order: SampleOrder) -> Iterator[WholeScenes]:
        for content, bad in data_loader(_Steps(self._domains, self._settings, order), self._settings, self._device):
            _warn_of(bad)
            yield WholeScenes(*(tensor.to(self._device, non_blocking=True) for tensor in content))


class _Steps(Dataset[Any]):
    """The scenes of each step. One that cannot be read, though it could before training, is replaced by the next."""

    def __init__(self, domains: Domains, settings: Settings, order: SampleOrder) -> None:
        self._domains, self._order = domains, order
        self._frame, self._least = settings.frame, settings.crop

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, step: int) -> tuple[WholeScenes, list[str]]:
        bad: list[str] = []
        source, style = self._domains.source, self._domains.style
        sources = self._read_same_size(source, [s.source for s in self._order[step]], bad, labelled=True)
        styles = self._read_same_size(style, [s.style for s in self._order[step]], bad, labelled=False)
        images, labels = (torch.stack([pair[i] for pair in sources]) for i in range(2))
        return WholeScenes(images, labels, torch.stack([image for image, _ in styles])), bad

    def _read_same_size(
        self, scenes: Scenes, indices: list[int], bad: list[str], *, labelled: bool
    ) -> list[tuple[Tensor, Tensor]]:
        """Scenes, all of the size of the first."""
        found: list[tuple[Tensor, Tensor]] = []
        for index in indices:
            size = found[0][0].shape[-2:] if found else None
            found.append(read_scene(scenes, index, self._frame, self._least, size, bad, labelled=labelled))
        return found


def read_scene(
    scenes: Scenes,
    index: int,
    frame: tuple[int, int] | tuple[()],
    least: tuple[int, int],
    size: Sequence[int] | None,
    bad: list[str],
    *,
    labelled: bool,
) -> tuple[Tensor, Tensor]:
    """The scene, or the next one that can be read and has the right size; errors are appended to ``bad``."""

    def read(at: int) -> tuple[Tensor, Tensor]:
        whole = scenes.image(at)
        image, label = crop_centre(whole, frame), crop_centre(scenes.label(at), frame) if labelled else whole[0]
        if any(have < want for have, want in zip(whole.shape[-2:], frame or least, strict=True)):
            raise ValueError(f"it has {tuple(whole.shape[-2:])} pixels, less than {frame or least}")
        if labelled and label.shape != image.shape[-2:]:
            raise ValueError(f"its label has {tuple(label.shape)} pixels, not {tuple(image.shape[-2:])}")
        if size is not None and image.shape[-2:] != size:
            raise ValueError(f"it has {tuple(image.shape[-2:])} pixels, the scene before it {tuple(size)}")
        return image, label

    return read_or_next(scenes, index, read, bad, f"None of the {len(scenes)} scenes can be read any more")


class UnreadableScene(UserWarning):
    """A scene could not be read during training; another took its place."""


def _warn_of(bad: Sequence[str]) -> None:
    for text in bad:
        warnings.warn(f"A scene cannot be read, and the next took its place: {text}", UnreadableScene, stacklevel=3)
