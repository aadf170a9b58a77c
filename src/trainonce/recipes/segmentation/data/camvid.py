"""CamVid: street scenes of Cambridge, three drives by day and one at dusk, 701 frames, 11 classes.

Layouts:

- ``images/NAME.jpg``, ``labels/NAME.png`` and ``splits.json``, in a folder or in the zip archive ``camvid.zip``;
- SegNet's: ``train/NAME.png``, ``trainannot/NAME.png``, and so for ``val`` and ``test``;
- as published: ``701_StillsRaw_full/NAME.png`` and ``LabeledApproved_full/NAME_L.png``, with labels in 32 colours.
"""

from __future__ import annotations

import json
import re
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from trainonce.recipes.segmentation.data.label_files import Files, class_table, pair_labels
from trainonce.recipes.segmentation.data.scenes import IGNORE, Classes, Domains, Subset
from trainonce.recipes.vision import files
from trainonce.recipes.vision.files import Place
from trainonce.text import did_you_mean, quoted

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

CLASSES = Classes(
    names=(
        "sky",
        "building",
        "pole",
        "road",
        "pavement",
        "tree",
        "sign",
        "fence",
        "car",
        "pedestrian",
        "bicyclist",
    ),
    colours=(
        (128, 128, 128),
        (128, 0, 0),
        (192, 192, 128),
        (128, 64, 128),
        (0, 0, 192),
        (128, 128, 0),
        (192, 128, 128),
        (64, 64, 128),
        (64, 0, 128),
        (64, 64, 0),
        (0, 128, 192),
    ),
)

#: The published classes by their colours, and the one of the 11 that each counts as.
COLOURS = {
    (128, 128, 128): "sky",
    (128, 0, 0): "building",
    (192, 0, 128): "building",  # archway
    (0, 128, 64): "building",  # bridge
    (64, 0, 64): "building",  # tunnel
    (64, 192, 0): "building",  # wall
    (192, 192, 128): "pole",
    (0, 0, 64): "pole",  # traffic cone
    (128, 64, 128): "road",
    (128, 0, 192): "road",  # lane marking
    (192, 0, 64): "road",  # other marking
    (0, 0, 192): "pavement",
    (64, 192, 128): "pavement",  # parking block
    (128, 128, 192): "pavement",  # road shoulder
    (128, 128, 0): "tree",
    (192, 192, 0): "tree",  # other vegetation
    (192, 128, 128): "sign",
    (128, 128, 64): "sign",  # text
    (0, 64, 64): "sign",  # traffic light
    (64, 64, 128): "fence",
    (64, 0, 128): "car",
    (64, 128, 192): "car",  # pick-up
    (192, 128, 192): "car",  # truck, bus
    (192, 64, 128): "car",  # train
    (128, 64, 64): "car",  # anything else that moves
    (64, 64, 0): "pedestrian",
    (192, 128, 64): "pedestrian",  # child
    (64, 0, 192): "pedestrian",  # pram, luggage
    (64, 128, 64): "pedestrian",  # animal
    (0, 128, 192): "bicyclist",
    (192, 0, 192): "bicyclist",  # motorcycle
    (0, 0, 0): "",
}

DUSK, DAY, OTHER_DAY = ("0001TP",), ("0006R0", "0016E5"), ("Seq05VD",)
SPLITS = ("train", "val", "test")
PROTOCOLS = ("day2dusk", "official")
NAMES = ("camvid", "CamVid")


class Layout(NamedTuple):
    """How a copy of CamVid is arranged. In names of files, ``NAME`` is the frame's and ``SPLIT`` one of the splits."""

    image: str
    label: str
    values: tuple[int, ...]
    colours: tuple[tuple[int, int, int], ...] | None
    lists: tuple[str, ...]  # files that list the frames of each split
    split: Callable[[Mapping[str, Place]], dict[str, list[str]]]

    def folders(self) -> set[str]:
        """The folders by which it is recognised."""
        tops = (file.split("/")[0] for file in (self.image, self.label))
        return {top.replace("SPLIT", split) for top in tops for split in SPLITS}


def load(root: str | os.PathLike[str], protocol: str = "day2dusk", size: tuple[int, int] | None = None) -> Domains:
    """The four sets of a protocol.

    ``"day2dusk"``: train on two drives by day (0006R0, 0016E5); the dusk frames (0001TP) of the official training split
    are the style and choose among weights; those of the official test split are reported, and the third drive by day
    (Seq05VD) besides.

    ``"official"``: the official splits, with day and dusk in both training and test; style as before.

    The published layout comes without the official splits. They are read from ``train.txt``, ``val.txt`` and
    ``test.txt`` beside its folders or, without these, follow from the names of the frames (:func:`official_split`).
    """
    if protocol not in PROTOCOLS:
        hint = did_you_mean(protocol, PROTOCOLS)
        raise ValueError(f"CamVid has the protocols {quoted(PROTOCOLS)}; got {protocol!r}.{hint}")
    path, names, scenes, splits = _read(find(root), size)

    def some(what: str, chosen: list[str]) -> Subset:
        if not chosen:
            raise ValueError(f"CamVid needs {what}; {path} holds {len(names)} frames, but none of these.")
        return Subset(scenes, tuple(names.index(name) for name in chosen))

    def of(drives: tuple[str, ...], frames: list[str]) -> list[str]:
        return [name for name in frames if name.startswith(drives)]

    style = some("dusk frames (0001TP) in the training split", of(DUSK, splits["train"]))
    if protocol == "official":
        source, validation, test = (some(f"frames in the split {split!r}", splits[split]) for split in SPLITS)
        return Domains(CLASSES, source, style, validation, test)
    return Domains(
        CLASSES,
        source=some("frames by day (0006R0, 0016E5)", of(DAY, names)),
        style=style,
        validation=style,
        test=some("dusk frames (0001TP) in the test split", of(DUSK, splits["test"])),
        others={"day": some("frames of the other day (Seq05VD)", of(OTHER_DAY, names))},
    )


def find(root: str | os.PathLike[str]) -> Path:
    """The folder or the archive with the frames: ``root``, or what is called ``camvid`` or ``camvid.zip`` in it."""
    root = Path(root)
    for path in (root, *(root / name for name in NAMES), *(root / f"{name}.zip" for name in NAMES)):
        if _layout(_members(path)) is not None:
            return path
    expected = ", or ".join(f"{layout.image} and {layout.label}" for layout in LAYOUTS)
    raise ValueError(f"CamVid is expected as a folder or a zip archive with {expected}; {files.contents(root)}")


def official_split(name: str) -> str:
    """The official split of a frame, from its drive and number.

    >>> official_split("0001TP_008520"), official_split("0001TP_008550"), official_split("0016E5_07959")
    ('train', 'test', 'val')
    """
    drive, _, number = name.partition("_")
    frame = int("".join(filter(str.isdigit, number)) or -1)
    if drive in DUSK:
        return "train" if frame < 8550 else "test"
    if drive in OTHER_DAY:
        return "test"
    return "val" if drive == "0016E5" and 7959 <= frame <= 8159 else "train"


def _read(path: Path, size: tuple[int, int] | None) -> tuple[Path, list[str], Files, dict[str, list[str]]]:
    """The names of all frames, the frames, and the names in each of the official splits."""
    members = _members(path)
    layout = _layout(members)
    if layout is None:
        raise ValueError(f"{path} does not hold CamVid.")
    images, labels = _match(layout.image, members), _match(layout.label, members)
    paired = pair_labels(
        images,
        labels,
        lambda name: f"{path}/{layout.image.replace('NAME', name)}",
        lambda name: f"{path}/{layout.label.replace('NAME', name)}",
    )
    splits = layout.split(members)
    for split, names in splits.items():
        for name in names:
            if name not in images:
                file = layout.image.replace("NAME", name)
                raise ValueError(f"The split {split!r} of {path} names the frame {name}; there is no {path}/{file}.")
    return path, sorted(images), Files(*paired, layout.values, layout.colours, size), splits


def _members(path: Path) -> dict[str, Place]:
    """The files of a folder or an archive that could be CamVid's, by their names from its top folder."""
    if path.is_dir():
        folders = sorted({folder for layout in LAYOUTS for folder in layout.folders()})
        lists = sorted({file for layout in LAYOUTS for file in layout.lists})
        found = [file for folder in folders if (path / folder).is_dir() for file in (path / folder).iterdir()]
        found += [path / file for file in lists if (path / file).is_file()]
        places = {file.relative_to(path).as_posix(): Place(str(file)) for file in found}
    elif path.suffix == ".zip" and path.is_file():
        names = [name for name in files.open_archive(str(path)).namelist() if not name.endswith("/")]
        tops = {name.split("/")[0] for name in names if not files.is_hidden(name)}
        inside = tops.pop() + "/" if len(tops) == 1 else ""
        places = {name.removeprefix(inside): Place(str(path), name) for name in names}
    else:
        places = {}
    return {name: place for name, place in places.items() if not files.is_hidden(name)}


def _layout(members: Mapping[str, Place]) -> Layout | None:
    tops = {name.split("/")[0] for name in members}
    return next((layout for layout in LAYOUTS if layout.folders() <= tops), None)


def _match(pattern: str, members: Mapping[str, Place]) -> dict[str, Place]:
    """The files of a pattern by the names of their frames."""
    regex = re.compile(re.escape(pattern).replace("SPLIT", f"(?:{'|'.join(SPLITS)})").replace("NAME", "([^/]+)"))
    return {match[1]: place for name, place in members.items() if (match := regex.fullmatch(name))}


def _splits_from_json(members: Mapping[str, Place]) -> dict[str, list[str]]:
    if "splits.json" not in members:
        return _splits_from_lists(members)
    place = members["splits.json"]
    try:
        splits = json.loads(place.read())["official_split"]
        return {split: list(splits[split]) for split in SPLITS}
    except (ValueError, KeyError, TypeError) as error:
        wanted = "lists of names under 'official_split', 'train', 'val' and 'test'"
        raise ValueError(f"{place} must hold {wanted}; reading it failed with {error!r}.") from None


def _splits_from_folders(members: Mapping[str, Place]) -> dict[str, list[str]]:
    return {split: sorted(_match(f"{split}/NAME.png", members)) for split in SPLITS}


def _splits_from_lists(members: Mapping[str, Place]) -> dict[str, list[str]]:
    """From text files with a frame on each line, with or without path and ending; else from the frames' names."""
    if not all(file in members for file in LISTS):
        names = sorted(_match(PUBLISHED.image, members) or _match(ARCHIVED.image, members))
        return {split: [name for name in names if official_split(name) == split] for split in SPLITS}
    lines = {split: members[f"{split}.txt"].read().decode().splitlines() for split in SPLITS}
    return {split: [PurePosixPath(line.split()[0]).stem for line in lines[split] if line.strip()] for split in SPLITS}


LISTS = tuple(f"{split}.txt" for split in SPLITS)
INDEXED = class_table({**{i: i for i in range(len(CLASSES))}, len(CLASSES): IGNORE})
COLOURED = class_table({i: CLASSES.names.index(name) if name else IGNORE for i, name in enumerate(COLOURS.values())})
ARCHIVED = Layout("images/NAME.jpg", "labels/NAME.png", INDEXED, None, ("splits.json", *LISTS), _splits_from_json)
SEGNET = Layout("SPLIT/NAME.png", "SPLITannot/NAME.png", INDEXED, None, (), _splits_from_folders)
PUBLISHED = Layout(
    "701_StillsRaw_full/NAME.png",
    "LabeledApproved_full/NAME_L.png",
    COLOURED,
    tuple(COLOURS),
    LISTS,
    _splits_from_lists,
)
LAYOUTS = (ARCHIVED, SEGNET, PUBLISHED)
