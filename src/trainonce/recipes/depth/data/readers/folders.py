"""Frames in plain folders, as a data set's own tools or a short script export them.

Which layout a folder has is recognised by its files. Splits are folders, or lists of scenes: see :func:`frames`. Where
an image is larger than its depth, it is made smaller, and its intrinsics are scaled with it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch

from trainonce.recipes.depth.data.readers.frame_files import LIDAR, DepthFormat, FrameFiles
from trainonce.recipes.vision.files import Place, contents, list_files

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from torch import Tensor


class Pair(NamedTuple):
    """An image, its depth and the file with its intrinsics, by their paths from the top folder."""

    image: str
    depth: str
    camera: str
    split: str  # the folder of the split, or the scene that a list may name

    @property
    def sequence(self) -> str:
        """What it is a frame of: the folder of its image, of one scene or one camera of a segment."""
        return self.image.rpartition("/")[0]


class FolderLayout(NamedTuple):
    """How the folders of a data set are arranged.

    :param image: A regular expression for an image's path. From a match, ``pair`` gives the other files.
    :param split: The names that a folder of training frames may have, and one of test frames; None: there are lists.
    :param scene_name: The scene that a line of a list names.
    """

    name: str
    image: str
    pair: Callable[[re.Match[str], Mapping[str, list[str]]], Pair]
    depth_format: DepthFormat
    split: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    scene_name: Callable[[str], str] = lambda line: line.strip("/")


def _driving_pair(found: re.Match[str], folders: Mapping[str, list[str]]) -> Pair:
    del folders
    segment, name, number = found["scene"], found["camera"], found["number"]
    return Pair(found[0], f"{segment}/depth_{name}/{number}.png", f"{segment}/K_{name}.txt", segment.split("/")[0])


ENDING = r"\.(?:jpg|jpeg|png)"
#: Waymo, Argoverse 2 and nuScenes, extracted beforehand: ``SPLIT/SEGMENT/image_CAMERA/N.jpg``,
#: ``SPLIT/SEGMENT/depth_CAMERA/N.png`` (16 bits, metres x 256), ``SPLIT/SEGMENT/K_CAMERA.txt``.
DRIVING = FolderLayout(
    "extracted",
    rf"(?P<scene>.+)/image_(?P<camera>[^/]+)/(?P<number>[^/]+){ENDING}",
    _driving_pair,
    LIDAR,
    (("train", "training"), ("val", "validation", "test", "testing")),
)
LISTS = (
    ("train.txt", "alltrain.txt", "scannetv2_train.txt"),
    ("val.txt", "test.txt", "alltest.txt", "scannetv2_val.txt"),
)


def frames(
    root: str | os.PathLike[str],
    layouts: Sequence[FolderLayout],
    *,
    training: bool | None = None,
    sequences: bool = False,
    size: tuple[int, int] | None = None,
) -> FrameFiles:
    """The frames of a data set in a folder.

    :param layouts: Those that the folder may have.
    :param training: Those to train on, or those to test with: by the folder they are in (``training``, ``validation``),
        or by lists of scenes, one on each line, called ``train.txt`` and ``val.txt`` or ``test.txt`` in ``root``.
        None: all.
    :param sequences: Of a test set, only the middle frame of each sequence (a scene, or one camera of a segment), as of
        the sequences in HDF5 files.
    """
    root = Path(root)
    files = list_files(root, "")
    layout = find_layout(files, layouts)
    if layout is None:
        wanted = "SCENE/color/N.jpg (ScanNet), SPLIT/SEGMENT/image_CAMERA/N.jpg or SCENE/image/NAME.jpg (SUN RGB-D)"
        raise ValueError(f"{root} must hold images as {wanted}; {contents(root)}")
    matches = (re.fullmatch(layout.image, name) for name in files)
    folders = _by_folder(files)
    pairs = sorted(
        (layout.pair(match, folders) for match in matches if match), key=lambda pair: _natural_key(pair.image)
    )
    if training is not None:
        pairs = _select_split(root, layout, pairs, training=training)
    if sequences and training is False:
        pairs = _middle_frames(pairs)
    for pair in pairs:
        for what, name in (("depth", pair.depth), ("intrinsics", pair.camera)):
            if name not in files:
                raise ValueError(f"The image {files[pair.image]} has no {what}: there is no {root / name}.")
    cameras = {name: read_intrinsics(files[name]) for name in {pair.camera for pair in pairs}}
    return FrameFiles(
        [files[pair.image] for pair in pairs],
        [files[pair.depth] for pair in pairs],
        torch.stack([cameras[pair.camera] for pair in pairs]),
        layout.depth_format,
        size=size,
        align=True,
    )


def is_present(root: str | os.PathLike[str], layouts: Sequence[FolderLayout]) -> bool:
    """Whether a folder holds a data set in one of the layouts."""
    root = Path(root)
    names = (path.relative_to(root).as_posix() for path in root.rglob("*.*"))
    return find_layout(names, layouts) is not None


def find_layout(files: Iterable[str], layouts: Sequence[FolderLayout]) -> FolderLayout | None:
    """The layout of the first file that is an image in any of them."""
    return next((layout for name in files for layout in layouts if re.fullmatch(layout.image, name)), None)


def _select_split(root: Path, layout: FolderLayout, pairs: Sequence[Pair], *, training: bool) -> list[Pair]:
    """The pairs of a split, by folder or by list."""
    which = 0 if training else 1
    if layout.split is not None:
        wanted = layout.split[which]
        text = f"{root} must hold frames in the folder {' or '.join(wanted)}"
    else:
        path = next((root / name for name in LISTS[which] if (root / name).is_file()), None)
        if path is None:
            rule = f"{root} must have a list of its scenes, {' or '.join(LISTS[which])}"
            raise ValueError(f"{rule}; {contents(root)}")
        wanted = tuple(layout.scene_name(line.strip()) for line in path.read_text().splitlines() if line.strip())
        text = f"{path} must name scenes that are there"
    chosen = set(wanted)
    kept = [pair for pair in pairs if pair.split in chosen]
    if not kept:
        raise ValueError(f"{text}; none is. The first image is {pairs[0].image}.")
    return kept


def _middle_frames(pairs: Sequence[Pair]) -> list[Pair]:
    """Of each sequence the frame in the middle."""
    sequences: dict[str, list[Pair]] = {}
    for pair in pairs:
        sequences.setdefault(pair.sequence, []).append(pair)
    return [frames[len(frames) // 2] for frames in sequences.values()]


def read_intrinsics(place: Place) -> Tensor:
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


def _natural_key(name: str) -> list[tuple[int, str]]:
    """Numbers in names by their value: 2 before 10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
