"""The check of all scenes before a long run: every file is read once, and one error lists all problems."""

from __future__ import annotations

import dataclasses
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from trainonce.recipes.segmentation.data.label_files import Files, pixel_counts
from trainonce.recipes.segmentation.data.scenes import IGNORE, Classes, Domains, Scenes, origin
from trainonce.recipes.vision.checks import format_size, summarize

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from torch import Tensor


@dataclasses.dataclass
class SceneCheck:
    """One scene to check, and what is found."""

    scenes: Scenes
    index: int
    labelled: bool = False
    cropped: bool = False
    size: tuple[int, int] | None = None
    classes: frozenset[int] = frozenset()
    problems: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.scenes.name(self.index)


def check(
    domains: Domains,
    least: tuple[int, int],
    *,
    same_size: bool = False,
    threads: int = 8,
    progress: Callable[[int, int, str], None] = lambda done, total, what: None,
) -> dict[str, str]:
    """Read every scene once, and raise one error that lists all problems; return what each set holds, in words.

    A scene in two sets is read once; labels that only ``style`` has are not read.

    :param least: Height and width of the crops taken of ``source`` and ``style``: no image of theirs may be smaller.
    :param same_size: Whether the images of each set must have one size, as batches of whole images need.
    :param threads: How many files are read at a time.
    """
    sets = domains.sets()
    problems = [f"The set {name!r} has no scenes." for name, scenes in sets.items() if not len(scenes)]
    scene_checks: dict[Hashable, SceneCheck] = {}
    members: dict[str, list[SceneCheck]] = {}
    for name, scenes in sets.items():
        keyed = [origin(scenes, index) for index in range(len(scenes))]
        members[name] = [scene_checks.setdefault(_key(*place), SceneCheck(*place)) for place in keyed]
        for scene in members[name]:
            scene.labelled |= name != "style"
            scene.cropped |= name in ("source", "style")
    with ThreadPoolExecutor(threads) as pool:
        read = pool.map(lambda scene: inspect_(scene, len(domains.classes), least), scene_checks.values())
        for done, _ in enumerate(read, 1):
            progress(done, len(scene_checks), "scenes")
    problems += [problem for scene in scene_checks.values() for problem in scene.problems]
    if same_size:
        named = {id(scenes): name for name, scenes in reversed(sets.items())}
        for name in reversed(named.values()):
            problems += size_problems(name, members[name])
    if problems:
        raise ValueError(summarize(problems))
    return {name: describe(members[name], None if name == "style" else domains.classes) for name in sets}


def describe(scenes: list[SceneCheck], classes: Classes | None) -> str:
    """How many scenes a set has, their sizes and the classes that occur in them.

    :param classes: None for a set whose labels are not read.
    """
    sizes = Counter(format_size(scene.size) for scene in scenes if scene.size)
    shown = ", ".join(size if len(sizes) == 1 else f"{size} ({count:,})" for size, count in sizes.most_common(3))
    seen = frozenset[int]().union(*(scene.classes for scene in scenes))
    labels = "labels are not read" if classes is None else f"{len(seen - {IGNORE})} of {len(classes)} classes"
    return f"{len(scenes):,} scene{'s' * (len(scenes) != 1)} of {shown} pixels; {labels}"


def inspect_(scene: SceneCheck, classes: int, least: tuple[int, int]) -> None:
    """Read a scene and fill in its size and problems."""
    scenes, index = scene.scenes, scene.index
    stored = dataclasses.replace(scenes, size=None) if isinstance(scenes, Files) else scenes
    try:
        image = stored.image(index)
    except (ValueError, OSError) as error:
        scene.problems = (_error_text(scene, error),)
        return
    found = (image.shape[-2], image.shape[-1])
    scene.size = scenes.size if isinstance(scenes, Files) and scenes.size else found
    problems = []
    if scene.cropped and (scene.size[0] < least[0] or scene.size[1] < least[1]):
        rule = f"The image {scene.name} must have at least the {format_size(least)} pixels that are cut out of it"
        problems.append(f"{rule}; it has {format_size(scene.size)}. Make frame and crop smaller.")
    if scene.labelled:
        try:
            label = stored.label(index)
            problems += label_problems(scene.name, label, found, classes)
            scene.classes = frozenset(label.flatten().bincount().nonzero().flatten().tolist())
        except (ValueError, OSError) as error:
            problems.append(_error_text(scene, error))
    scene.problems = tuple(problems)


def label_problems(name: str, label: Tensor, size: tuple[int, int], classes: int) -> list[str]:
    """What is wrong with the label of an image."""
    problems = []
    if tuple(label.shape) != size:
        found = f"{format_size(size)} and {format_size(label.shape)}"
        problems.append(f"The image {name} and its label must be of one size; they have {found} pixels.")
    wrong = label[(label >= classes) & (label != IGNORE)].tolist()
    if wrong:
        rule = f"may hold the classes 0 to {classes - 1} and {IGNORE}"
        problems.append(f"The label of {name} {rule}; it holds {pixel_counts(wrong)}.")
    return problems


def size_problems(name: str, scenes: list[SceneCheck]) -> list[str]:
    """The images of a set whose size is not that of most."""
    sizes = Counter(scene.size for scene in scenes if scene.size)
    if len(sizes) < 2:
        return []
    usual = sizes.most_common(1)[0][0]
    rule = f"The images of the set {name!r} must be of one size; most have {format_size(usual)} pixels"
    return [
        f"{rule}, {scene.name} has {format_size(scene.size)}. Set size=."
        for scene in scenes
        if scene.size and scene.size != usual
    ]


def _key(scenes: Scenes, index: int) -> Hashable:
    if isinstance(scenes, Files):
        return scenes.images[index], scenes.labels and scenes.labels[index], scenes.size
    return id(scenes), index


def _error_text(scene: SceneCheck, error: Exception) -> str:
    """The text of an error, with the scene's name; the errors of files contain it."""
    return str(error) if isinstance(scene.scenes, Files) else f"{scene.name}: {error}"
