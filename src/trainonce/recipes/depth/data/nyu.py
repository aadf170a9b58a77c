"""NYU Depth V2: indoor scenes, recorded with a depth sensor.

- Archive ``nyuv2_320``, which the task ``nyu`` trains on: ``rgb/NNNN.jpg``, ``depth/NNNN.png`` and ``meta.json`` with
  the official split and the camera. Depth has 8 bits: a step is 39 mm.
- HDF5: ``nyuv2.hdf5``, a node per image. Depth is in millimetres.
"""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainonce.recipes.depth.data import sevenscenes, tum
from trainonce.recipes.depth.data.frames import CachedFrames, EvaluationSet, Range, Sets
from trainonce.recipes.depth.data.readers import archives
from trainonce.recipes.depth.data.readers.frame_files import MILLIMETRES, DepthFormat, FrameFiles
from trainonce.recipes.depth.data.readers.hdf5 import HDF5Layout
from trainonce.recipes.vision import files
from trainonce.text import did_you_mean, quoted

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from trainonce.recipes.vision.files import Place

ARCHIVE = "nyuv2_320"
PROTOCOLS = ("nyu",)
RANGE = Range(0.005, 10.0)
HDF5 = HDF5Layout(
    "nyu",
    "nyuv2.hdf5",
    ("nyu_train.txt", "nyu_test.txt"),
    "",
    MILLIMETRES._replace(legacy=True),
    RANGE,
    camera=((518.8579, 0.0, 325.5824), (0.0, 519.4696, 253.7362), (0.0, 0.0, 1.0)),
)
#: Within the white frame around the images. Everything else is cut off, in training and in tests.
WINDOW = (22, 235, 20, 300)
HELD_OUT = 0.125  # the part of the training images that chooses among weights


def load(root: str | os.PathLike[str], protocol: str = "nyu", size: tuple[int, int] | None = None) -> Sets:
    """The sets of a protocol.

    ``"nyu"``: train on most of the 795 training images, choose by the rest of them, test on the 654 test images; TUM
    and 7-Scenes, where their archives are beside it, are reported on and never trained on.

    :param root: The folder with the archives, or with what was unpacked from them.
    """
    if protocol not in PROTOCOLS:
        hint = did_you_mean(protocol, PROTOCOLS)
        raise ValueError(f"There is the protocol {quoted(PROTOCOLS)}; got {protocol!r}.{hint}")
    training, validation, test = splits(root, size)
    others = {"7scenes": sevenscenes.frames(root, size), "tum": tum.frames(root, size)}
    reported = {name: EvaluationSet(frames, RANGE) for name, frames in others.items() if frames is not None}
    return Sets({"nyu": training}, EvaluationSet(validation, RANGE), EvaluationSet(test, RANGE), reported)


def load_cached(root: str | os.PathLike[str], protocol: str = "nyu", size: tuple[int, int] | None = None) -> Sets:
    """As :func:`load`. Frames of archives are read once in a process, however many trainings it does: about 1 GB."""
    names = (ARCHIVE, tum.ARCHIVE, sevenscenes.ARCHIVE)
    paths = [Path(root), *(Path(root) / f"{name}.zip" for name in names)]
    packed = tuple((str(path), path.stat().st_mtime_ns) for path in paths if path.is_file())
    unpacked = Path(root).name in names or any((Path(root) / name).is_dir() for name in names)
    return load(root, protocol, size) if unpacked or not packed else _load_cached(str(root), protocol, size, packed)


@functools.lru_cache(maxsize=1)
def _load_cached(root: str, protocol: str, size: tuple[int, int] | None, packed: tuple[tuple[str, int], ...]) -> Sets:
    sets = load(root, protocol, size)
    kept = {
        name: dataclasses.replace(each, frames=CachedFrames(each.frames))
        for name, each in sets.evaluation_sets().items()
    }
    training = {name: CachedFrames(frames) for name, frames in sets.training.items()}
    return Sets(training, kept.pop("validation"), kept.pop("test"), kept)


def splits(root: str | os.PathLike[str], size: tuple[int, int] | None = None) -> tuple[FrameFiles, ...]:
    """Training, validation and test frames of the archive."""
    found = archives.members(root, ARCHIVE)
    if found is None:
        what = f"NYU Depth V2 is expected as {ARCHIVE}.zip, or the folder in it, with meta.json, rgb/ and depth/"
        raise ValueError(f"{what}; {files.contents(Path(root))}")
    meta, place = archives.read_meta(found), found["meta.json"]
    official = {name: sorted(_image_numbers(meta, name, place)) for name in ("train", "test")}
    held_out = set(hold_out_runs(official["train"], HELD_OUT))
    kept = [number for number in official["train"] if number not in held_out]
    scale, offset = (
        float(meta.get(key, value)) for key, value in (("depth_scale_m", 9.99547 / 255), ("depth_offset", 0.5))
    )
    depth_format = DepthFormat(1 / scale, offset, eight=True)
    window = _window(meta, place)
    camera = archives.intrinsics(meta, place)

    def some(numbers: Sequence[int]) -> FrameFiles:
        names = [f"{number:04d}" for number in numbers]
        images, depths = archives.pairs(found, {name: (f"rgb/{name}.jpg", f"depth/{name}.png") for name in names})
        return FrameFiles(images, depths, camera.expand(len(names), 3, 3), depth_format, window, size)

    return some(kept), some(sorted(held_out)), some(official["test"])


def hold_out_runs(numbers: Sequence[int], share: float) -> list[int]:
    """About that share of the numbers, whole runs of consecutive ones, evenly over all.

    Consecutive frames show one place; runs are separated by frames of other splits.

    >>> hold_out_runs([1, 2, 3, 7, 8, 12, 13, 14, 20, 21], 0.3)
    [7, 8, 20, 21]
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    taken: list[int] = []
    passed = 0
    for run in runs:
        passed += len(run)
        if len(taken) + len(run) / 2 <= passed * share:
            taken += run
    return taken


def _image_numbers(meta: Mapping[str, Any], split: str, place: Place) -> list[int]:
    numbers = meta.get(split)
    if not isinstance(numbers, list) or not numbers or not all(isinstance(number, int) for number in numbers):
        raise ValueError(
            f"{place} must list the numbers of the images of the split {split!r}; got {str(numbers)[:80]}."
        )
    return numbers


def _window(meta: Mapping[str, Any], place: Place) -> tuple[int, int, int, int]:
    rows, columns = meta.get("eigen_crop_rows", WINDOW[:2]), meta.get("eigen_crop_cols", WINDOW[2:])
    try:
        top, bottom, left, right = map(int, (*rows, *columns))
    except (TypeError, ValueError):
        raise ValueError(f"{place} must give two rows and two columns to cut out; got {rows} and {columns}.") from None
    return top, bottom, left, right
