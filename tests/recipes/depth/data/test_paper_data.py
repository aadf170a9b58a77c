"""The five large data sets together."""

import pytest
import torch
from _messages import message

from trainonce.recipes.depth.data import paper_data
from trainonce.recipes.depth.data.check import check
from trainonce.recipes.depth.data.frames import Range
from trainonce.recipes.depth.data.made_up.hdf5 import write_scannet

pytest.importorskip("h5py")


@pytest.mark.parametrize("where", ["hdf5_root", "folder_root"])
def test_the_large_sets_are_found_in_files_and_in_folders(where, request):
    root, written = request.getfixturevalue(where)
    sets = paper_data.load(root, size=(24, 32))
    assert list(sets.training) == ["scannet", "argoverse2", "waymo"]
    assert {name: len(frames) for name, frames in sets.training.items()} == {
        name: len(written[name]["train"]) for name in sets.training
    }
    assert list(sets.others) == ["argoverse2-own", "waymo-own", "sunrgbd"]
    assert (len(sets.test.frames), sets.test.range) == (len(written["nuscenes"]["test"]), Range(0.05, 80.0))
    assert sets.validation.range == Range(0.005, 10.0)
    assert tuple(sets.training["scannet"].frame(0).image.shape) == (3, 24, 32)
    assert set(check(sets)) == {"training scannet", "training argoverse2", "training waymo", *sets.evaluation_sets()}


def test_both_layouts_give_the_same_frames_in_the_same_order(hdf5_root, folder_root):
    """Of a sequence that is tested with, the frame in the middle; of images, all."""
    for name, tested in {"scannet": 1, "argoverse2": 2, "waymo": 2, "nuscenes": 6, "sunrgbd": 3}.items():
        for training in (True, False):
            one, other = (paper_data.frames(root, name, training=training) for root, _ in (hdf5_root, folder_root))
            assert len(one) == len(other) == (len(one) if training else tested)
            for index in range(len(one)):
                here, there = one.frame(index), other.frame(index)
                assert (here.depth - there.depth).abs().max() <= 1e-3, (name, training, index)
                torch.testing.assert_close(here.camera, there.camera, rtol=1e-4, atol=1e-4)


def test_a_large_set_that_is_not_there_is_reported(tmp_path):
    write_scannet(tmp_path)
    assert message(paper_data.load, tmp_path, trained=("scannet", "argoverse2"), tested=("scannet",)) == (
        f"{tmp_path} must hold the data set 'argoverse2' (AV2_viz.hdf5, or a folder argoverse2); {tmp_path} holds "
        "ScanNetS.hdf5."
    )
    assert message(paper_data.load, tmp_path) == (
        f"{tmp_path} must hold the data sets 'argoverse2' (AV2_viz.hdf5, or a folder argoverse2), 'waymo' "
        "(Waymo_viz.hdf5, or a folder waymo), 'nuscenes' (nuscenes/nuscenes_0.hdf5, or a folder nuscenes), 'sunrgbd' "
        f"(SUNRGB.hdf5, or a folder sunrgbd); {tmp_path} holds ScanNetS.hdf5."
    )
    assert "got 'scanet'. Did you mean 'scannet'?" in message(paper_data.load, tmp_path, trained=["scanet"])
    assert "one to test with; got" in message(paper_data.load, tmp_path, tested=[])


def test_an_unknown_protocol_is_named(tmp_path):
    assert message(paper_data.load, tmp_path, protocol="zeroshot") == (
        "The protocols are 'zero-shot', 'zero-shot-all'; got 'zeroshot'. Did you mean 'zero-shot'?"
    )
