"""A zip archive, or the folder unpacked from it: ``meta.json``, images and depth images at 320x240 pixels.

Intrinsics are used as published. Whether their principal point counts from the corner or from the middle of the first
pixel is not documented.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from trainonce.recipes.depth.data.readers.frame_files import MILLIMETRES, FrameFiles
from trainonce.recipes.vision import files
from trainonce.recipes.vision.files import Place

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from torch import Tensor


def members(root: str | os.PathLike[str], name: str) -> dict[str, Place] | None:
    """The files of an archive by their names in it; None without one.

    :param root: The archive or the folder itself, or the folder that holds it.
    """
    root = Path(root)
    for path in (root / name, root / f"{name}.zip", root):
        if path.is_dir() and (path / "meta.json").is_file() and path.name == name:
            return files.list_files(path, "")
        if path.is_file() and path.name == f"{name}.zip":
            inside = f"{name}/"
            names = [each for each in files.open_archive(str(path)).namelist() if each.startswith(inside)]
            return {each.removeprefix(inside): Place(str(path), each) for each in names if not each.endswith("/")}
    return None


def frames(root: str | os.PathLike[str], name: str, size: tuple[int, int] | None) -> FrameFiles | None:
    """All frames of an archive whose depth is in millimetres, in the order of their names; None without an archive."""
    found = members(root, name)
    if found is None:
        return None
    meta = read_meta(found)
    images = sorted(name for name in found if name.endswith(".jpg") and "/rgb/" in f"/{name}")
    if not images:
        raise ValueError(f"{found['meta.json']} must have images beside it, rgb/NAME.jpg; there are none.")
    names = {name: (name, f"/{name}".replace("/rgb/", "/depth/")[1:-4] + ".png") for name in images}
    camera = intrinsics(meta, found["meta.json"])
    return FrameFiles(*pairs(found, names), camera.expand(len(images), 3, 3), MILLIMETRES, size=size)


def pairs(found: Mapping[str, Place], names: Mapping[str, tuple[str, str]]) -> tuple[list[Place], list[Place]]:
    """Where images and depth images are, from the names of each pair."""
    for pair in names.values():
        for name in pair:
            if name not in found:
                raise ValueError(f"{found['meta.json']} needs {name} beside it, which is not there. Unpack it again.")
    images, depths = ([found[pair[i]] for pair in names.values()] for i in range(2))
    return images, depths


def read_meta(found: Mapping[str, Place]) -> dict[str, Any]:
    """The content of ``meta.json``."""
    place = found.get("meta.json")
    if place is None:
        some = next(iter(found.values()), "The archive")
        raise ValueError(f"{some} must have meta.json beside it, or above; it is not there. Unpack or copy it again.")
    try:
        meta = json.loads(place.read())
    except ValueError as error:
        raise ValueError(f"{place} must hold JSON; {error}.") from None
    if not isinstance(meta, dict):
        raise ValueError(f"{place} must hold a JSON object; got {type(meta).__name__}.")
    return meta


def intrinsics(meta: Mapping[str, Any], place: Place) -> Tensor:
    """The camera of all images, (3, 3)."""
    try:
        fx, fy, cx, cy = (float(meta["K"][key]) for key in ("fx", "fy", "cx", "cy"))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{place} must give the camera, K: fx, fy, cx and cy; reading it failed: {error!r}.") from None
    return torch.tensor([[fx, 0.0, cx], [0.0, fy, cy], [0.0, 0.0, 1.0]])
