"""KITTI: driving scenes with LiDAR, in the split of Eigen et al.

HDF5: ``kitti.hdf5``, a node per image. Depth is in metres x 256, in 16 bits; only the pixels that LiDAR reaches have
one, and images without any are left out.
"""

from __future__ import annotations

from trainonce.recipes.depth.data.frames import Range
from trainonce.recipes.depth.data.readers.frame_files import LIDAR
from trainonce.recipes.depth.data.readers.hdf5 import HDF5Layout

HDF5 = HDF5Layout(
    "kitti",
    "kitti.hdf5",
    ("kitti_eigen_train.txt", "kitti_eigen_test.txt"),
    "intrinsics.json",
    LIDAR._replace(legacy=True),
    Range(0.05, 80.0),
)
