"""Reading what a test has written, and encoded images in memory."""

from __future__ import annotations

from pathlib import Path

import torch

from trainonce.recipes.depth.data import paper_data
from trainonce.recipes.depth.data.made_up.frames import SIZE, make_frames
from trainonce.recipes.depth.data.made_up.hdf5 import write_images
from trainonce.recipes.depth.data.readers import hdf5


class Bytes:
    """An encoded image in memory."""

    def __init__(self, content, name="here.png"):
        self.content, self.name = content, name

    def __str__(self):
        return self.name

    def read(self):
        return self.content


def read_hdf5(root, name, **options):
    """The frames of a data set in HDF5 files."""
    return hdf5.frames(root, paper_data.LAYOUTS[name], **options)


def assert_same(got, expected, scale, camera=True):
    """Images exactly, depth within half a step, cameras."""
    assert torch.equal(got.image, expected.image)
    assert got.image.dtype == torch.uint8
    assert (got.depth - expected.depth).abs().max() <= 0.5 / scale + 1e-5
    assert got.depth.dtype == torch.float32
    if camera:
        torch.testing.assert_close(got.camera, expected.camera)


def write_nyu_hdf5(root, size=SIZE):
    frames = make_frames(6, 3, "room", size)
    lists = {"nyu_train.txt": range(2), "nyu_test.txt": range(2, 3)}
    write_images([Path(root, "nyuv2.hdf5")], lists, "", 1000, frames, third=" 518.8579", ending=".jpg")
    return {"train": frames[:2], "test": frames[2:]}
