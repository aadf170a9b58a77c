"""ACDC: street scenes in fog, at night, in rain and in snow, with the classes of Cityscapes.

Layouts: as published, ``rgb_anon/<condition>/<split>/<recording>/*_rgb_anon.png`` with labels
``gt/<condition>/<split>/<recording>/*_gt_labelTrainIds.png``, or flattened, without the folders of conditions.
Reference images, in folders named ``*_ref``, are not read.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from trainonce.recipes.segmentation.data import cityscapes
from trainonce.recipes.segmentation.data.label_files import Files
from trainonce.recipes.vision import files

if TYPE_CHECKING:
    import os

    from trainonce.recipes.vision.files import Place

CLASSES = cityscapes.CLASSES
CONDITIONS = ("fog", "night", "rain", "snow")
NAMES = ("acdc", "ACDC")
SUFFIX = "_rgb_anon.png"


def find(root: str | os.PathLike[str]) -> Path:
    """The folder with ``rgb_anon``: ``root``, or ``acdc`` in it."""
    return files.find_home(root, NAMES, "rgb_anon")


def has_split(root: str | os.PathLike[str], split: str) -> bool:
    """Whether images of a split are there."""
    return bool(_frames(files.find_subfolder(find(root), "rgb_anon"), split, SUFFIX))


def load(root: str | os.PathLike[str], split: str, size: tuple[int, int] | None = None, labelled: bool = True) -> Files:
    """The scenes of a split, of all conditions, in the order of their recordings.

    Labels with train ids are used where every image has one, else labels with ids; the test split has none to load.
    """
    cityscapes.check_split("ACDC", split)
    root = find(root)
    folder = files.find_subfolder(root, "rgb_anon")
    images = _frames(folder, split, SUFFIX)
    if not images:
        raise ValueError(
            f"Images named *{SUFFIX} are expected below {folder} in folders named {split!r}; {files.contents(folder)}"
        )
    if not labelled:
        ordered = tuple(images[name] for name in sorted(images))
        return Files(ordered, None, cityscapes.KINDS["labelTrainIds"], size=size)
    labels = files.find_subfolder(root, "gt")
    found = {kind: _frames(labels, split, f"_gt_{kind}.png") for kind in cityscapes.KINDS}
    cityscapes.check_labels(found, labels)
    return cityscapes.choose_labels(
        images,
        found,
        lambda name: f"{folder}/**/{split}/**/{name}{SUFFIX}",
        lambda name, kind: f"{labels}/**/{split}/**/{name}_gt_{kind}.png",
        size,
    )


def halves(scenes: Files) -> tuple[list[int], list[int]]:
    """The scenes in two parts of which none shares a recording with the other, as equal as the recordings allow.

    Equal in the number of scenes, and of each condition where folders are named by it, which flattened ones are not. A
    long recording comes in chapters: ``GP010376`` continues ``GOPR0376`` and stays with it.
    """
    keys = [(_recording(place), _condition(place)) for place in scenes.images]
    parts = {recording: Counter[str]() for recording, _ in sorted(keys)}
    for recording, condition in keys:
        parts[recording][condition] += 1
    if len(parts) < 2:
        raise ValueError(f"Halves need two recordings or more; {len(scenes)} scenes come from {len(parts)}.")
    total = sum(parts.values(), Counter[str]())

    def imbalance(chosen: frozenset[str]) -> int:
        inside = sum((parts[recording] for recording in chosen), Counter[str]())
        by_condition = sum((2 * inside[condition] - total[condition]) ** 2 for condition in total)
        return by_condition + (2 * inside.total() - total.total()) ** 2

    moves = [frozenset(move) for count in (1, 2) for move in itertools.combinations(parts, count)]
    chosen: frozenset[str] = frozenset()
    while imbalance(better := min((chosen ^ move for move in moves), key=imbalance)) < imbalance(chosen):
        chosen = better
    first = [i for i, (recording, _) in enumerate(keys) if recording in chosen]
    second = [i for i, (recording, _) in enumerate(keys) if recording not in chosen]
    return first, second


def _frames(folder: Path, split: str, suffix: str) -> dict[str, Place]:
    """The files of a split by the names of their frames; one that is there in both layouts is taken as published."""
    frames: dict[str, Place] = {}
    for name, place in files.list_files(folder, suffix).items():
        *parents, file = name.split("/")
        frame = file.removesuffix(suffix)
        if split in parents and (frame not in frames or parents[0] != split):
            frames[frame] = place
    return frames


def _recording(place: Place) -> str:
    name = Path(place.path).name
    match = re.match(r"(?:GOPR|GP\d\d)(\d{4})_", name)
    if match is None:
        raise ValueError(f"The recording of {place} must follow from a name like GOPR0376_frame_000001{SUFFIX}.")
    return match[1]


def _condition(place: Place) -> str:
    return next((part for part in reversed(Path(place.path).parts) if part in CONDITIONS), "")
