"""nuScenes: driving scenes with LiDAR; tested on and never trained on.

- HDF5: ``nuscenes/nuscenes_#.hdf5``, a node per image, in several files.
- Folders, extracted beforehand: see :data:`~trainonce.recipes.depth.data.readers.folders.DRIVING`.

Depth is in metres x 256, in 16 bits; only the pixels that LiDAR reaches have one.
"""

from __future__ import annotations

from trainonce.recipes.depth.data.frames import Range
from trainonce.recipes.depth.data.readers.folders import DRIVING
from trainonce.recipes.depth.data.readers.frame_files import LIDAR
from trainonce.recipes.depth.data.readers.hdf5 import HDF5Layout

HDF5 = HDF5Layout(
    "nuscenes",
    "nuscenes/nuscenes_#.hdf5",
    ("train.txt", "val.txt"),
    "intrinsics.json",
    LIDAR._replace(legacy=True),
    Range(0.05, 80.0),
)
FOLDERS = DRIVING
