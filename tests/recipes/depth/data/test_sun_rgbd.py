"""SUN RGB-D in folders."""

import torch
from _depth_data import (
    assert_same,
    depth16,
    save,
    write_sun_folder,
)
from _messages import message

from trainonce.recipes.depth.data import paper_data
from trainonce.recipes.depth.data.readers import folders


def test_sun_rgbd_is_read_with_its_bits_rotated_back(folder_root):
    root, written = folder_root
    for training, split in ((True, "train"), (False, "test")):
        got = folders.frames(root / "sunrgbd", paper_data.FOLDERS, training=training)
        assert len(got) == len(written["sunrgbd"][split])
        for index, expected in enumerate(written["sunrgbd"][split]):
            assert_same(got.frame(index), expected, 1000, camera=False)


def test_shapes_that_do_not_belong_together_are_reported(tmp_path):
    write_sun_folder(tmp_path)
    scene = tmp_path / "SUNRGBD/kv2/kinect2data/000000_x"
    save(scene / "depth/00000-depth.png", depth16(torch.ones(30, 30), 1000))
    text = message(folders.frames(tmp_path, paper_data.FOLDERS).frame, 0)
    assert text.startswith(
        f"The image {scene}/image/0000001.png and its depth {scene}/depth/00000-depth.png must be of"
    )
    assert text.endswith("they have 48x64 and 30x30 pixels.")
