"""Scenes in files: which label belongs to which image, and reading both.

Errors are one sentence: the file, the rule, what was found, what to do.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainonce.extras import require
from trainonce.recipes.segmentation.data.scenes import IGNORE
from trainonce.recipes.vision.files import Place, decode, pixels

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

#: In a table of stored values: a value that no label may hold.
ILLEGAL = -1


# Which label belongs to which image


def pair_labels(
    images: Mapping[str, Place],
    labels: Mapping[str, Place],
    image_as: Callable[[str], str],
    label_as: Callable[[str], str],
) -> tuple[tuple[Place, ...], tuple[Place, ...]]:
    """Images and their labels, in the order of their common names.

    :param image_as: The file of an image, from its common name, for error messages.
    :param label_as: The same for a label.
    """
    for name, place in images.items():
        if name not in labels:
            raise ValueError(f"The image {place} has no label: there is no {label_as(name)}.")
    for name, place in labels.items():
        if name not in images:
            raise ValueError(f"The label {place} has no image: there is no {image_as(name)}.")
    return tuple(images[name] for name in sorted(images)), tuple(labels[name] for name in sorted(images))


def strip_suffix(suffix: str, found: Mapping[str, Place]) -> dict[str, Place]:
    """The files by their names without the common suffix."""
    return {name.removesuffix(suffix): place for name, place in found.items()}


# What is in them


@dataclasses.dataclass(frozen=True)
class Files:
    """Images and labels in files, read and decoded (by Pillow) on access.

    :param labels: One for each image; None for scenes without labels.
    :param values: For each value, 0 to 255, that a label file may hold: the class, ``IGNORE`` or ``ILLEGAL``.
    :param colours: For labels stored as RGB: the colour of each value.
    :param size: Height and width to resize to: images by bilinear interpolation with antialiasing, labels
        by their nearest pixels. None: as stored.
    """

    images: tuple[Place, ...]
    labels: tuple[Place, ...] | None
    values: tuple[int, ...]
    colours: tuple[tuple[int, int, int], ...] | None = None
    size: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if self.labels is not None and len(self.labels) != len(self.images):
            raise ValueError(f"Files needs a label for each image; got {len(self.images)} and {len(self.labels)}.")
        if len(self.values) != 256:
            raise ValueError(
                f"Files needs a class for each of the 256 values; got {len(self.values)}. See class_table()."
            )
        if self.size is not None and (len(self.size) != 2 or min(self.size) < 1):
            raise ValueError(f"Files needs a size (height, width) of at least one pixel; got {self.size}.")

    def __len__(self) -> int:
        return len(self.images)

    def name(self, index: int) -> str:
        return str(self.images[index])

    def image(self, index: int) -> Tensor:
        place = self.images[index]
        image = decode(place, "image")
        if image.mode.startswith(("I", "F")):
            raise ValueError(f"The image {place} must have 8 bits per channel; its mode is {image.mode!r}.")
        return pixels(_resize(image.convert("RGB"), self.size, "BILINEAR")).permute(2, 0, 1).contiguous()

    def label(self, index: int) -> Tensor:
        if self.labels is None:
            raise ValueError(f"The scene {self.name(index)} was loaded without its label.")
        place = self.labels[index]
        image = decode(place, "label")
        wanted = ("L", "P") if self.colours is None else ("RGB",)
        if image.mode not in wanted:
            rule = "one channel of 8 bits" if self.colours is None else "three channels of 8 bits"
            raise ValueError(f"The label {place} must have {rule}; its mode is {image.mode!r}.")
        stored = pixels(_resize(image, self.size, "NEAREST"))
        if self.colours is None:
            return classes_of(stored, self.values, place)
        return classes_of(_values_of_colours(stored, self.colours, place), self.values, place)


def class_table(legal: Mapping[int, int]) -> tuple[int, ...]:
    """The 256 entries of :attr:`Files.values` from those that are legal. 255 means ``IGNORE`` unless given.

    >>> class_table({0: 3, 1: 4})[:3], class_table({0: 3})[255]
    ((3, 4, -1), 255)
    """
    return tuple({255: IGNORE, **legal}.get(value, ILLEGAL) for value in range(256))


def classes_of(stored: Tensor, values: Sequence[int], place: Place) -> Tensor:
    """The classes of stored values; an error names the values that have none."""
    found = torch.tensor(values, dtype=torch.int16)[stored.int()]
    if int(found.min()) == ILLEGAL:
        wrong = stored[found == ILLEGAL].tolist()
        legal = _ranges(value for value, to in enumerate(values) if to != ILLEGAL)
        raise ValueError(f"The label {place} may hold the values {legal}; it holds {pixel_counts(wrong)}.")
    return found.to(torch.uint8)


def _values_of_colours(stored: Tensor, colours: Sequence[tuple[int, int, int]], place: Place) -> Tensor:
    """The positions of RGB colours in the table of colours."""
    codes = _codes(stored)
    known, order = _codes(torch.tensor(colours, dtype=torch.uint8)).sort()
    nearest = torch.searchsorted(known, codes).clamp_(max=len(known) - 1)
    right = known[nearest] == codes
    if not right.all():
        wrong = [tuple(colour) for colour in stored[~right].tolist()]
        raise ValueError(
            f"The label {place} may hold the {len(colours)} colours of its data set; it holds {pixel_counts(wrong)}."
        )
    return order[nearest].to(torch.uint8)


def _codes(colours: Tensor) -> Tensor:
    red, green, blue = colours.int().unbind(-1)
    return red << 16 | green << 8 | blue


def _resize(image: Any, size: tuple[int, int] | None, how: str) -> Any:
    if size is None or (image.height, image.width) == size:
        return image
    return image.resize((size[1], size[0]), getattr(require("PIL.Image", "Pillow", "vision").Resampling, how))


def pixel_counts(values: Sequence[Hashable], most: int = 3) -> str:
    """The values and how often each occurs, in pixels, the frequent ones first.

    >>> pixel_counts([7, 200, 7])
    '7 (2 pixels), 200 (1 pixel)'
    """
    counts = Counter(values)
    text = ", ".join(f"{value} ({n} pixel{'s' * (n > 1)})" for value, n in counts.most_common(most))
    return text + (f" and {len(counts) - most} more" if len(counts) > most else "")


def _ranges(values: Iterable[int]) -> str:
    """Sorted whole numbers as text: ``0 to 18, 255``."""
    runs: list[list[int]] = []
    for value in values:
        if runs and value == runs[-1][1] + 1:
            runs[-1][1] = value
        else:
            runs.append([value, value])
    return ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in runs)
