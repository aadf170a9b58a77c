"""Frames in HDF5 files, arranged as UniDepth's training reads them.

Every image is a node of its own, named by its path, that holds the encoded bytes (JPEG or PNG). Lists and cameras are
text in nodes of the first file. Two arrangements:

- sequences (ScanNet, Argoverse 2, Waymo): the list names sequences, ``NAME FRAMES`` on each line; a JSON file gives for
  each sequence the paths of images and depths, and the cameras ``K``, frame by frame;
- images (nuScenes, SUN RGB-D, NYU Depth V2, KITTI): the list names pairs, ``IMAGE DEPTH [FILE]`` on each line; a JSON
  file gives the camera of each image.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from trainonce.recipes.depth.data.readers.frame_files import DepthFormat, FrameFiles
from trainonce.recipes.depth.data.readers.hdf5_nodes import Node
from trainonce.recipes.vision.files import contents

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from trainonce.recipes.depth.data.frames import Range

Matrix = tuple[tuple[float, ...], ...]


class HDF5Layout(NamedTuple):
    """Where a data set is and how it is read.

    :param name: What the data set is called in settings and messages.
    :param file: The file's path; with ``#`` for a number where there are several, counted from 0.
    :param lists: The lists for training and for testing.
    :param side: The JSON file with the cameras, and for sequences with the paths.
    :param range: Depths that count in a metric.
    :param camera: The camera of all images, where there is no JSON file.
    """

    name: str
    file: str
    lists: tuple[str, str]
    side: str
    depth_format: DepthFormat
    range: Range
    sequences: bool = False
    camera: Matrix | None = None


def frames(
    root: str | os.PathLike[str], layout: HDF5Layout, *, training: bool = True, size: tuple[int, int] | None = None
) -> FrameFiles:
    """The frames of a data set to train on, or those to test with.

    Of a sequence, all frames are trained on, and one is tested: the frame that ``keyframe_idx`` names, or the middle
    one. Frames of cameras that are no pinholes (``camera_model``) are left out.
    """
    files = find(root, layout)
    name = layout.lists[0 if training else 1]
    read = _read_sequences if layout.sequences else _read_images
    entries = read(files, layout, name, training=training)
    if not entries:
        raise ValueError(f"{Node(files[0], name)} must list frames; it lists none.")
    images = tuple(Node(_file(files, entry, name), entry.image) for entry in entries)
    depths = tuple(Node(node.file, entry.depth) for node, entry in zip(images, entries, strict=True))
    return FrameFiles(images, depths, torch.stack([entry.camera for entry in entries]), layout.depth_format, size=size)


def is_present(root: str | os.PathLike[str], layout: HDF5Layout) -> bool:
    """Whether the data set's first file is there."""
    return _numbered_path(Path(root), layout.file, 0).is_file()


def find(root: str | os.PathLike[str], layout: HDF5Layout) -> tuple[str, ...]:
    """The data set's files."""
    root = Path(root)
    found: list[str] = []
    while (path := _numbered_path(root, layout.file, len(found))).is_file():
        found.append(str(path))
    if not found:
        raise ValueError(f"The data set {layout.name!r} is expected in {path}; {contents(root)}")
    return tuple(found)


def _numbered_path(root: Path, file: str, number: int) -> Path:
    """Of a data set in one file, further ones (``chunk_idx``) would be called ``NAME_1.hdf5`` and so on."""
    if "#" in file or not number:
        return root / file.replace("#", str(number))
    return root / file.replace(".hdf5", f"_{number}.hdf5")


# Lists and cameras


class FrameEntry(NamedTuple):
    """One frame of a list."""

    image: str
    depth: str
    camera: Tensor
    chunk: int = 0


def _file(files: Sequence[str], entry: FrameEntry, name: str) -> str:
    if not 0 <= entry.chunk < len(files):
        text = f"{Node(files[0], name)} places {entry.image} in the file of number {entry.chunk}"
        raise ValueError(f"{text}; there are {len(files)}, the last is {files[-1]}.")
    return files[entry.chunk]


def _lines(node: Node) -> list[list[str]]:
    return [line.split() for line in node.read().decode("utf-8", "replace").splitlines() if line.strip()]


def _json(node: Node) -> dict[str, Any]:
    try:
        value = json.loads(node.read().decode("utf-8", "replace").rstrip("\0"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{node} must hold JSON; {error}.") from None
    if not isinstance(value, dict):
        raise ValueError(f"{node} must hold a JSON object; got {type(value).__name__}.")
    return value


def _read_sequences(files: Sequence[str], layout: HDF5Layout, name: str, *, training: bool) -> list[FrameEntry]:
    node = Node(files[0], layout.side)
    sequences = _json(node)
    entries: list[FrameEntry] = []
    for line in _lines(Node(files[0], name)):
        sequence = sequences.get(line[0])
        if sequence is None:
            raise ValueError(f"{Node(files[0], name)} names the sequence {line[0]!r}, which {node} does not have.")
        if not isinstance(sequence, dict):
            raise ValueError(f"The sequence {line[0]!r} in {node} must be an object; got {type(sequence).__name__}.")
        entries += _read_sequence(sequence, f"the sequence {line[0]!r} in {node}", training=training)
    return entries


def _read_sequence(sequence: Mapping[str, Any], where: str, *, training: bool) -> list[FrameEntry]:
    """The frames of one sequence. What is given once for a sequence counts for all of its frames."""
    missing = [key for key in ("image", "depth", "K") if not isinstance(sequence.get(key), list)]
    if missing:
        raise ValueError(
            f"{where[0].upper()}{where[1:]} must have lists of image, depth and K; {missing[0]} is missing."
        )
    images, depths, cameras = sequence["image"], sequence["depth"], sequence["K"]
    count = len(images)
    if not count == len(depths) == len(cameras):
        lengths = f"{count}, {len(depths)} and {len(cameras)}"
        raise ValueError(f"{where[0].upper()}{where[1:]} must have as many depths and K as images; it has {lengths}.")
    if not _is_pinhole(sequence.get("camera_model")):
        return []
    chunks = _per_frame(sequence.get("chunk_idx", 0), count)
    chosen = range(count) if training else _key_frames(sequence.get("keyframe_idx"), count, where)
    return [
        FrameEntry(images[i], depths[i], intrinsics(cameras[i], f"{images[i]} of {where}"), int(chunks[i]))
        for i in chosen
    ]


def _per_frame(value: Any, count: int) -> Sequence[Any]:
    return value if isinstance(value, list) else [value] * count


def _is_pinhole(model: Any) -> bool:
    models = model if isinstance(model, list) else [model]
    return all(each is None or str(each).lower() in ("pinhole", "") for each in models)


def _key_frames(value: Any, count: int, where: str) -> list[int]:
    if value is None:
        return [count // 2] if count else []
    chosen = [int(each) for each in (value if isinstance(value, list) else [value])]
    if any(not 0 <= each < count for each in chosen):
        raise ValueError(f"{where[0].upper()}{where[1:]} has {count} frames, from 0; its keyframe_idx is {value}.")
    return chosen


def _read_images(files: Sequence[str], layout: HDF5Layout, name: str, *, training: bool) -> list[FrameEntry]:
    del training  # of images, all are used
    cameras = {} if layout.camera else _json(Node(files[0], layout.side))
    entries = []
    for line in _lines(Node(files[0], name)):
        if len(line) < 2:
            raise ValueError(f"{Node(files[0], name)} must name an image and its depth on each line; got {line[0]!r}.")
        image, depth, *rest = line
        if depth == "None":  # KITTI's lists have images without depth
            continue
        given = layout.camera or cameras.get(image)
        if given is None:
            raise ValueError(f"{Node(files[0], layout.side)} must give the intrinsics of {image}; it does not.")
        number = rest[0] if rest and "#" in layout.file else "0"
        if not number.isdecimal():
            raise ValueError(f"{Node(files[0], name)} must name the number of a file behind {depth}; got {number!r}.")
        chunk = int(number)
        entries.append(FrameEntry(image, depth, intrinsics(given, f"{image} in {Node(files[0], layout.side)}"), chunk))
    return entries


def intrinsics(given: Any, where: str) -> Tensor:
    """3x3 intrinsics of a 3x3 or 3x4 (or 4x4) matrix. Whether they are plausible is checked elsewhere."""
    try:
        matrix = torch.tensor(given, dtype=torch.float32)
    except (TypeError, ValueError):
        raise ValueError(f"The intrinsics of {where} must be a 3x3 matrix of numbers; got {str(given)[:80]}.") from None
    if matrix.ndim != 2 or not 3 <= matrix.shape[0] <= 4 or not 3 <= matrix.shape[1] <= 4:
        raise ValueError(f"The intrinsics of {where} must be a 3x3 or 3x4 matrix; got {tuple(matrix.shape)}.")
    return matrix[:3, :3].contiguous()
