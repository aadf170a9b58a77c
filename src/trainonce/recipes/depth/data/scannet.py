"""ScanNet: rooms, recorded with a depth sensor; trained on.

- HDF5: ``ScanNetS.hdf5``, a sequence per scene.
- Folders: ``SCENE/color/N.jpg``, ``SCENE/depth/N.png``, ``SCENE/intrinsic/intrinsic_color.txt``, and lists of scenes,
  ``train.txt`` and ``val.txt`` or ``scannetv2_train.txt`` and ``scannetv2_val.txt``.

Depth is in millimetres, in 16 bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainonce.recipes.depth.data.frames import Range
from trainonce.recipes.depth.data.readers.folders import ENDING, FolderLayout, Pair
from trainonce.recipes.depth.data.readers.frame_files import MILLIMETRES
from trainonce.recipes.depth.data.readers.hdf5 import HDF5Layout

if TYPE_CHECKING:
    import re
    from collections.abc import Mapping

HDF5 = HDF5Layout(
    "scannet",
    "ScanNetS.hdf5",
    ("train.txt", "test.txt"),
    "sequences.json",
    MILLIMETRES,
    Range(0.005, 10.0),
    sequences=True,
)


def _pair(found: re.Match[str], folders: Mapping[str, list[str]]) -> Pair:
    del folders
    scene, number = found["scene"], found["number"]
    camera = f"{scene}/intrinsic/intrinsic_color.txt"
    return Pair(found[0], f"{scene}/depth/{number}.png", camera, scene.split("/")[-1])


FOLDERS = FolderLayout("ScanNet", rf"(?P<scene>.+)/color/(?P<number>[^/]+){ENDING}", _pair, MILLIMETRES)
