"""Waymo Open: driving scenes with LiDAR; trained on.

- HDF5: ``Waymo_viz.hdf5``, a sequence per segment.
- Folders, extracted beforehand: see :data:`~trainonce.recipes.depth.data.readers.folders.DRIVING`.

Depth is in metres x 256, in 16 bits; only the pixels that LiDAR reaches have one.
"""

from __future__ import annotations

from trainonce.recipes.depth.data.frames import Range
from trainonce.recipes.depth.data.readers.folders import DRIVING
from trainonce.recipes.depth.data.readers.frame_files import LIDAR
from trainonce.recipes.depth.data.readers.hdf5 import HDF5Layout

HDF5 = HDF5Layout(
    "waymo",
    "Waymo_viz.hdf5",
    ("training.txt", "validation.txt"),
    "sequences.json",
    LIDAR,
    Range(0.05, 70.0),
    sequences=True,
)
FOLDERS = DRIVING
