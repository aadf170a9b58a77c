"""SUN RGB-D: indoor scenes, recorded with four depth sensors; tested on and never trained on.

- HDF5: ``SUNRGB.hdf5``, a node per image.
- Folders: ``.../SCENE/image/*.jpg``, ``.../SCENE/depth/*.png``, ``.../SCENE/intrinsics.txt``, and lists of scenes,
  ``alltrain.txt`` and ``alltest.txt``.

Depth is in millimetres, in 16 bits; in the published files these are rotated to the left by 3. 654 of the 5,050 test
images are those of NYU Depth V2's test set: see :func:`without_nyu`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from trainonce.recipes.depth.data.frames import Range, Subset
from trainonce.recipes.depth.data.readers.folders import ENDING, FolderLayout, Pair
from trainonce.recipes.depth.data.readers.frame_files import MILLIMETRES
from trainonce.recipes.depth.data.readers.hdf5 import HDF5Layout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainonce.recipes.depth.data.frames import Frames

HDF5 = HDF5Layout(
    "sunrgbd",
    "SUNRGB.hdf5",
    ("alltrain.txt", "alltest.txt"),
    "intrinsics.json",
    MILLIMETRES._replace(legacy=True),
    Range(0.005, 8.0),
)


def _pair(found: re.Match[str], folders: Mapping[str, list[str]]) -> Pair:
    """A scene has one image and one depth image, whose name may be another."""
    scene = found["scene"]
    inside = folders.get(f"{scene}/depth", [])
    name = inside[0] if len(inside) == 1 else f"{found['number']}.png"
    return Pair(found[0], f"{scene}/depth/{name}", f"{scene}/intrinsics.txt", _scene_path(scene))


def _scene_path(scene: str) -> str:
    """A scene's path from the data set's own top folder, wherever that is."""
    return f"/{scene}".split("/SUNRGBD/")[-1].strip("/")


FOLDERS = FolderLayout(
    "SUN RGB-D",
    rf"(?P<scene>.+)/image/(?P<number>[^/]+){ENDING}",
    _pair,
    MILLIMETRES._replace(rotated=True),
    scene_name=_scene_path,
)


#: The folder of the frames that come from NYU Depth V2.
NYU = "kv1/NYUdata"


def without_nyu(frames: Frames) -> Subset:
    """The frames that do not come from NYU Depth V2, by the folder that they are in."""
    return Subset(frames, [i for i in range(len(frames)) if not re.search(rf"(?:^|[/:]){NYU}/", frames.name(i))])
