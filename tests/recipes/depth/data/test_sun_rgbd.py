"""SUN RGB-D in folders."""

import json

import pytest
import torch
from _depth_data import assert_same
from _messages import message

from trainonce.recipes.depth.data import paper_data
from trainonce.recipes.depth.data.made_up.folders import write_sun_folder
from trainonce.recipes.depth.data.made_up.frames import SIZE, colour, depth16, make_frames
from trainonce.recipes.depth.data.made_up.hdf5 import put
from trainonce.recipes.depth.data.readers import folders
from trainonce.recipes.vision.encode import write_file as save


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


# Frames of NYU Depth V2

SCENES = ("kv1/NYUdata/NYU0001", "kv1/b3dodata/img_0063", "xtion/kv1/NYUdatabase", "kv1/NYUdata/NYU1449")


def write_folder(root, tested):
    for scene, frame in zip(SCENES, make_frames(0, 4, "room", SIZE), strict=True):
        save(root / "sunrgbd/SUNRGBD" / scene / "image/a.png", colour(frame.image))
        save(root / "sunrgbd/SUNRGBD" / scene / "depth/a.png", depth16(frame.depth, 1000, rotated=True))
        save(root / "sunrgbd/SUNRGBD" / scene / "intrinsics.txt", " ".join(map(str, frame.camera.flatten().tolist())))
    for name, scenes in (("alltrain.txt", SCENES), ("alltest.txt", tested)):
        save(root / "sunrgbd" / name, "".join(f"/n/fs/sun3d/data/SUNRGBD/{scene}\n" for scene in scenes))


def write_file(root, tested):
    h5py = pytest.importorskip("h5py")
    lines, cameras = {}, {}
    with h5py.File(root / "SUNRGB.hdf5", "w") as file:
        for scene, frame in zip(SCENES, make_frames(0, 4, "room", SIZE), strict=True):
            image, depth = f"{scene}/image/a.png", f"{scene}/depth/a.png"
            put(file, image, colour(frame.image))
            put(file, depth, depth16(frame.depth, 1000))
            cameras[image], lines[scene] = frame.camera.tolist(), f"{image} {depth}"
        put(file, "intrinsics.json", json.dumps(cameras))
        put(file, "alltrain.txt", "\n".join(lines.values()))
        put(file, "alltest.txt", "\n".join(lines[scene] for scene in tested))


@pytest.mark.parametrize("write", [write_folder, write_file])
def test_frames_of_nyu_are_trained_on_and_not_tested_with(write, tmp_path):
    write(tmp_path, SCENES)

    def load(**given):
        return paper_data.load(tmp_path, trained=("sunrgbd",), tested=("sunrgbd",), **given)

    found, whole = load(), load(protocol="zero-shot-all")
    for examined in (found.validation, found.test):
        names = [examined.frames.name(i) for i in range(len(examined.frames))]
        assert len(names) == 2
        assert all("NYUdata/" not in name for name in names)
        assert examined.frames.frame(0).depth.shape == SIZE
    assert len(whole.test.frames) == len(whole.validation.frames) == 4
    assert len(found.training["sunrgbd"]) == len(whole.training["sunrgbd"]) == 4


@pytest.mark.parametrize("write", [write_folder, write_file])
def test_a_test_set_of_nyu_alone_is_one_sentence(write, tmp_path):
    write(tmp_path, (SCENES[0], SCENES[3]))
    text = message(paper_data.load, tmp_path, trained=("sunrgbd",), tested=("sunrgbd",))
    assert text.startswith("The test set of SUN RGB-D must have frames outside kv1/NYUdata, which are NYU Depth V2's;")
    assert text.endswith("kv1/NYUdata/NYU0001/image/a.png. To test with those, set protocol=zero-shot-all.")
