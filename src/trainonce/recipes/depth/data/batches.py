"""Batches: which frames a step trains on, read ahead or kept on the device, as two views each.

Everything random about a sample is a function of the seed and of the sample's number, so a resumed training sees what
it would have seen, and two processes with half the frames each see what one process would.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import Dataset

from trainonce.recipes.depth.augmentation import views
from trainonce.recipes.depth.data.frames import Frame, generate
from trainonce.recipes.segmentation.data.batches import at_once, loader, named

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from trainonce.recipes.depth.data.frames import Frames
    from trainonce.recipes.depth.settings import Settings

TOGETHER = 64  # frames that are made at once
FEWEST = 50  # known pixels, below which a frame teaches nothing


class Choice(NamedTuple):
    """A sample's number, and where its frame is: which set, and which of its frames."""

    number: int
    set: str
    at: int


def choice(number: int, sizes: Mapping[str, int], seed: int) -> Choice:
    """The sample of that number. Each set is drawn equally often, and each of its frames once in an epoch of it."""
    names = list(sizes)
    turn, place = divmod(number, len(names))
    name = names[int(_order(len(names), seed, "sets", turn)[place])]
    epoch, at = divmod(turn, sizes[name])
    return Choice(number, name, int(_order(sizes[name], seed, name, epoch)[at]))


@functools.lru_cache(maxsize=32)
def _order(count: int, seed: int, what: str, number: int) -> Tensor:
    digest = hashlib.sha256(f"{seed} {what} {number}".encode()).digest()
    return torch.randperm(count, generator=torch.Generator().manual_seed(int.from_bytes(digest[:7], "big")))


@dataclasses.dataclass(frozen=True)
class Order:
    """The samples of each step, from a first one on, in one of several processes (``place``: which, of how many)."""

    sizes: Mapping[str, int]
    frames: int
    seed: int
    steps: range
    place: tuple[int, int] = (0, 1)

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, index: int) -> list[Choice]:
        rank, ranks = self.place
        first = (self.steps[index] * ranks + rank) * self.frames
        return [choice(n, self.sizes, self.seed) for n in range(first, first + self.frames)]


# Where frames come from


class Group(NamedTuple):
    """Frames of one size, stacked, on the device: which of the samples they are of, and their cameras on the CPU."""

    members: list[int]
    frames: Frame
    cameras: Tensor


class Resident:
    """All frames in the device's memory. Those of one set have one size."""

    def __init__(self, training: Mapping[str, Frames], settings: Settings, device: torch.device) -> None:
        self._sets = {name: _kept(frames, settings.readers, device) for name, frames in training.items()}
        self._cameras = {name: kept.camera.cpu() for name, kept in self._sets.items()}

    def groups(self, chosen: Sequence[Choice]) -> list[Group]:
        """The frames of some samples, set by set."""
        members: dict[str, list[int]] = {}
        for i, each in enumerate(chosen):
            members.setdefault(each.set, []).append(i)
        found = []
        for name, places in members.items():
            at = torch.tensor([chosen[i].at for i in places])
            there = at.to(self._sets[name].depth.device, non_blocking=True)
            stack = Frame(*(part.index_select(0, there) for part in self._sets[name]))
            found.append(Group(places, stack, self._cameras[name][at]))
        return found


def _kept(frames: Frames, readers: int, device: torch.device) -> Frame:
    numbers = range(len(frames))
    parts = [generate(frames, numbers[i : i + TOGETHER], device) for i in range(0, len(numbers), TOGETHER)]
    generated = [part for part in parts if part is not None]
    if generated:
        return Frame(*(torch.cat(part) for part in zip(*generated, strict=True)))
    bad: list[str] = []
    read = at_once(lambda i: readable(frames, i, bad), len(frames), readers)
    _warn_of(bad)
    sizes = {tuple(frame.depth.shape) for frame in read}
    if len(sizes) > 1:
        found = ", ".join(f"{height}x{width}" for height, width in sorted(sizes))
        raise ValueError(
            f"Frames that are kept in memory must have one size; got {found}. Set size=height,width, or resident=False."
        )
    return Frame(*(torch.stack(part).to(device) for part in zip(*read, strict=True)))


class Stream:
    """Frames read by other processes while the device trains."""

    def __init__(self, training: Mapping[str, Frames], settings: Settings, device: torch.device) -> None:
        self._training, self._settings, self._device = training, settings, device

    def batches(self, order: Order) -> Iterator[list[Group]]:
        read = loader(_Reading(self._training, order), self._settings, self._device)  # type: ignore[arg-type]
        for stacks, bad in read:
            _warn_of(bad)
            yield [
                Group(members, Frame(*(part.to(self._device, non_blocking=True) for part in stack)), stack[2])
                for members, stack in stacks
            ]


class UnreadableFrame(UserWarning):
    """A frame could not be trained on; another took its place."""


def _warn_of(bad: Sequence[str]) -> None:
    for text in bad:
        warnings.warn(
            f"A frame cannot be trained on, and the next took its place: {text}", UnreadableFrame, stacklevel=3
        )


class _Reading(Dataset[Any]):
    """The frames of each step. One that cannot be read, or has hardly a known pixel, is replaced by the next."""

    def __init__(self, training: Mapping[str, Frames], order: Order) -> None:
        self._training, self._order = training, order

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, step: int) -> tuple[list[tuple[list[int], Frame]], list[str]]:
        """Frames of one size as one: each tensor that travels between processes is an open file."""
        bad: list[str] = []
        read = [readable(self._training[chosen.set], chosen.at, bad) for chosen in self._order[step]]
        groups: dict[tuple[int, ...], list[int]] = {}
        for i, frame in enumerate(read):
            groups.setdefault(tuple(frame.depth.shape), []).append(i)
        stacks = [(m, Frame(*(torch.stack([read[i][k] for i in m]) for k in range(3)))) for m in groups.values()]
        return stacks, bad


def readable(frames: Frames, index: int, bad: list[str]) -> Frame:
    """The frame, or the next one that can be trained on; what is wrong with others is noted."""
    for i in range(len(frames)):
        at = (index + i) % len(frames)
        try:
            frame = frames.frame(at)
            known = int((frame.depth > 0).sum())
            if known < FEWEST:
                raise ValueError(f"it has {known} pixels of known depth, less than {FEWEST}")
            return frame
        except (OSError, ValueError, KeyError) as error:
            bad.append(named(frames.name(at), error))
    raise OSError(f"None of the {len(frames)} frames can be trained on; the last: {bad[-1]}")


# On the device


def prepared(
    chosen: Sequence[Choice], groups: Sequence[Group], settings: Settings, shape: tuple[int, int], seed: int
) -> views.Views:
    """Two views of each frame, in the order of the samples."""
    ready = []
    for members, stack, cameras in groups:
        size = (stack.depth.shape[1], stack.depth.shape[2])
        numbers = [chosen[i].number for i in members]
        plans = [plan(settings, seed, n, size, camera, shape) for n, camera in zip(numbers, cameras, strict=True)]
        ready.append(views.make_views(*stack, plans, shape))
    if len(ready) == 1:
        return ready[0]
    order = torch.tensor([i for members, _, _ in groups for i in members]).argsort()
    pairs = torch.stack([2 * order, 2 * order + 1], 1).flatten().to(ready[0].images.device, non_blocking=True)
    return views.Views(*(torch.cat(part)[pairs] for part in zip(*ready, strict=True)))


def plan(
    settings: Settings, seed: int, number: int, size: tuple[int, int], camera: Tensor, shape: tuple[int, int]
) -> views.Augmentation:
    if settings.augment:
        return views.draw_augmentation(seed, number, size, camera, shape)
    shrunk = max(size[0] / shape[0], size[1] / shape[1])
    height, width = shrunk * shape[0], shrunk * shape[1]
    whole = views.Window((size[0] - height) / 2, (size[1] - width) / 2, height, width)
    return views.Augmentation((whole, whole))


def together(settings: Settings, patch: int, device: torch.device) -> int:
    """For how many steps views are made at once: many small kernels cost the same for one step and for ten.

    The groups begin at fixed steps, and are made whole, so that a resumed training gets the same bits.
    """
    if not settings.shape:
        return 1
    height, width = shape_of(settings, patch, 0, 0)
    most = MOST_STEPS.get(device.type, MOST_STEPS["cpu"])
    return max(1, min(most, MOST_VALUES // (settings.batch * 3 * height * width)))


MOST_STEPS, MOST_VALUES = {"cpu": 16, "cuda": 64}, 1 << 26


def shape_of(settings: Settings, patch: int, seed: int, step: int) -> tuple[int, int]:
    """The shape of a step's views: the given one, in whole patches, or one drawn for the step."""
    if settings.shape:
        height, width = (max(1, round(side / patch)) * patch for side in settings.shape)
        return height, width
    low, high = settings.pixels
    return views.draw_shape(seed, step, (low, high), patch=patch)
