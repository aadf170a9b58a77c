"""Small real data sets, each a zip archive or the folder in it: NYU Depth V2, TUM RGB-D, 7-Scenes, at 320x240 pixels.

- ``nyuv2_320``: ``rgb/NNNN.jpg``, ``depth/NNNN.png`` (8 bits) and ``meta.json`` with the official split and the camera;
- ``tum_fr1_320``: ``SEQUENCE/rgb/TIME.jpg``, ``SEQUENCE/depth/TIME.png`` (millimetres) and ``meta.json``;
- ``sevenscenes_redkitchen_320``: ``rgb/NAME.jpg``, ``depth/NAME.png`` (millimetres) and ``meta.json``.

Cameras are used as published: whether their centre counts from the corner or the middle of the first pixel is not said.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from trainonce.recipes.depth.data.frames import Examined, Frames, Range, Remembered, Sets
from trainonce.recipes.depth.data.readers.frame_files import Coding, Stored
from trainonce.recipes.vision import files
from trainonce.recipes.vision.files import Place
from trainonce.text import did_you_mean, quoted

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from torch import Tensor

NYU, TUM, KITCHEN = "nyuv2_320", "tum_fr1_320", "sevenscenes_redkitchen_320"
PROTOCOLS = ("nyu",)
METRES = Range(0.005, 10.0)
MILLIMETRES = Coding(1000.0)
#: Within the white frame around NYU's images. Everything else is cut off, in training and in tests.
WINDOW = (22, 235, 20, 300)
HELD_OUT = 0.125  # the part of NYU's training images that chooses among weights


def load(root: str | os.PathLike[str], protocol: str = "nyu", size: tuple[int, int] | None = None) -> Sets:
    """The sets of a protocol.

    ``"nyu"``: train on most of the 795 training images of NYU Depth V2, choose by the rest of them, test on the 654
    test images; TUM and 7-Scenes, where their archives are beside it, are reported on and never trained on.

    NYU's depth has 8 bits: a step is 39 mm.

    :param root: The folder with the archives, or with what was unpacked from them.
    """
    if protocol not in PROTOCOLS:
        hint = did_you_mean(protocol, PROTOCOLS)
        raise ValueError(f"There is the protocol {quoted(PROTOCOLS)}; got {protocol!r}.{hint}")
    training, validation, test = nyu(root, size)
    others: dict[str, Frames] = {}
    if (kitchen := members(root, KITCHEN)) is not None:
        others["7scenes"] = flat(kitchen, size)
    if (offices := members(root, TUM)) is not None:
        others["tum"] = flat(offices, size)
    examined = {name: Examined(frames, METRES) for name, frames in sorted(others.items())}
    return Sets({"nyu": training}, Examined(validation, METRES), Examined(test, METRES), examined)


def remembered(root: str | os.PathLike[str], protocol: str = "nyu", size: tuple[int, int] | None = None) -> Sets:
    """As :func:`load`. Frames of archives are read once in a process, however many trainings it does: about 1 GB."""
    names = (NYU, TUM, KITCHEN)
    paths = [Path(root), *(Path(root) / f"{name}.zip" for name in names)]
    packed = tuple((str(path), path.stat().st_mtime_ns) for path in paths if path.is_file())
    unpacked = Path(root).name in names or any((Path(root) / name).is_dir() for name in names)
    return load(root, protocol, size) if unpacked or not packed else _remembered(str(root), protocol, size, packed)


@functools.lru_cache(maxsize=1)
def _remembered(root: str, protocol: str, size: tuple[int, int] | None, packed: tuple[tuple[str, int], ...]) -> Sets:
    sets = load(root, protocol, size)
    kept = {name: dataclasses.replace(e, frames=Remembered(e.frames)) for name, e in sets.examined().items()}
    training = {name: Remembered(frames) for name, frames in sets.training.items()}
    return Sets(training, kept.pop("validation"), kept.pop("test"), kept)


# The data sets


def nyu(root: str | os.PathLike[str], size: tuple[int, int] | None = None) -> tuple[Stored, Stored, Stored]:
    """To train on, to choose by, to test with."""
    found = members(root, NYU)
    if found is None:
        what = f"NYU Depth V2 is expected as {NYU}.zip, or the folder in it, with meta.json, rgb/ and depth/"
        raise ValueError(f"{what}; {files.contents(Path(root))}")
    meta = _meta(found)
    splits = {name: sorted(_list(meta, name, found["meta.json"])) for name in ("train", "test")}
    held_out = set(spread_runs(splits["train"], HELD_OUT))
    kept = [number for number in splits["train"] if number not in held_out]
    scale, offset = (
        float(meta.get(key, value)) for key, value in (("depth_scale_m", 9.99547 / 255), ("depth_offset", 0.5))
    )
    coding = Coding(1 / scale, offset, eight=True)
    window = _window(meta, found["meta.json"])
    camera = _camera(meta, found["meta.json"])

    def some(numbers: Sequence[int]) -> Stored:
        names = [f"{number:04d}" for number in numbers]
        images, depths = _pairs(found, {name: (f"rgb/{name}.jpg", f"depth/{name}.png") for name in names})
        return Stored(images, depths, camera.expand(len(names), 3, 3), coding, window, size)

    return some(kept), some(sorted(held_out)), some(splits["test"])


def flat(found: Mapping[str, Place], size: tuple[int, int] | None) -> Stored:
    """All images of an archive with depth in millimetres beside them, in order."""
    images = sorted(name for name in found if name.endswith(".jpg") and "/rgb/" in f"/{name}")
    if not images:
        raise ValueError(f"{found['meta.json']} must have images beside it, rgb/NAME.jpg; there are none.")
    paired = {name: (name, f"/{name}".replace("/rgb/", "/depth/")[1:-4] + ".png") for name in images}
    camera = _camera(_meta(found), found["meta.json"])
    return Stored(*_pairs(found, paired), camera.expand(len(images), 3, 3), MILLIMETRES, size=size)


def spread_runs(numbers: Sequence[int], share: float) -> list[int]:
    """About that share of the numbers, whole runs of neighbours at a time, evenly: no neighbours are separated.

    Neighbours show one place; runs are separated by frames of other splits.

    >>> spread_runs([1, 2, 3, 7, 8, 12, 13, 14, 20, 21], 0.3)
    [7, 8, 20, 21]
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    taken: list[int] = []
    seen = 0
    for run in runs:
        seen += len(run)
        if len(taken) + len(run) / 2 <= seen * share:
            taken += run
    return taken


# Where they are


def members(root: str | os.PathLike[str], name: str) -> dict[str, Place] | None:
    """The files of an archive by their names in it: ``root``, or what is called so in it, unpacked or not."""
    root = Path(root)
    for path in (root / name, root / f"{name}.zip", root):
        if path.is_dir() and (path / "meta.json").is_file() and path.name == name:
            return files.listing(path, "")
        if path.is_file() and path.name == f"{name}.zip":
            inside = f"{name}/"
            names = [each for each in files.archive(str(path)).namelist() if each.startswith(inside)]
            return {each.removeprefix(inside): Place(str(path), each) for each in names if not each.endswith("/")}
    return None


def _pairs(found: Mapping[str, Place], names: Mapping[str, tuple[str, str]]) -> tuple[list[Place], list[Place]]:
    for pair in names.values():
        for name in pair:
            if name not in found:
                raise ValueError(f"{found['meta.json']} needs {name} beside it, which is not there. Unpack it again.")
    images, depths = ([found[pair[i]] for pair in names.values()] for i in range(2))
    return images, depths


# What meta.json says


def _meta(found: Mapping[str, Place]) -> dict[str, Any]:
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


def _list(meta: Mapping[str, Any], name: str, place: Place) -> list[int]:
    numbers = meta.get(name)
    if not isinstance(numbers, list) or not numbers or not all(isinstance(number, int) for number in numbers):
        raise ValueError(f"{place} must list the numbers of the images of the split {name!r}; got {str(numbers)[:80]}.")
    return numbers


def _camera(meta: Mapping[str, Any], place: Place) -> Tensor:
    try:
        fx, fy, cx, cy = (float(meta["K"][key]) for key in ("fx", "fy", "cx", "cy"))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{place} must give the camera, K: fx, fy, cx and cy; reading it failed: {error!r}.") from None
    return torch.tensor([[fx, 0.0, cx], [0.0, fy, cy], [0.0, 0.0, 1.0]])


def _window(meta: Mapping[str, Any], place: Place) -> tuple[int, int, int, int]:
    rows, columns = meta.get("eigen_crop_rows", WINDOW[:2]), meta.get("eigen_crop_cols", WINDOW[2:])
    try:
        top, bottom, left, right = map(int, (*rows, *columns))
    except (TypeError, ValueError):
        raise ValueError(f"{place} must give two rows and two columns to cut out; got {rows} and {columns}.") from None
    return top, bottom, left, right
