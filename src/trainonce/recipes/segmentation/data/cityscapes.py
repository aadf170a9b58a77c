"""Cityscapes: street scenes of German cities by day, 19 classes.

Layout, as published: ``leftImg8bit/<split>/<city>/*_leftImg8bit.png`` and
``gtFine/<split>/<city>/*_gtFine_labelIds.png``, or ``*_gtFine_labelTrainIds.png`` where these have been made. Other
files are not read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainonce.recipes.segmentation.data.label_files import Files, class_table, pair_labels, strip_suffix
from trainonce.recipes.segmentation.data.scenes import IGNORE, Classes
from trainonce.recipes.vision import files
from trainonce.text import did_you_mean, quoted

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from pathlib import Path

    from trainonce.recipes.vision.files import Place

CLASSES = Classes(
    names=(
        "road",
        "sidewalk",
        "building",
        "wall",
        "fence",
        "pole",
        "traffic light",
        "traffic sign",
        "vegetation",
        "terrain",
        "sky",
        "person",
        "rider",
        "car",
        "truck",
        "bus",
        "train",
        "motorcycle",
        "bicycle",
    ),
    colours=(
        (128, 64, 128),
        (244, 35, 232),
        (70, 70, 70),
        (102, 102, 156),
        (190, 153, 153),
        (153, 153, 153),
        (250, 170, 30),
        (220, 220, 0),
        (107, 142, 35),
        (152, 251, 152),
        (70, 130, 180),
        (220, 20, 60),
        (255, 0, 0),
        (0, 0, 142),
        (0, 0, 70),
        (0, 60, 100),
        (0, 80, 100),
        (0, 0, 230),
        (119, 11, 32),
    ),
)

#: The stored number ("labelId") of each class.
IDS = (7, 8, 11, 12, 13, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 31, 32, 33)
LAST_ID = 33

#: The classes of the values of the two kinds of label files, the preferred kind first.
KINDS = {
    "labelTrainIds": class_table({i: i for i in range(len(CLASSES))}),
    "labelIds": class_table({i: IDS.index(i) if i in IDS else IGNORE for i in range(LAST_ID + 1)}),
}

SPLITS = ("train", "val", "test")
NAMES = ("cityscapes", "Cityscapes")


def find(root: str | os.PathLike[str]) -> Path:
    """The folder with ``leftImg8bit``: ``root``, or ``cityscapes`` in it."""
    return files.find_home(root, NAMES, "leftImg8bit")


def load(root: str | os.PathLike[str], split: str, size: tuple[int, int] | None = None) -> Files:
    """The scenes of a split. Labels with train ids are used where every image has one, else labels with ids."""
    check_split("Cityscapes", split)
    root = find(root)
    folder, labels = files.find_subfolder(root, "leftImg8bit") / split, files.find_subfolder(root, "gtFine") / split
    suffix = "_leftImg8bit.png"
    images = strip_suffix(suffix, files.list_files(folder, suffix))
    if not images:
        raise ValueError(f"Images named *{suffix} are expected below {folder}; {files.contents(folder)}")
    found = {kind: strip_suffix(end := f"_gtFine_{kind}.png", files.list_files(labels, end)) for kind in KINDS}
    check_labels(found, labels)
    return choose_labels(
        images,
        found,
        lambda name: f"{folder}/{name}{suffix}",
        lambda name, kind: f"{labels}/{name}_gtFine_{kind}.png",
        size,
    )


def choose_labels(
    images: dict[str, Place],
    labels: dict[str, dict[str, Place]],
    image_as: Callable[[str], str],
    label_as: Callable[[str, str], str],
    size: tuple[int, int] | None,
) -> Files:
    """The images with their labels, of the kind that covers more of them.

    :param image_as: The file of an image, from what its name and its label's have in common, for error messages.
    :param label_as: The file of a label, from that and the kind.
    """
    kind = max(labels, key=lambda kind: len(images.keys() & labels[kind].keys()))
    paired = pair_labels(images, labels[kind], image_as, lambda name: label_as(name, kind))
    return Files(*paired, KINDS[kind], size=size)


def check_labels(found: dict[str, dict[str, Place]], folder: Path) -> None:
    if not any(found.values()):
        wanted = " or ".join(f"*_{kind}.png" for kind in found)
        raise ValueError(f"Labels named {wanted} are expected below {folder}; {files.contents(folder)}")


def check_split(owner: str, split: str) -> None:
    if split not in SPLITS:
        raise ValueError(f"{owner} has the splits {quoted(SPLITS)}; got {split!r}.{did_you_mean(split, SPLITS)}")
