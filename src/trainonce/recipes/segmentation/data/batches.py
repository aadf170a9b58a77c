"""Batches: which scenes a step trains on, read ahead, stylised, cut and mirrored on the device.

Everything random about a sample is a function of the seed and of the sample's number, so a resumed training sees what
it would have seen, and two processes with one scene each see what one process with two would.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import Dataset

from trainonce.recipes.segmentation.data.stylise import stylise
from trainonce.recipes.vision.loading import at_once, loader, named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trainonce.recipes.segmentation.data.scenes import Domains, Scenes
    from trainonce.recipes.segmentation.settings import Settings


class Batch(NamedTuple):
    """Images and stylised copies of values from 0 to 255, (batch, 3, height, width), and the images' labels."""

    images: Tensor
    stylised: Tensor
    labels: Tensor


class Whole(NamedTuple):
    """Whole scenes as they are stored, before anything is done to them: uint8."""

    images: Tensor
    labels: Tensor
    styles: Tensor


class Sample(NamedTuple):
    """What is random about a sample: its scene, its style, and, as parts of what is possible, its place."""

    source: int
    style: int
    top: float
    left: float
    mirrored: bool


def sample(number: int, sources: int, styles: int, flip: float, seed: int) -> Sample:
    """The sample of that number: every epoch has each source scene once; the style is any."""
    epoch, place = divmod(number, sources)
    source = int(_order(sources, seed, epoch)[place])
    style, top, left, coin = torch.rand(4, generator=_random(seed, "sample", number), dtype=torch.float64).tolist()
    return Sample(source, int(style * styles), top, left, coin < flip)


@functools.lru_cache(maxsize=4)
def _order(count: int, seed: int, epoch: int) -> Tensor:
    return torch.randperm(count, generator=_random(seed, "epoch", epoch))


def _random(seed: int, what: str, number: int) -> torch.Generator:
    digest = hashlib.sha256(f"{seed} {what} {number}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))


@dataclasses.dataclass(frozen=True)
class Order(Sequence[list[Sample]]):
    """The samples of each step, from a first one on, in one of several processes (``place``: which, of how many)."""

    sources: int
    styles: int
    batch: int
    flip: float
    seed: int
    steps: range
    place: tuple[int, int] = (0, 1)

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, index: Any) -> Any:
        rank, ranks = self.place
        first = (self.steps[index] * ranks + rank) * self.batch
        counts = (self.sources, self.styles)
        return [sample(n, *counts, self.flip, self.seed) for n in range(first, first + self.batch)]


# On the device


def prepared(whole: Whole, chosen: Sequence[Sample], crop: tuple[int, int], bandwidth: float) -> Batch:
    """Stylise whole scenes, then cut the same piece out of each and its copy, mirrored or not."""
    images = whole.images.float()
    stylised = stylise(images, whole.styles.float(), bandwidth)
    height, width = images.shape[-2:]
    tops = [int(s.top * (height - crop[0] + 1)) for s in chosen]
    lefts = [int(s.left * (width - crop[1] + 1)) for s in chosen]
    steps = [-1 if s.mirrored else 1 for s in chosen]
    starts = [left + crop[1] - 1 if step < 0 else left for left, step in zip(lefts, steps, strict=True)]
    at = torch.tensor([tops, starts, steps]).to(images.device, non_blocking=True)
    rows = at[0, :, None] + torch.arange(crop[0], device=images.device)
    columns = at[1, :, None] + at[2, :, None] * torch.arange(crop[1], device=images.device)
    number = torch.arange(len(images), device=images.device)[:, None, None]
    pick = (number, rows[:, :, None], columns[:, None, :])
    cut, copy = (x.permute(0, 2, 3, 1)[pick].permute(0, 3, 1, 2) for x in (images, stylised))
    return Batch(cut, copy, whole.labels[pick].long())


def middle(scene: Tensor, frame: tuple[int, int] | tuple[()]) -> Tensor:
    """The middle of a scene, (..., height, width)."""
    if not frame or any(have < want for have, want in zip(scene.shape[-2:], frame, strict=True)):
        return scene
    top, left = ((have - want) // 2 for have, want in zip(scene.shape[-2:], frame, strict=True))
    return scene[..., top : top + frame[0], left : left + frame[1]]


# Where scenes come from


class Resident:
    """All scenes in the device's memory: nothing to wait for."""

    def __init__(self, domains: Domains, settings: Settings, device: torch.device) -> None:
        frame, source, style = settings.frame, domains.source, domains.style

        def together(read: Callable[[int], Tensor], count: int) -> Tensor:
            return stacked(at_once(lambda i: middle(read(i), frame), count, settings.readers)).to(device)

        self.images, self.labels = (together(read, len(source)) for read in (source.image, source.label))
        self.styles = together(style.image, len(style))

    def wholes(self, order: Order) -> Iterator[Whole]:
        for chosen in order:
            at = torch.tensor([[s.source for s in chosen], [s.style for s in chosen]])
            source, style = at.to(self.images.device, non_blocking=True)
            yield Whole(self.images[source], self.labels[source], self.styles[style])


def stacked(scenes: Sequence[Tensor]) -> Tensor:
    """Scenes of one size as one tensor."""
    sizes = {tuple(scene.shape[-2:]) for scene in scenes}
    if len(sizes) > 1:
        found = ", ".join(f"{height}x{width}" for height, width in sorted(sizes))
        raise ValueError(
            f"Scenes that are kept in memory must have one size; got {found}. Set size=height,width, or resident=False."
        )
    return torch.stack(list(scenes))


class Stream:
    """Scenes read by other processes while the device trains."""

    def __init__(self, domains: Domains, settings: Settings, device: torch.device) -> None:
        self._domains, self._settings, self._device = domains, settings, device

    def wholes(self, order: Order) -> Iterator[Whole]:
        for content, bad in loader(_Reading(self._domains, self._settings, order), self._settings, self._device):
            _warn_of(bad)
            yield Whole(*(tensor.to(self._device, non_blocking=True) for tensor in content))


class _Reading(Dataset[Any]):
    """The scenes of each step. One that cannot be read, though it could before training, is replaced by the next."""

    def __init__(self, domains: Domains, settings: Settings, order: Order) -> None:
        self._domains, self._order = domains, order
        self._frame, self._least = settings.frame, settings.crop

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, step: int) -> tuple[Whole, list[str]]:
        bad: list[str] = []
        source, style = self._domains.source, self._domains.style
        sources = self._same(source, [s.source for s in self._order[step]], bad, labelled=True)
        styles = self._same(style, [s.style for s in self._order[step]], bad, labelled=False)
        images, labels = (torch.stack([pair[i] for pair in sources]) for i in range(2))
        return Whole(images, labels, torch.stack([image for image, _ in styles])), bad

    def _same(
        self, scenes: Scenes, indices: list[int], bad: list[str], *, labelled: bool
    ) -> list[tuple[Tensor, Tensor]]:
        """Scenes of the size of the first."""
        found: list[tuple[Tensor, Tensor]] = []
        for index in indices:
            size = found[0][0].shape[-2:] if found else None
            found.append(readable(scenes, index, self._frame, self._least, size, bad, labelled=labelled))
        return found


def readable(
    scenes: Scenes,
    index: int,
    frame: tuple[int, int] | tuple[()],
    least: tuple[int, int],
    size: Sequence[int] | None,
    bad: list[str],
    *,
    labelled: bool,
) -> tuple[Tensor, Tensor]:
    """The scene, or the next one that can be read and has the right size; what cannot or has not is noted."""
    for i in range(len(scenes)):
        at = (index + i) % len(scenes)
        try:
            whole = scenes.image(at)
            image, label = middle(whole, frame), middle(scenes.label(at), frame) if labelled else whole[0]
            if any(have < want for have, want in zip(whole.shape[-2:], frame or least, strict=True)):
                raise ValueError(f"it has {tuple(whole.shape[-2:])} pixels, less than {frame or least}")
            if labelled and label.shape != image.shape[-2:]:
                raise ValueError(f"its label has {tuple(label.shape)} pixels, not {tuple(image.shape[-2:])}")
            if size is not None and image.shape[-2:] != size:
                raise ValueError(f"it has {tuple(image.shape[-2:])} pixels, the scene before it {tuple(size)}")
            return image, label
        except (OSError, ValueError) as error:
            bad.append(named(scenes.name(at), error))
    raise OSError(f"None of the {len(scenes)} scenes can be read any more; the last: {bad[-1]}")


class UnreadableScene(UserWarning):
    """A scene could not be read during training; another took its place."""


def _warn_of(bad: Sequence[str]) -> None:
    for text in bad:
        warnings.warn(f"A scene cannot be read, and the next took its place: {text}", UnreadableScene, stacklevel=3)
