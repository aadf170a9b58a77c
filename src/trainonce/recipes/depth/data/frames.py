"""Frames: images with depth and camera, wherever they come from, and the sets that a recipe needs of them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, NamedTuple, Protocol

from trainonce.recipes.vision.indices import evenly_spaced

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch
    from torch import Tensor


class Frame(NamedTuple):
    """One image and what is known of it.

    :param image: uint8, RGB, (3, height, width).
    :param depth: float32, (height, width): metres along the optical axis, 0 where unknown.
    :param camera: float32, (3, 3): focal lengths and centre in pixels. The middle of the first pixel is (0.5, 0.5).
    """

    image: Tensor
    depth: Tensor
    camera: Tensor


class Frames(Protocol):
    """A list of frames. Each is read, or generated, on access."""

    def __len__(self) -> int: ...

    def name(self, index: int) -> str:
        """What to call the frame in a message: its file, if it has one."""
        ...

    def frame(self, index: int) -> Frame: ...


class Range(NamedTuple):
    """The depths, in metres, that count in a metric; thresholds of distances follow from them."""

    nearest: float
    farthest: float


@dataclasses.dataclass(frozen=True)
class EvaluationSet:
    """Frames that are reported on, and how.

    :param window: Rows and columns (top, bottom, left, right) that count; None: all.
    """

    frames: Frames
    range: Range
    window: tuple[int, int, int, int] | None = None


@dataclasses.dataclass(frozen=True)
class Sets:
    """What a recipe trains and tests on.

    :param training: Sets to train on by name; each is drawn equally often, whatever its size.
    :param validation: Chooses among weights.
    :param test: Is reported.
    :param others: Further sets to report on, by name, such as those of a place or camera never trained on.
    """

    training: Mapping[str, Frames]
    validation: EvaluationSet
    test: EvaluationSet
    others: Mapping[str, EvaluationSet] = dataclasses.field(default_factory=dict)

    def evaluation_sets(self) -> dict[str, EvaluationSet]:
        """All sets that are reported on, by name."""
        return {"validation": self.validation, "test": self.test, **self.others}

    def limit(self, most: int) -> Sets:
        """The same with at most so many frames of each set, evenly spaced; 0: with all."""
        if not most:
            return self

        def few(frames: Frames) -> Subset:
            return Subset(frames, evenly_spaced(len(frames), most))

        kept = {name: dataclasses.replace(e, frames=few(e.frames)) for name, e in self.evaluation_sets().items()}
        training = {name: few(frames) for name, frames in self.training.items()}
        return Sets(training, kept.pop("validation"), kept.pop("test"), kept)


class CachedFrames:
    """The frames of another list, each read once: for a small set that is evaluated often.

    :param most: How many are kept at most; None: all.
    :param read: The first frames, where they have been read before.
    """

    def __init__(self, whole: Frames, most: int | None = None, read: Sequence[Frame] = ()) -> None:
        self._whole, self._most = whole, len(whole) if most is None else most
        self._read = dict(enumerate(read))

    def __len__(self) -> int:
        return len(self._whole)

    def name(self, index: int) -> str:
        return self._whole.name(index)

    def frame(self, index: int) -> Frame:
        if index in self._read:
            return self._read[index]
        frame = self._whole.frame(index)
        if len(self._read) < self._most:
            self._read[index] = frame
        return frame


@dataclasses.dataclass(frozen=True)
class Subset:
    """Some of the frames of another list, in the given order."""

    whole: Frames
    indices: Sequence[int]

    def __len__(self) -> int:
        return len(self.indices)

    def name(self, index: int) -> str:
        return self.whole.name(self.indices[index])

    def frame(self, index: int) -> Frame:
        return self.whole.frame(self.indices[index])


def origin(frames: Frames, index: int) -> tuple[Frames, int]:
    """The list that a frame of a subset comes from, and where it is there."""
    while isinstance(frames, Subset):
        index, frames = frames.indices[index], frames.whole
    return frames, index


def generate(frames: Frames, indices: Sequence[int], device: torch.device) -> tuple[Tensor, Tensor, Tensor] | None:
    """Several generated frames, stacked: images, depths, cameras. None where frames are read from files.

    Generating many frames in one call, on the device that needs them, is much faster.
    """
    if isinstance(frames, Subset):
        return generate(frames.whole, [frames.indices[i] for i in indices], device)
    several = getattr(frames, "frames", None)
    return None if several is None else several(indices, device)
