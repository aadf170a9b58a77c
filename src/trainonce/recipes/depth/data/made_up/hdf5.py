"""Made-up data in HDF5 files, as UniDepth's training reads them.

Each function returns what was written, as it should be read again: the frames that are trained on (``train``) and those
that are tested with (``test``). Among the files are cameras of 3x4 numbers, depth in three channels, several files.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from trainonce.extras import require
from trainonce.recipes.depth.data.made_up.frames import (
    NAMES,
    SIZE,
    Written,
    colour,
    depth16,
    depth24,
    expected,
    recordings,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Mapping, Sequence

    from trainonce.recipes.depth.data.frames import Frame

    Folder = str | os.PathLike[str]


def put(file: Any, path: str, content: bytes | str) -> None:
    """Write the bytes of an encoded image, or a text, as a node."""
    data = content.encode() if isinstance(content, str) else content
    file.create_dataset(path, data=torch.frombuffer(bytearray(data), dtype=torch.uint8).numpy())


def write_sequences(
    path: Path,
    lists: Mapping[str, Sequence[str]],
    side: str,
    scale: float,
    frames: Mapping[str, Sequence[Frame]],
    extra: Mapping[str, Mapping[str, Any]] | None = None,
    three: Collection[tuple[str, int]] = (),
) -> None:
    """Write one HDF5 file of sequences.

    :param lists: For each list, its sequences.
    :param frames: For each sequence, its frames.
    :param extra: For each sequence, further entries.
    :param three: (sequence, number) of frames whose depth has three channels; their images are grey.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with require("h5py", "h5py", "vision").File(path, "w") as file:
        table: dict[str, dict[str, Any]] = {}
        for name, members in frames.items():
            entry = table[name] = {"image": [], "depth": [], "K": [], "cam2w": [], **(extra or {}).get(name, {})}
            for number, frame in enumerate(members):
                odd = (name, number) in three
                image, depth = f"/{name}/color/{number}.png", f"/{name}/depth/{number}.png"
                put(file, image, colour(frame.image, grey=odd))
                put(file, depth, depth24(frame.depth, scale) if odd else depth16(frame.depth, scale))
                entry["image"].append(image)
                entry["depth"].append(depth)
                entry["K"].append(frame.camera.tolist())
                entry["cam2w"].append(torch.eye(4).tolist())
        put(file, side, json.dumps(table))
        for name, sequences in lists.items():
            put(file, name, "\n".join(f"{each} {len(frames[each])}" for each in sequences) + "\n")


def write_images(
    paths: Sequence[Path],
    lists: Mapping[str, Sequence[int]],
    side: str,
    scale: float,
    frames: Sequence[Frame],
    *,
    chunked: bool = False,
    third: str = "",
    ending: str = ".png",
) -> None:
    """Write HDF5 files of single images.

    :param lists: For each list, its images by number.
    :param chunked: Whether the lists tell which file an image is in.
    :param third: What else is on each line.
    """
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
    files = [require("h5py", "h5py", "vision").File(path, "w") for path in paths]
    cameras, lines = {}, []
    for number, frame in enumerate(frames):
        chunk = number % len(files)
        image, depth = f"images/{number:04d}{ending}", f"depths/{number:04d}.png"
        put(files[chunk], image, colour(frame.image, ending))
        put(
            files[chunk],
            depth,
            depth24(frame.depth, scale, legacy=True) if number == 0 else depth16(frame.depth, scale),
        )
        wide = torch.cat([frame.camera, torch.zeros(3, 1)], 1) if number % 2 else frame.camera
        cameras[image] = wide.tolist()
        lines.append(f"{image} {depth}" + (f" {chunk}" if chunked else third))
    if side:
        put(files[0], side, json.dumps(cameras))
    for name, numbers in lists.items():
        put(files[0], name, "\n".join(lines[number] for number in numbers))
    for file in files:
        file.close()


def write_scannet(root: Folder, size: tuple[int, int] = SIZE) -> Written:
    """Write ``ScanNetS.hdf5``; one frame is grey with 24 bits of depth, one has almost no depth."""
    frames, lists = _sequences("scannet", ("train.txt", "test.txt"), size)
    three = {("scene0000_00", 1)}
    write_sequences(Path(root, "ScanNetS.hdf5"), lists, "sequences.json", 1000, frames, three=three)
    return expected("scannet", size)


def write_argoverse2(root: Folder, size: tuple[int, int] = SIZE) -> Written:
    """Write ``AV2_viz.hdf5``; one of the sequences to test with names its key frame."""
    frames, lists = _sequences("argoverse2", ("train.txt", "val.txt"), size)
    extra = {lists["val.txt"][0]: {"keyframe_idx": 1}}
    write_sequences(Path(root, "AV2_viz.hdf5"), lists, "sequences_clean.json", 256, frames, extra)
    return expected("argoverse2", size)


def write_waymo(root: Folder, size: tuple[int, int] = SIZE) -> Written:
    """Write ``Waymo_viz.hdf5``, with a sequence of a fish-eye camera, which is left out."""
    frames, lists = _sequences("waymo", ("training.txt", "validation.txt"), size)
    first = lists["training.txt"][0]
    frames["fisheye"] = frames[first][:1]
    lists["training.txt"].append("fisheye")
    extra: dict[str, dict[str, Any]] = {first: {"chunk_idx": [0] * 3}, "fisheye": {"camera_model": ["Fisheye624"]}}
    write_sequences(Path(root, "Waymo_viz.hdf5"), lists, "sequences.json", 256, frames, extra)
    return expected("waymo", size)


def _sequences(
    name: str, lists: tuple[str, str], size: tuple[int, int]
) -> tuple[dict[str, list[Frame]], dict[str, list[str]]]:
    """The frames of each sequence, and the sequences of each list."""
    made = recordings(name, size)
    named = {lists[0]: [r.name for r in made if r.training], lists[1]: [r.name for r in made if not r.training]}
    return {r.name: r.frames for r in made}, named


def write_nuscenes(root: Folder, size: tuple[int, int] = SIZE) -> Written:
    """Write two files; every other camera has 3x4 numbers; the first depth has three channels."""
    found = expected("nuscenes", size)
    paths = [Path(root, "nuscenes", f"nuscenes_{number}.hdf5") for number in range(2)]
    count, total = len(found["train"]), len(found["train"]) + len(found["test"])
    lists = {"train.txt": range(count), "val.txt": range(count, total)}
    write_images(paths, lists, "intrinsics.json", 256, found["train"] + found["test"], chunked=True)
    return found


def write_sunrgbd(root: Folder, size: tuple[int, int] = SIZE) -> Written:
    """Write ``SUNRGB.hdf5``."""
    found = expected("sunrgbd", size)
    lists = {"alltrain.txt": range(2), "alltest.txt": range(2, 5)}
    write_images([Path(root, "SUNRGB.hdf5")], lists, "intrinsics.json", 1000, found["train"] + found["test"])
    return found


HDF5 = dict(zip(NAMES, (write_scannet, write_argoverse2, write_waymo, write_nuscenes, write_sunrgbd), strict=True))


def write_hdf5(root: Folder, size: tuple[int, int] = SIZE) -> dict[str, Written]:
    """Write all five large data sets in HDF5."""
    return {name: write(root, size) for name, write in HDF5.items()}
