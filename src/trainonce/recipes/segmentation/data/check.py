"""Looking at all data before a long run: every file is read once, and all that is wrong is said at once."""

from __future__ import annotations

import dataclasses
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from trainonce.recipes.segmentation.data.label_files import Files, counted
from trainonce.recipes.segmentation.data.scenes import IGNORE, Domains, Scenes, Subset
from trainonce.recipes.vision.checks import summary

if TYPE_CHECKING:
    from collections.abc import Hashable

    from torch import Tensor


@dataclasses.dataclass
class Look:
    """One scene to look at, and what is found."""

    scenes: Scenes
    index: int
    labelled: bool = False
    cropped: bool = False
    size: tuple[int, int] | None = None
    problems: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.scenes.name(self.index)


def check(domains: Domains, least: tuple[int, int], *, same_size: bool = False, threads: int = 8) -> None:
    """Reads every scene once, and raises one error that names what is wrong with them.

    A scene in two sets is read once; labels that only ``style`` has are not read.

    :param least: Height and width of the crops taken of ``source`` and ``style``: no image of theirs may be smaller.
    :param same_size: Whether the images of each set must be of one size, as batches of whole images need.
    :param threads: How many files are read at a time.
    """
    sets = domains.sets()
    problems = [f"The set {name!r} has no scenes." for name, scenes in sets.items() if not len(scenes)]
    looks: dict[Hashable, Look] = {}
    members: dict[str, list[Look]] = {}
    for name, scenes in sets.items():
        keyed = [origin(scenes, index) for index in range(len(scenes))]
        members[name] = [looks.setdefault(_key(*place), Look(*place)) for place in keyed]
        for look in members[name]:
            look.labelled |= name != "style"
            look.cropped |= name in ("source", "style")
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(lambda look: inspect(look, len(domains.classes), least), looks.values()):
            pass
    problems += [problem for look in looks.values() for problem in look.problems]
    if same_size:
        named = {id(scenes): name for name, scenes in reversed(sets.items())}
        for name in reversed(named.values()):
            problems += odd(name, members[name])
    if problems:
        raise ValueError(summary(problems))


def origin(scenes: Scenes, index: int) -> tuple[Scenes, int]:
    """The list that a scene of a subset comes from, and where it is there."""
    while isinstance(scenes, Subset):
        index, scenes = scenes.indices[index], scenes.whole
    return scenes, index


def inspect(look: Look, classes: int, least: tuple[int, int]) -> None:
    """Reads a scene and notes its size and what is wrong with it."""
    scenes, index = look.scenes, look.index
    stored = dataclasses.replace(scenes, size=None) if isinstance(scenes, Files) else scenes
    try:
        image = stored.image(index)
    except (ValueError, OSError) as error:
        look.problems = (_said(look, error),)
        return
    found = (image.shape[-2], image.shape[-1])
    look.size = scenes.size if isinstance(scenes, Files) and scenes.size else found
    problems = []
    if look.cropped and (look.size[0] < least[0] or look.size[1] < least[1]):
        rule = f"The image {look.name} must have at least the {_by(least)} pixels that are cut out of it"
        problems.append(f"{rule}; it has {_by(look.size)}. Make frame and crop smaller.")
    if look.labelled:
        try:
            problems += label_problems(look.name, stored.label(index), found, classes)
        except (ValueError, OSError) as error:
            problems.append(_said(look, error))
    look.problems = tuple(problems)


def label_problems(name: str, label: Tensor, size: tuple[int, int], classes: int) -> list[str]:
    """What is wrong with the label of an image."""
    problems = []
    if tuple(label.shape) != size:
        problems.append(
            f"The image {name} and its label must be of one size; they have {_by(size)} and {_by(label.shape)} pixels."
        )
    wrong = label[(label >= classes) & (label != IGNORE)].tolist()
    if wrong:
        rule = f"may hold the classes 0 to {classes - 1} and {IGNORE}"
        problems.append(f"The label of {name} {rule}; it holds {counted(wrong)}.")
    return problems


def odd(name: str, looks: list[Look]) -> list[str]:
    """The images of a set that are not of the size that most have."""
    sizes = Counter(look.size for look in looks if look.size)
    if len(sizes) < 2:
        return []
    usual = sizes.most_common(1)[0][0]
    rule = f"The images of the set {name!r} must be of one size; most have {_by(usual)} pixels"
    return [
        f"{rule}, {look.name} has {_by(look.size)}. Set size=." for look in looks if look.size and look.size != usual
    ]


def _key(scenes: Scenes, index: int) -> Hashable:
    if isinstance(scenes, Files):
        return scenes.images[index], scenes.labels and scenes.labels[index], scenes.size
    return id(scenes), index


def _said(look: Look, error: Exception) -> str:
    """What an error says; files name themselves."""
    return str(error) if isinstance(look.scenes, Files) else f"{look.name}: {error}"


def _by(size: tuple[int, ...]) -> str:
    return "x".join(map(str, size))
