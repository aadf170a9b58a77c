"""KITTI in HDF5."""

import pytest
from _depth_data import read_hdf5

from trainonce.recipes.depth.data.made_up.frames import make_frames
from trainonce.recipes.depth.data.made_up.hdf5 import put, write_images

h5py = pytest.importorskip("h5py")


def test_images_without_depth_are_left_out(tmp_path):
    frames = make_frames(0, 2, "room")
    write_images([tmp_path / "kitti.hdf5"], {"kitti_eigen_test.txt": [0]}, "intrinsics.json", 256, frames)
    with h5py.File(tmp_path / "kitti.hdf5", "a") as file:
        put(file, "kitti_eigen_train.txt", "images/0000.png None 7\nimages/0001.png depths/0001.png 7\n")
    assert [len(read_hdf5(tmp_path, "kitti", training=which)) for which in (True, False)] == [1, 1]
