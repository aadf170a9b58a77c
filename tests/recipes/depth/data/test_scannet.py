"""ScanNet in folders."""

from pathlib import Path

import torch

from trainonce.recipes.depth.data import paper_data
from trainonce.recipes.depth.data.made_up.frames import SIZE
from trainonce.recipes.depth.data.readers import folders


def test_scannet_images_are_brought_to_the_size_of_their_depth(folder_root):
    root, written = folder_root
    got = folders.frames(root / "scannet", paper_data.FOLDERS, training=True)
    assert [Path(got.name(i)).name for i in range(4)] == ["8.jpg", "9.jpg", "10.jpg", "11.jpg"]
    for index, expected in enumerate(written["scannet"]["train"]):
        frame = got.frame(index)
        assert tuple(frame.image.shape[1:]) == tuple(frame.depth.shape) == SIZE
        assert (frame.depth - expected.depth).abs().max() < 6e-4
        torch.testing.assert_close(frame.camera, expected.camera, rtol=1e-4, atol=1e-4)
        assert (frame.image.float() - expected.image.float()).abs().mean() < 6
    assert len(folders.frames(root / "scannet", paper_data.FOLDERS, training=False)) == 4
