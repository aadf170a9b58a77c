"""Scenes: images with labels, wherever they come from, and the sets that a recipe needs."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Protocol

from trainonce.recipes.vision.indices import evenly_spaced

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

#: The label of pixels that are ignored.
IGNORE = 255


@dataclasses.dataclass(frozen=True)
class Classes:
    """The classes of a data set: class ``i`` has the ``i``-th name and, in pictures, the ``i``-th colour."""

    names: tuple[str, ...]
    colours: tuple[tuple[int, int, int], ...]

    def __len__(self) -> int:
        return len(self.names)


class Scenes(Protocol):
    """A list of images with labels. Each is read, or drawn, on access."""

    def __len__(self) -> int: ...

    def name(self, index: int) -> str:
        """What to call the scene in a message: its file, if it has one."""
        ...

    def image(self, index: int) -> Tensor:
        """uint8, RGB, (3, height, width)."""
        ...

    def label(self, index: int) -> Tensor:
        """uint8, (height, width): classes, or :data:`IGNORE`."""
        ...


@dataclasses.dataclass(frozen=True)
class Domains:
    """What a recipe trains and tests on. Labels of ``style`` are never read.

    :param source: Labelled scenes to train on.
    :param style: Scenes of the other domain, whose style the source images take on.
    :param validation: Scenes of the other domain that choose among weights.
    :param test: Scenes of the other domain that are reported.
    :param others: Further sets to report on, by name.
    """

    classes: Classes
    source: Scenes
    style: Scenes
    validation: Scenes
    test: Scenes
    others: Mapping[str, Scenes] = dataclasses.field(default_factory=dict)

    def sets(self) -> dict[str, Scenes]:
        """All of them by name; a set that serves twice is there twice."""
        fixed = {"source": self.source, "style": self.style, "validation": self.validation, "test": self.test}
        return {**fixed, **self.others}

    def evaluation_sets(self) -> dict[str, Scenes]:
        """All sets that are reported on, by name."""
        return {"validation": self.validation, "test": self.test, **self.others}

    def limit(self, most: int) -> Domains:
        """The same with at most so many scenes of each set, evenly spaced; 0: with all."""
        kept = {name: thin(scenes, most) for name, scenes in self.sets().items()}
        fixed = {name: kept.pop(name) for name in ("source", "style", "validation", "test")}
        return Domains(self.classes, **fixed, others=kept)


@dataclasses.dataclass(frozen=True)
class Subset:
    """Some of the scenes of another list, in the given order."""

    whole: Scenes
    indices: Sequence[int]

    def __len__(self) -> int:
        return len(self.indices)

    def name(self, index: int) -> str:
        return self.whole.name(self.indices[index])

    def image(self, index: int) -> Tensor:
        return self.whole.image(self.indices[index])

    def label(self, index: int) -> Tensor:
        return self.whole.label(self.indices[index])


def thin(scenes: Scenes, most: int) -> Scenes:
    """At most so many of the scenes, evenly spaced; 0: all."""
    return Subset(scenes, evenly_spaced(len(scenes), most)) if most else scenes


def origin(scenes: Scenes, index: int) -> tuple[Scenes, int]:
    """The list that a scene of a subset comes from, and where it is there."""
    while isinstance(scenes, Subset):
        index, scenes = scenes.indices[index], scenes.whole
    return scenes, index
