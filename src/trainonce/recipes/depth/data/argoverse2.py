"""Argoverse 2: driving scenes with LiDAR; trained on.

- HDF5: ``AV2_viz.hdf5``, a sequence per log.
- Folders, extracted beforehand: see :data:`~trainonce.recipes.depth.data.readers.folders.DRIVING`.

Depth is in metres x 256, in 16 bits; only the pixels that LiDAR reaches have one.
"""

from __future__ import annotations

from trainonce.recipes.depth.data.frames import Range
from trainonce.recipes.depth.data.readers.folders import DRIVING
from trainonce.recipes.depth.data.readers.frame_files import LIDAR
from trainonce.recipes.depth.data.readers.hdf5 import HDF5Layout

HDF5 = HDF5Layout(
    "argoverse2",
    "AV2_viz.hdf5",
    ("train.txt", "val.txt"),
    "sequences_clean.json",
    LIDAR,
    Range(0.05, 120.0),
    sequences=True,
)
FOLDERS = DRIVING
