"""Frames in HDF5 files: what was written comes back, and errors name what is wrong with a file."""

import io
import json
import multiprocessing
import pickle

import pytest
import torch
from _depth_data import assert_same, read_hdf5
from _messages import message
from PIL import Image

from trainonce.recipes.depth.data import paper_data
from trainonce.recipes.depth.data.frames import Frame
from trainonce.recipes.depth.data.made_up.frames import FEW, make_frames
from trainonce.recipes.depth.data.made_up.hdf5 import put, write_nuscenes, write_scannet, write_sequences
from trainonce.recipes.depth.data.readers import hdf5_nodes

h5py = pytest.importorskip("h5py")


@pytest.mark.parametrize("name", list(paper_data.LAYOUTS)[:5])
def test_every_hdf5_layout_gives_back_what_was_written(hdf5_root, name):
    root, written = hdf5_root
    scale = paper_data.LAYOUTS[name].depth_format.scale
    for training, split in ((True, "train"), (False, "test")):
        got = read_hdf5(root, name, training=training)
        assert len(got) == len(written[name][split])
        for index, expected in enumerate(written[name][split]):
            assert_same(got.frame(index), expected, scale)


def test_hdf5_frames_are_named_by_file_and_node(hdf5_root):
    root, _ = hdf5_root
    assert read_hdf5(root, "scannet").name(1) == f"{root}/ScanNetS.hdf5:/scene0000_00/color/1.png"
    assert read_hdf5(root, "nuscenes").name(1).startswith(f"{root}/nuscenes/nuscenes_1.hdf5:images/0001")


def test_the_miniatures_hold_the_awkward_cases(hdf5_root):
    root, _ = hdf5_root
    frames = read_hdf5(root, "scannet")
    assert (frames.frame(2).depth > 0).sum() == FEW
    assert torch.equal(frames.frame(1).image[0], frames.frame(1).image[1])
    assert Image.open(io.BytesIO(frames.depths[1].read())).mode == "RGB"
    sparse = read_hdf5(root, "waymo").frame(0).depth > 0
    assert 0.01 < sparse.float().mean() < 0.05


def test_a_size_is_what_frames_are_brought_to(hdf5_root):
    root, written = hdf5_root
    got = read_hdf5(root, "sunrgbd", size=(24, 32)).frame(0)
    assert (tuple(got.image.shape), tuple(got.depth.shape)) == ((3, 24, 32), (24, 32))
    torch.testing.assert_close(got.camera[:2], written["sunrgbd"]["train"][0].camera[:2] / 2)


def depths_of(frames, indices):
    return [frames.frame(index).depth.sum().item() for index in indices]


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_open_files_are_not_shared_with_other_processes(hdf5_root):
    root, _ = hdf5_root
    frames = read_hdf5(root, "argoverse2")
    here = depths_of(frames, range(4))  # opened here before others are started
    with multiprocessing.get_context("fork").Pool(2) as pool:
        there = pool.starmap(depths_of, [(frames, range(4))] * 4)
    assert there == [here] * 4
    again = pickle.loads(pickle.dumps(frames))
    assert depths_of(again, [2]) == here[2:3]


def test_a_file_that_is_no_hdf5_or_not_whole_is_reported(tmp_path):
    write_scannet(tmp_path)
    path = tmp_path / "ScanNetS.hdf5"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert message(read_hdf5, tmp_path, "scannet").startswith(f"{path} is cut short (truncated file")
    path.write_bytes(b"something else" * 100)
    text = message(read_hdf5, tmp_path, "scannet")
    assert text.startswith(f"{path} is not a whole HDF5 file (")
    assert text.endswith("Copy it again.")
    assert "\n" not in text


def test_what_is_missing_in_an_hdf5_file_is_reported(tmp_path):
    text = message(read_hdf5, tmp_path, "scannet")
    assert text == f"The data set 'scannet' is expected in {tmp_path}/ScanNetS.hdf5; {tmp_path} is empty."
    assert "Did you mean 'nuscenes'?" in message(paper_data.frames, tmp_path, "nuscene")
    frames = make_frames(0, 2, "room")
    path = tmp_path / "ScanNetS.hdf5"
    write_sequences(path, {"train.txt": ["a"]}, "sequences.json", 1000, {"a": frames})
    text = message(read_hdf5, tmp_path, "scannet", training=False)
    assert text.startswith(f"{path} must hold the node 'test.txt'; it does not. It holds a, sequences.json")
    hdf5_nodes.close()
    with h5py.File(path, "a") as file:
        del file["/a/depth/1.png"]
        put(file, "test.txt", "b 3\n")
    got = read_hdf5(tmp_path, "scannet")
    assert got.frame(0).depth.max() > 0
    assert "must hold the node '/a/depth/1.png'; it does not." in message(got.frame, 1)
    assert "names the sequence 'b', which" in message(read_hdf5, tmp_path, "scannet", training=False)


def rewrite(path, node, content):
    hdf5_nodes.close()
    with h5py.File(path, "a") as file:
        del file[node]
        put(file, node, content)


def test_wrong_entries_of_sequences_are_reported(tmp_path):
    path = tmp_path / "ScanNetS.hdf5"
    write_sequences(path, {"train.txt": ["a"]}, "sequences.json", 1000, {"a": make_frames(0, 2, "room")})
    with h5py.File(path) as file:
        table = json.loads(file["sequences.json"][()].tobytes())

    def said(**changes):
        entry = {key: value for key, value in (table["a"] | changes).items() if value is not None}
        rewrite(path, "sequences.json", json.dumps({"a": entry}))
        return message(read_hdf5, tmp_path, "scannet")

    where = f"The sequence 'a' in {path}:sequences.json"
    assert said(K=None) == f"{where} must have lists of image, depth and K; K is missing."
    assert said(K=table["a"]["K"][:1]) == f"{where} must have as many depths and K as images; it has 2, 2 and 1."
    assert "must be a 3x3 or 3x4 matrix; got (2, 2)." in said(K=[[[1, 2], [3, 4]]] * 2)
    assert "must be a 3x3 matrix of numbers; got None." in said(K=[None, None])
    assert "places /a/color/0.png in the file of number 3; there are 1" in said(chunk_idx=[3, 3])
    rewrite(path, "sequences.json", "{")
    assert f"{path}:sequences.json must hold JSON;" in message(read_hdf5, tmp_path, "scannet")
    rewrite(path, "sequences.json", json.dumps({"a": table["a"] | {"keyframe_idx": 7}}))
    with h5py.File(path, "a") as file:
        put(file, "test.txt", "a 2\n")
    text = message(read_hdf5, tmp_path, "scannet", training=False)
    assert text == f"{where} has 2 frames, from 0; its keyframe_idx is 7."


def test_missing_intrinsics_are_reported(tmp_path):
    write_nuscenes(tmp_path)
    path = tmp_path / "nuscenes/nuscenes_0.hdf5"
    rewrite(path, "intrinsics.json", "{}")
    assert message(read_hdf5, tmp_path, "nuscenes") == (
        f"{path}:intrinsics.json must give the intrinsics of images/0000.png; it does not."
    )
    rewrite(path, "train.txt", "images/0000.png\n")
    assert "must name an image and its depth on each line; got 'images/0000.png'" in message(
        read_hdf5, tmp_path, "nuscenes"
    )
    rewrite(path, "train.txt", "\n")
    assert message(read_hdf5, tmp_path, "nuscenes").endswith("train.txt must list frames; it lists none.")


def test_frames_of_different_sizes_in_hdf5_are_reported(tmp_path):
    frame = make_frames(0, 1, "room")[0]
    write_sequences(
        tmp_path / "ScanNetS.hdf5",
        {"train.txt": ["a"]},
        "sequences.json",
        1000,
        {"a": [Frame(frame.image, frame.depth[::2, ::2], frame.camera)]},
    )
    text = message(read_hdf5(tmp_path, "scannet").frame, 0)
    assert text.endswith("must be of one size; they have 48x64 and 24x32 pixels.")
