"""Made-up data in folders, each data set in its own; what the functions return is as in ``hdf5``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from trainonce.recipes.depth.data.made_up.frames import (
    SIZE,
    Written,
    colour,
    depth16,
    expected,
    recordings,
    scannet,
)
from trainonce.recipes.vision.encode import write_file

if TYPE_CHECKING:
    import os

    from torch import Tensor

    Folder = str | os.PathLike[str]


def matrix(camera: Tensor, size: int = 3) -> str:
    """Intrinsics as text, 3x3 or 4x4."""
    whole = torch.eye(size)
    whole[:3, :3] = camera
    return "\n".join(" ".join(f"{value:.6f}" for value in row) for row in whole.tolist()) + "\n"


def write_scannet_folder(root: Folder, size: tuple[int, int] = SIZE) -> Written:
    """Write images with twice the pixels of their depth in each direction, numbered from 8."""
    lists: dict[str, list[str]] = {"train": [], "val": []}
    for made in scannet(size):
        scene = Path(root, "scans", made.name)
        whole = made.frames[0].camera * torch.tensor([[2.0], [2.0], [1.0]])
        write_file(scene / "intrinsic/intrinsic_color.txt", matrix(whole, 4))
        for number, (frame, image) in enumerate(zip(made.frames, made.large, strict=True), 8):
            write_file(scene / f"color/{number}.jpg", colour(image, ".jpg"))
            write_file(scene / f"depth/{number}.png", depth16(frame.depth, 1000))
            write_file(scene / f"pose/{number}.txt", "-inf " * 16)
        lists["train" if made.training else "val"].append(made.name)
    for split, scenes in lists.items():
        write_file(Path(root, f"{split}.txt"), "\n".join(scenes) + "\n")
    return expected("scannet", size)


def write_extracted_folder(root: Folder, size: tuple[int, int] = SIZE, name: str = "waymo") -> Written:
    """Write two cameras with one segment each for training and validation."""
    splits = ("training", "validation") if name == "waymo" else ("train", "val")
    for made in recordings(name, size):
        segment, camera = made.name.split("/")
        folder = Path(root, splits[0 if made.training else 1], segment)
        write_file(folder / f"K_{camera}.txt", matrix(made.frames[0].camera))
        for number, frame in enumerate(made.frames):
            write_file(folder / f"image_{camera}/{number:03d}.png", colour(frame.image))
            write_file(folder / f"depth_{camera}/{number:03d}.png", depth16(frame.depth, 256))
    return expected(name, size)


def write_sun_folder(root: Folder, size: tuple[int, int] = SIZE) -> Written:
    """Write scenes whose depth has another name than their image and rotated bits; the lists have its long paths."""
    lists: dict[bool, list[str]] = {True: [], False: []}
    for number, made in enumerate(recordings("sunrgbd", size)):
        scene, (frame,) = Path(root, "SUNRGBD", made.name), made.frames
        write_file(scene / "image/0000001.png", colour(frame.image))
        write_file(scene / f"depth/0000{number}-depth.png", depth16(frame.depth, 1000, rotated=True))
        write_file(scene / "depth_bfx/0000001.png", depth16(frame.depth * 0, 1000, rotated=True))
        write_file(scene / "intrinsics.txt", " ".join(f"{value:.6f}" for value in frame.camera.flatten().tolist()))
        lists[made.training].append(f"/n/fs/sun3d/data/SUNRGBD/{made.name}")
    write_file(Path(root, "alltrain.txt"), "\n".join(lists[True]) + "\n")
    write_file(Path(root, "alltest.txt"), "/\n".join(lists[False]) + "\n")
    return expected("sunrgbd", size)


def write_folders(root: Folder, size: tuple[int, int] = SIZE) -> dict[str, Written]:
    """Write all five large data sets, each in its folder."""
    root = Path(root)
    driving = {name: write_extracted_folder(root / name, size, name) for name in ("argoverse2", "waymo", "nuscenes")}
    indoor = {
        "scannet": write_scannet_folder(root / "scannet", size),
        "sunrgbd": write_sun_folder(root / "sunrgbd", size),
    }
    return indoor | driving
