"""Batches: which frames a step trains on, read ahead or kept on the device, as two views each.

Everything random about a sample is a function of the seed and of the sample's number, so a resumed training sees what
it would have seen, and two processes with half the frames each see what one process would.
"""

from __future__ import annotations

import dataclasses
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import Dataset

from trainonce.recipes.depth.augmentation import views
from trainonce.recipes.depth.data.frames import Frame, generate
from trainonce.recipes.vision.indices import permutation, sample_numbers
from trainonce.recipes.vision.loading import check_one_size, data_loader, read_all, read_or_next

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from trainonce.recipes.depth.data.frames import Frames
    from trainonce.recipes.depth.settings import Settings

CHUNK = 64  # frames that are generated at once
FEWEST = 50  # pixels of known depth that a view needs to be trained on

#: What a list of frames raises for one that cannot be read.
UNREADABLE = (OSError, ValueError, KeyError)


class Choice(NamedTuple):
    """A sample's number, and where its frame is: which set, and which of its frames."""

    number: int
    set: str
    at: int


def choice(number: int, sizes: Mapping[str, int], seed: int) -> Choice:
    """The sample of that number. Each set is drawn equally often, and each of its frames once in an epoch of it."""
    names = list(sizes)
    turn, at_name = divmod(number, len(names))
    name = names[int(permutation(len(names), seed, "sets", turn)[at_name])]
    epoch, at = divmod(turn, sizes[name])
    return Choice(number, name, int(permutation(sizes[name], seed, name, epoch)[at]))


@dataclasses.dataclass(frozen=True)
class SampleOrder:
    """The samples of each of some steps in one process.

    :param process: Rank and number of processes.
    """

    sizes: Mapping[str, int]
    frames: int
    seed: int
    steps: range
    process: tuple[int, int] = (0, 1)

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, index: int) -> list[Choice]:
        numbers = sample_numbers(self.steps[index], self.frames, self.process)
        return [choice(n, self.sizes, self.seed) for n in numbers]


# Where frames come from


class Group(NamedTuple):
    """Frames of one size, stacked, on the device: the indices of their samples, and their cameras on the CPU."""

    members: list[int]
    frames: Frame
    cameras: Tensor


class DeviceCache:
    """All frames, read once and kept in the device's memory. Those of one set have one size."""

    def __init__(self, training: Mapping[str, Frames], settings: Settings, device: torch.device) -> None:
        self._sets = {name: _read_set(frames, settings.readers, device) for name, frames in training.items()}
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


def _read_set(frames: Frames, readers: int, device: torch.device) -> Frame:
    """All frames of a set, stacked, on the device."""
    numbers = range(len(frames))
    parts = [generate(frames, numbers[i : i + CHUNK], device) for i in range(0, len(numbers), CHUNK)]
    generated = [part for part in parts if part is not None]
    if generated:
        return Frame(*(torch.cat(part) for part in zip(*generated, strict=True)))
    bad: list[str] = []
    read = read_all(lambda i: read_frame(frames, i, bad), len(frames), readers)
    _warn_of(bad)
    check_one_size("Frames", [frame.depth for frame in read])
    return Frame(*(torch.stack(part).to(device) for part in zip(*read, strict=True)))


class StreamLoader:
    """Frames read by worker processes while the device trains.

    :param patch: Of the network, on which the shape of the views depends.
    """

    def __init__(self, training: Mapping[str, Frames], settings: Settings, patch: int, device: torch.device) -> None:
        self._training, self._settings, self._patch, self._device = training, settings, patch, device

    def batches(self, order: SampleOrder) -> Iterator[list[Group]]:
        steps = _Steps(self._training, order, self._settings, self._patch)
        for stacks, bad in data_loader(steps, self._settings, self._device):
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


class _Steps(Dataset[Any]):
    """The frames of each step. One that cannot be read, or has hardly a known pixel in a view, is replaced."""

    def __init__(self, training: Mapping[str, Frames], order: SampleOrder, settings: Settings, patch: int) -> None:
        self._training, self._order, self._settings, self._patch = training, order, settings, patch

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, step: int) -> tuple[list[tuple[list[int], Frame]], list[str]]:
        """Frames of one size, stacked: each tensor that is sent between processes is an open file."""
        bad: list[str] = []
        seed, number = self._order.seed, self._order.steps[step]
        shape = shape_of(self._settings, self._patch, seed, number)

        def read_sample(chosen: Choice) -> Frame:
            def fewest(frame: Frame) -> int:
                size = (frame.depth.shape[0], frame.depth.shape[1])
                drawn = augmentation(self._settings, seed, chosen.number, size, frame.camera, shape)
                return views.fewest_known(frame.depth, drawn, shape, FEWEST)

            return read_frame(self._training[chosen.set], chosen.at, bad, fewest, ", in one of its views")

        read = list(map(read_sample, self._order[step]))
        groups: dict[tuple[int, ...], list[int]] = {}
        for i, frame in enumerate(read):
            groups.setdefault(tuple(frame.depth.shape), []).append(i)
        stacks = [(m, Frame(*(torch.stack([read[i][k] for i in m]) for k in range(3)))) for m in groups.values()]
        return stacks, bad


def count_known(frame: Frame) -> int:
    """How many pixels of a frame have a depth."""
    return int((frame.depth > 0).sum())


def read_frame(
    frames: Frames, index: int, bad: list[str], count: Callable[[Frame], int] = count_known, where: str = ""
) -> Frame:
    """The frame, or the next one that can be trained on; errors are appended to ``bad``.

    :param count: How many pixels of known depth a frame has that count; ``where`` those are, for the error.
    """

    def read(at: int) -> Frame:
        frame = frames.frame(at)
        known = count(frame)
        if known < FEWEST:
            raise ValueError(f"it has {known} pixels of known depth, less than {FEWEST}{where}")
        return frame

    return read_or_next(
        frames, index, read, bad, f"None of the {len(frames)} frames can be trained on", errors=UNREADABLE
    )


# On the device


def make_batch(
    chosen: Sequence[Choice], groups: Sequence[Group], settings: Settings, shape: tuple[int, int], seed: int
) -> views.Views:
    """Two views of each frame, in the order of the samples.

    The depth of a view with hardly a known pixel becomes unknown: the losses of depth and invariance leave it out. The
    stream has replaced such frames before; with frames on the device, that would have to wait for it.
    """
    ready = []
    for members, stack, cameras in groups:
        size = (stack.depth.shape[1], stack.depth.shape[2])
        numbers = [chosen[i].number for i in members]
        augmentations = [
            augmentation(settings, seed, n, size, camera, shape) for n, camera in zip(numbers, cameras, strict=True)
        ]
        ready.append(forget_sparse_depth(views.make_views(*stack, augmentations, shape)))
    if len(ready) == 1:
        return ready[0]
    order = torch.tensor([i for members, _, _ in groups for i in members]).argsort()
    pairs = torch.stack([2 * order, 2 * order + 1], 1).flatten().to(ready[0].images.device, non_blocking=True)
    return views.Views(*(torch.cat(part)[pairs] for part in zip(*ready, strict=True)))


def forget_sparse_depth(made: views.Views) -> views.Views:
    """The views, with no depth at all where fewer than :data:`FEWEST` pixels have one."""
    enough = (made.depths > 0).sum((1, 2), keepdim=True) >= FEWEST
    return made._replace(depths=torch.where(enough, made.depths, 0))


def augmentation(
    settings: Settings, seed: int, number: int, size: tuple[int, int], camera: Tensor, shape: tuple[int, int]
) -> views.Augmentation:
    """The random augmentation of a sample's two views; without augmentation both are the whole frame."""
    if settings.augment:
        return views.draw_augmentation(seed, number, size, camera, shape)
    shrunk = max(size[0] / shape[0], size[1] / shape[1])
    height, width = shrunk * shape[0], shrunk * shape[1]
    whole = views.Window((size[0] - height) / 2, (size[1] - width) / 2, height, width)
    return views.Augmentation((whole, whole))


def steps_at_once(settings: Settings, patch: int, device: torch.device) -> int:
    """For how many steps views are made at once: many small kernels cost the same for one step and for ten.

    Groups of steps begin at fixed steps and are made whole, so that a resumed training gets the same bits.
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
