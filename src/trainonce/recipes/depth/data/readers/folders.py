"""Data sets in plain folders, as their own tools or a short script export them.

- ScanNet: ``SCENE/color/N.jpg``, ``SCENE/depth/N.png`` (16 bits, millimetres), ``SCENE/intrinsic/intrinsic_color.txt``;
- SUN RGB-D: ``.../SCENE/image/*.jpg``, ``.../SCENE/depth/*.png`` (16 bits, rotated by 3), ``.../SCENE/intrinsics.txt``;
- Waymo, Argoverse 2 and nuScenes, extracted beforehand: ``SPLIT/SEGMENT/image_CAMERA/N.jpg``,
  ``SPLIT/SEGMENT/depth_CAMERA/N.png`` (16 bits, metres x 256), ``SPLIT/SEGMENT/K_CAMERA.txt``.

Which one a folder holds is seen. ScanNet's and SUN RGB-D's splits are read from lists of scenes beside them: see
:func:`frames`. Where an image is larger than its depth, it is made smaller, and its camera with it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch

from trainonce.recipes.depth.data.readers.frame_files import Coding, Stored
from trainonce.recipes.vision.files import Place, contents, listing

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from torch import Tensor


class Pair(NamedTuple):
    """An image, its depth and the file with its intrinsics, by their paths from the top folder."""

    image: str
    depth: str
    camera: str
    split: str  # the folder that tells the split, or the scene that a list may name


class Kind(NamedTuple):
    """How a kind of folders is arranged.

    :param image: What an image's path looks like. From it, ``pair`` tells the other files.
    :param split: The names that a folder of training frames may have, and one of test frames; none: there are lists.
    """

    name: str
    image: str
    pair: Callable[[re.Match[str], Mapping[str, list[str]]], Pair]
    coding: Coding
    split: tuple[tuple[str, ...], tuple[str, ...]] | None = None


def _scannet(found: re.Match[str], folders: Mapping[str, list[str]]) -> Pair:
    del folders
    scene, number = found["scene"], found["number"]
    camera = f"{scene}/intrinsic/intrinsic_color.txt"
    return Pair(found[0], f"{scene}/depth/{number}.png", camera, scene.split("/")[-1])


def _sun(found: re.Match[str], folders: Mapping[str, list[str]]) -> Pair:
    """A scene has one image and one depth image, whose name may be another."""
    scene = found["scene"]
    inside = folders.get(f"{scene}/depth", [])
    name = inside[0] if len(inside) == 1 else f"{found['number']}.png"
    return Pair(found[0], f"{scene}/depth/{name}", f"{scene}/intrinsics.txt", _from_top(scene))


def _from_top(scene: str) -> str:
    """A scene's path from SUN RGB-D's own top folder, wherever that is."""
    return f"/{scene}".split("/SUNRGBD/")[-1].strip("/")


def _extracted(found: re.Match[str], folders: Mapping[str, list[str]]) -> Pair:
    del folders
    segment, name, number = found["scene"], found["camera"], found["number"]
    return Pair(found[0], f"{segment}/depth_{name}/{number}.png", f"{segment}/K_{name}.txt", segment.split("/")[0])


_ENDING = r"\.(?:jpg|jpeg|png)"
KINDS = (
    Kind("ScanNet", rf"(?P<scene>.+)/color/(?P<number>[^/]+){_ENDING}", _scannet, Coding(1000.0)),
    Kind(
        "extracted",
        rf"(?P<scene>.+)/image_(?P<camera>[^/]+)/(?P<number>[^/]+){_ENDING}",
        _extracted,
        Coding(256.0),
        (("train", "training"), ("val", "validation", "test", "testing")),
    ),
    Kind("SUN RGB-D", rf"(?P<scene>.+)/image/(?P<number>[^/]+){_ENDING}", _sun, Coding(1000.0, rotated=True)),
)
LISTS = (
    ("train.txt", "alltrain.txt", "scannetv2_train.txt"),
    ("val.txt", "test.txt", "alltest.txt", "scannetv2_val.txt"),
)


def frames(
    root: str | os.PathLike[str], *, training: bool | None = None, size: tuple[int, int] | None = None
) -> Stored:
    """The frames of a data set in a folder.

    :param training: Those to train on, or those to test with: by the folder they are in (``training``, ``validation``),
        or by lists of scenes, one on each line, called ``train.txt`` and ``val.txt`` or ``test.txt`` in ``root``.
        None: all.
    """
    root = Path(root)
    files = listing(root, "")
    kind = kind_of(files)
    if kind is None:
        wanted = "SCENE/color/N.jpg (ScanNet), SPLIT/SEGMENT/image_CAMERA/N.jpg or SCENE/image/NAME.jpg (SUN RGB-D)"
        raise ValueError(f"{root} must hold images as {wanted}; {contents(root)}")
    matches = (re.fullmatch(kind.image, name) for name in files)
    folders = _by_folder(files)
    pairs = sorted((kind.pair(match, folders) for match in matches if match), key=lambda pair: _natural(pair.image))
    if training is not None:
        pairs = _split(root, kind, pairs, training=training)
    for pair in pairs:
        for what, name in (("depth", pair.depth), ("intrinsics", pair.camera)):
            if name not in files:
                raise ValueError(f"The image {files[pair.image]} has no {what}: there is no {root / name}.")
    cameras = {name: camera_in(files[name]) for name in {pair.camera for pair in pairs}}
    return Stored(
        [files[pair.image] for pair in pairs],
        [files[pair.depth] for pair in pairs],
        torch.stack([cameras[pair.camera] for pair in pairs]),
        kind.coding,
        size=size,
        align=True,
    )


def present(root: str | os.PathLike[str]) -> bool:
    """Whether a folder holds a data set of a known kind."""
    root = Path(root)
    return kind_of(path.relative_to(root).as_posix() for path in root.rglob("*.*")) is not None


def kind_of(files: Iterable[str]) -> Kind | None:
    """The kind that the first image of any kind is of."""
    return next((kind for name in files for kind in KINDS if re.fullmatch(kind.image, name)), None)


def _split(root: Path, kind: Kind, pairs: Sequence[Pair], *, training: bool) -> list[Pair]:
    """Those of a split, by folder or by list."""
    which = 0 if training else 1
    if kind.split is not None:
        wanted = kind.split[which]
        text = f"{root} must hold frames in the folder {' or '.join(wanted)}"
    else:
        path = next((root / name for name in LISTS[which] if (root / name).is_file()), None)
        if path is None:
            rule = f"{root} must have a list of its scenes, {' or '.join(LISTS[which])}"
            raise ValueError(f"{rule}; {contents(root)}")
        wanted = tuple(_from_top(line.strip()) for line in path.read_text().splitlines() if line.strip())
        text = f"{path} must name scenes that are there"
    chosen = set(wanted)
    kept = [pair for pair in pairs if pair.split in chosen]
    if not kept:
        raise ValueError(f"{text}; none is. The first image is {pairs[0].image}.")
    return kept


def camera_in(place: Place) -> Tensor:
    """3x3 intrinsics in a text file of 3x3, 3x4 or 4x4 numbers, or of fx, fy, cx and cy, whatever separates them."""
    text = place.read().decode("utf-8", "replace")
    try:
        numbers = [float(word) for word in re.split(r"[\s,;\[\]]+", text) if word]
    except ValueError as error:
        raise ValueError(f"{place} must hold numbers, the intrinsics; {error}.") from None
    if len(numbers) == 4:
        fx, fy, cx, cy = numbers
        return torch.tensor([[fx, 0.0, cx], [0.0, fy, cy], [0.0, 0.0, 1.0]])
    shape = {9: (3, 3), 12: (3, 4), 16: (4, 4)}.get(len(numbers))
    if shape is None:
        raise ValueError(f"{place} must hold the intrinsics, 3x3, 3x4 or 4x4 numbers; it holds {len(numbers)}.")
    return torch.tensor(numbers).view(shape)[:3, :3].contiguous()


def _by_folder(files: Iterable[str]) -> dict[str, list[str]]:
    """The names of files by the folder they are in."""
    folders: dict[str, list[str]] = {}
    for path in files:
        folder, _, name = path.rpartition("/")
        folders.setdefault(folder, []).append(name)
    return folders


def _natural(name: str) -> list[tuple[int, str]]:
    """Numbers in names by their value: 2 before 10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
