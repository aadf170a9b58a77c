"""A little made-up data in the layouts of Cityscapes, ACDC and CamVid, to try a command or a test with.

Sky above, a row of things below it, road and pavement at the bottom. Every class has a colour of its own, so that a
small network can learn them; conditions darken or grey it. All of it is decided by the scene's number.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from trainonce.recipes.segmentation.data import camvid, cityscapes
from trainonce.recipes.vision.encode import encode, write_file

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from trainonce.recipes.segmentation.data.scenes import Classes

    Folder = str | os.PathLike[str]
    Size = tuple[int, int]

# Scenes

THINGS = (
    "building",
    "vegetation",
    "car",
    "pole",
    "person",
    "fence",
    "traffic sign",
    "rider",
    "wall",
    "traffic light",
    "truck",
    "bus",
    "train",
    "motorcycle",
    "bicycle",
)
CAMVID_THINGS = ("building", "tree", "car", "pole", "pedestrian", "fence", "sign", "bicyclist")
VOID = ""

#: How a condition looks: a factor, and a grey level mixed in by half.
LOOKS = {
    "day": (1.0, None),
    "dusk": (0.4, None),
    "fog": (1.0, 190),
    "night": (0.3, None),
    "rain": (0.7, 90),
    "snow": (1.1, 220),
}


def street(
    number: int, size: Size, things: Sequence[str], ground: Sequence[str], classes: Classes, condition: str = "day"
) -> tuple[Tensor, Tensor]:
    """An image and its label: uint8 (height, width, 3), and the classes by number, -1 where there is none.

    The things stand next to each other, and which comes first depends on the number: two scenes show all of them.
    """
    height, width = size
    rng = torch.Generator().manual_seed(number)
    label = torch.full(size, classes.names.index("sky"))
    horizon, kerb, bonnet = height // 3, 2 * height // 3, height - max(2, height // 16)
    slots = min(len(things), 8)
    for slot in range(slots):
        name = things[(slot + number * slots) % len(things)]
        top = horizon - int(torch.randint(height // 6 + 1, (), generator=rng))
        label[top:kerb, slot * width // slots : (slot + 1) * width // slots] = classes.names.index(name)
    for i, name in enumerate(ground):
        label[kerb:, i * width // len(ground) :] = classes.names.index(name)
    label[bonnet:] = -1
    colours = torch.tensor([*classes.colours, (20, 20, 20)], dtype=torch.float)[label]
    image = colours + 8 * torch.randn(colours.shape, generator=rng)
    factor, grey = LOOKS[condition]
    image = image * factor if grey is None else (image * factor + grey) / 2
    return image.round().clamp(0, 255).to(torch.uint8), label


def german(number: int, size: Size, condition: str = "day") -> tuple[Tensor, Tensor]:
    """A scene with the classes of Cityscapes."""
    return street(number, size, THINGS, ("road", "sidewalk", "terrain"), cityscapes.CLASSES, condition)


def english(number: int, size: Size, condition: str = "day") -> tuple[Tensor, Tensor]:
    """A scene with the classes of CamVid."""
    return street(number, size, CAMVID_THINGS, ("road", "pavement"), camvid.CLASSES, condition)


def save(path: Path, pixels: Tensor) -> None:
    """Write an image, or a label, as the path's ending says."""
    write_file(path, encode(pixels.to(torch.uint8), path.suffix))


def stored(label: Tensor, kind: str) -> Tensor:
    """A label of classes as Cityscapes stores them. In ids, every one that means nothing occurs."""
    if kind == "labelTrainIds":
        return label.where(label >= 0, torch.tensor(255))
    ids = torch.tensor(cityscapes.IDS)[label]
    nothing = torch.tensor([i for i in range(34) if i not in cityscapes.IDS])
    return ids.where(label >= 0, nothing[torch.arange(label.shape[1]) % len(nothing)])


# Layouts


def write_paper(root: Folder, flat: bool = False, size: Size | None = None) -> None:
    """Write Cityscapes and ACDC side by side, the latter as published or flattened."""
    write_cityscapes(Path(root, "cityscapes"), size=size or (64, 128))
    write_acdc(Path(root, "acdc"), flat=flat, size=size or (54, 96))


def write_cityscapes(
    root: Folder, labels: str = "labelIds", size: Size = (64, 128), train: int = 3, val: int = 3
) -> Path:
    """Write two cities for each split, with so many images each, and files that a reader leaves alone."""
    number = 0
    for split, cities, count in (("train", ("aachen", "zurich"), train), ("val", ("lindau", "munster"), val)):
        for city in cities:
            for frame in range(count):
                name = f"{city}_{frame:06d}_000019"
                image, label = german(number, size)
                truth = Path(root) / "gtFine" / split / city
                save(Path(root) / "leftImg8bit" / split / city / f"{name}_leftImg8bit.png", image)
                save(truth / f"{name}_gtFine_{labels}.png", stored(label, labels))
                save(truth / f"{name}_gtFine_color.png", image)
                save(truth / f"{name}_gtFine_instanceIds.png", label.clamp(min=0))
                (truth / f"{name}_gtFine_polygons.json").write_text("{}")
                (truth / ".DS_Store").write_bytes(b"\0")
                (truth / f"._{name}_gtFine_{labels}.png").write_bytes(b"\0")
                number += 1
    return Path(root)


def write_acdc(
    root: Folder, flat: bool = False, labels: str = "labelTrainIds", size: Size = (54, 96), frames: int = 2
) -> Path:
    """Write four conditions with two recordings in each split, of which one goes on in a second chapter.

    With references, and without labels for the test split, as published.
    """
    number = 100
    for c, condition in enumerate(("fog", "night", "rain", "snow")):
        for s, split in enumerate(("train", "val", "test")):
            base = 100 * (s + 1) + 10 * c
            for recording in (f"GOPR{base:04d}", f"GP01{base:04d}", f"GOPR{base + 1:04d}"):
                for frame in range(frames):
                    name = f"{recording}_frame_{frame:06d}"
                    image, label = german(number, size, condition)
                    within = Path(split) if flat else Path(condition, split, recording)
                    other = Path(f"{split}_ref") if flat else Path(condition, f"{split}_ref", recording)
                    save(Path(root) / "rgb_anon" / within / f"{name}_rgb_anon.png", image)
                    save(Path(root) / "rgb_anon" / other / f"{name}_rgb_ref_anon.png", image)
                    if split != "test":
                        save(Path(root) / "gt" / within / f"{name}_gt_{labels}.png", stored(label, labels))
                        save(Path(root) / "gt" / within / f"{name}_gt_labelColor.png", image)
                    number += 1
    return Path(root)


def camvid_frames(count: int) -> Iterator[tuple[str, str, str]]:
    """Names of frames with their conditions and official splits: so many of each, by drive."""
    for i in range(count):
        yield f"0001TP_{6690 + 30 * i:06d}", "dusk", "train"
        yield f"0001TP_{8550 + 30 * i:06d}", "dusk", "test"
        yield f"0006R0_f{930 + 30 * i:05d}", "day", "train"
        yield f"0016E5_{390 + 30 * i:05d}", "day", "train"
        yield f"0016E5_{7959 + 2 * i:05d}", "day", "val"
        yield f"Seq05VD_f{30 * i:05d}", "day", "test"


#: The layouts of CamVid that :func:`write_camvid` knows.
LAYOUTS = ("archive", "zip", "segnet", "original")


def write_camvid(
    root: Folder, layout: str = "archive", size: Size = (48, 64), frames: int = 3, lists: bool = True
) -> Path:
    """Write CamVid with ``6 * frames`` frames.

    :param lists: Whether the original layout has its splits in text files.
    """
    root = Path(root)
    named = sorted(camvid_frames(frames))
    splits = {split: [name for name, _, s in named if s == split] for split in ("train", "val", "test")}
    folder = root / "unpacked" / "camvid" if layout == "zip" else root
    for number, (name, condition, split) in enumerate(named):
        image, label = english(number, size, condition)
        if layout == "original":
            save(root / "701_StillsRaw_full" / f"{name}.png", image)
            save(root / "LabeledApproved_full" / f"{name}_L.png", coloured(label))
        elif layout == "segnet":
            save(root / split / f"{name}.png", image)
            save(root / f"{split}annot" / f"{name}.png", label.where(label >= 0, torch.tensor(11)))
        else:
            save(folder / "images" / f"{name}.jpg", image)
            save(folder / "labels" / f"{name}.png", label.where(label >= 0, torch.tensor(11)))
    if layout == "original" and lists:
        for split, names in splits.items():
            (root / f"{split}.txt").write_text("".join(f"CamVid/{split}/{name}.png\n" for name in names))
    if layout in ("archive", "zip"):
        (folder / "splits.json").write_text(json.dumps({"official_split": splits}))
    if layout == "zip":
        with zipfile.ZipFile(root / "camvid.zip", "w") as archive:
            for file in sorted(folder.rglob("*")):
                archive.write(file, Path("camvid") / file.relative_to(folder))
                if file.is_file():
                    file.unlink()
        for empty in (folder / "images", folder / "labels", folder, folder.parent):
            empty.rmdir()
    return root


def coloured(label: Tensor) -> Tensor:
    """A label of CamVid's classes in published colours; every second column in the last colour of its class."""
    colours = list(camvid.COLOURS)
    of_class = [[c for c in colours if camvid.COLOURS[c] == name] for name in (*camvid.CLASSES.names, VOID)]
    first, last = (torch.tensor([group[i] for group in of_class])[label] for i in (0, -1))
    even = (torch.arange(label.shape[1]) % 2 == 0)[None, :, None]
    return first.where(even, last)
