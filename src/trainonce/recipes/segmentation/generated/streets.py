"""Small generated street scenes: the same towns by day, at dusk, at night and in fog.

A scene depends on its seed and its number alone. The condition changes the picture and never the label.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from typing import TYPE_CHECKING

from trainonce.recipes.segmentation.data.scenes import Classes, Domains, Subset
from trainonce.recipes.segmentation.generated import drawing, weather
from trainonce.text import did_you_mean, quoted

if TYPE_CHECKING:
    from torch import Tensor

CLASSES = Classes(
    names=("sky", "building", "road", "pavement", "tree", "car", "person"),
    colours=(
        (70, 130, 180),
        (70, 70, 70),
        (128, 64, 128),
        (244, 35, 232),
        (107, 142, 35),
        (0, 0, 142),
        (220, 20, 60),
    ),
)
SIZE = (96, 192)
KEPT = 1 << 28  # bytes of drawn scenes that a list keeps


@dataclasses.dataclass(frozen=True)
class Streets:
    """Scenes under one condition, drawn on first access.

    >>> streets = Streets(0, 10, "night", size=(32, 64))
    >>> streets.name(3), tuple(streets.image(3).shape)
    ('street 0/3 night', (3, 32, 64))
    """

    seed: int
    count: int
    condition: str = "day"
    size: tuple[int, int] = SIZE
    _drawn: dict[int, tuple[Tensor, Tensor]] = dataclasses.field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if self.condition not in weather.CONDITIONS:
            raise ValueError(
                f"There are streets for {quoted(weather.CONDITIONS)}; got {self.condition!r}."
                + did_you_mean(self.condition, weather.CONDITIONS)
            )

    def __len__(self) -> int:
        return self.count

    def __reduce__(self) -> tuple[object, ...]:
        return Streets, (self.seed, self.count, self.condition, self.size)  # the pictures can be drawn again

    def name(self, index: int) -> str:
        return f"street {self.seed}/{index} {self.condition}"

    def image(self, index: int) -> Tensor:
        return self._scene(index)[0].clone()

    def label(self, index: int) -> Tensor:
        return self._scene(index)[1].clone()

    def _scene(self, index: int) -> tuple[Tensor, Tensor]:
        if not 0 <= index < self.count:
            raise IndexError(f"There are {self.count} streets, from 0; got {index}.")
        if index in self._drawn:
            return self._drawn[index]
        drawn = scene(self.seed, index, self.condition, self.size)
        if (len(self._drawn) + 1) * 4 * self.size[0] * self.size[1] <= KEPT:
            self._drawn[index] = drawn
        return drawn


def scene(seed: int, index: int, condition: str, size: tuple[int, int] = SIZE) -> tuple[Tensor, Tensor]:
    """One image and its label."""
    street = drawing.street(random.Random(f"street {seed} {index}"), size)
    return weather.render(street, condition, random.Random(f"{condition} {seed} {index}")), street.label


def load(
    seed: int,
    *,
    size: tuple[int, int] = SIZE,
    target: str = "night",
    source: int = 200,
    style: int = 60,
    validation: int = 60,
    test: int = 120,
    held_out: int = 60,
) -> Domains:
    """Streets by day to train on, and others under the target condition. No street is in two sets.

    :param source: How many streets by day there are to train on; the other counts likewise.
    :param held_out: How many further streets by day are reported on.
    """
    counts = source, style, validation, test, held_out
    by_day, there = (Streets(seed, sum(counts), condition, size) for condition in ("day", target))
    stops = list(itertools.accumulate(counts))
    spans = [range(stop - count, stop) for stop, count in zip(stops, counts, strict=True)]
    return Domains(
        CLASSES,
        source=Subset(by_day, spans[0]),
        style=Subset(there, spans[1]),
        validation=Subset(there, spans[2]),
        test=Subset(there, spans[3]),
        others={"day": Subset(by_day, spans[4])},
    )
