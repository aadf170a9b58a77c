"""Frames in files: every layout, the frames it gives back, and a sentence for every way in which they can be wrong."""

import io
import json
import multiprocessing
import os
import pickle
import re
from pathlib import Path

import pytest
import torch
from _depth_data import (
    FEW,
    NYU_STEP,
    SIZE,
    Bytes,
    assert_same,
    colour,
    depth16,
    depth24,
    encode,
    make_frames,
    matrix,
    put,
    read_hdf5,
    save,
    sixteen,
    write_archives,
    write_extracted_folder,
    write_folders,
    write_hdf5,
    write_images,
    write_nuscenes,
    write_nyu_hdf5,
    write_scannet,
    write_scannet_folder,
    write_sequences,
    write_sun_folder,
)
from _messages import message
from PIL import Image

from trainonce.recipes.depth.data import frames as lists
from trainonce.recipes.depth.data import nyu, paper_data
from trainonce.recipes.depth.data.check import check
from trainonce.recipes.depth.data.frames import CachedFrames, EvaluationSet, Frame, Range, Sets, Subset
from trainonce.recipes.depth.data.readers import folders, hdf5_nodes
from trainonce.recipes.depth.data.readers.frame_files import (
    DepthFormat,
    FrameFiles,
    crop,
    read_depth,
    read_image,
    resize,
    resize_depth,
)
from trainonce.recipes.depth.generated.rooms import GeneratedFrames
from trainonce.recipes.vision.files import Place

h5py = pytest.importorskip("h5py")
REAL = Path(os.environ.get("TRAINONCE_DATA", "none"))


@pytest.fixture(scope="module")
def hdf5_root(tmp_path_factory):
    """The five large data sets in HDF5, to be read only, and what is in them."""
    root = tmp_path_factory.mktemp("hdf5")
    return root, write_hdf5(root)


@pytest.fixture(scope="module")
def folder_root(tmp_path_factory):
    root = tmp_path_factory.mktemp("folders")
    return root, write_folders(root)


# Decoding


def test_depth_is_read_in_metres_whatever_its_coding():
    depth = torch.tensor([[0.0, 1.234, 65.0], [7.999, 0.001, 3.5]])
    assert torch.allclose(read_depth(Bytes(depth16(depth, 1000)), DepthFormat(1000.0)), depth, atol=5e-4)
    rotated = depth16(depth.clamp(max=8.191), 1000, rotated=True)
    assert torch.allclose(
        read_depth(Bytes(rotated), DepthFormat(1000.0, rotated=True)), depth.clamp(max=8.191), atol=5e-4
    )
    far = depth * 100  # more than 16 bits hold
    assert torch.allclose(read_depth(Bytes(depth24(far, 256)), DepthFormat(256.0)), far, atol=0.002)
    legacy = read_depth(Bytes(depth24(far, 256, legacy=True)), DepthFormat(256.0, legacy=True))
    assert torch.allclose(legacy, far, atol=0.002)
    eight = encode(Image.fromarray(torch.tensor([[0, 255]], dtype=torch.uint8).numpy()))
    assert read_depth(Bytes(eight), DepthFormat(10.0, 0.5, eight=True))[0].tolist() == pytest.approx([0.05, 25.55])


def test_all_16_bits_of_a_rotated_value_come_back():
    values = torch.tensor([[1, 5, 8191, 8192, 40000, 65535]])
    turned = ((values << 3) | (values >> 13)) & 0xFFFF
    found = read_depth(Bytes(sixteen(turned)), DepthFormat(1.0, rotated=True))
    assert found.long().tolist() == values.tolist()


def test_grey_images_are_repeated():
    image = make_frames(0, 1, "room")[0].image
    grey = read_image(Bytes(colour(image, grey=True)))
    assert tuple(grey.shape) == (3, *SIZE)
    assert torch.equal(grey[0], grey[2])
    assert torch.equal(read_image(Bytes(colour(image))), image)


def test_images_of_the_wrong_kind_are_reported():
    grey = Bytes(encode(Image.new("L", (4, 4))), "a.png")
    assert message(read_depth, grey, DepthFormat(1000.0)) == (
        "The depth image a.png must have one channel of 16 bits, or three of 8; its mode is 'L'."
    )
    deep = Bytes(depth16(torch.ones(4, 4), 1000), "b.png")
    assert message(read_image, deep).startswith("The image b.png must have 8 bits per channel; its mode is 'I")
    assert "cannot be read" in message(read_depth, Bytes(b"no image", "c.png"), DepthFormat(1000.0))
    text = message(read_depth, Bytes(encode(Image.new("RGB", (4, 4))), "d.png"), DepthFormat(1.0, eight=True))
    assert text == "The depth image d.png must have one channel of 8 bits; its mode is 'RGB'."


# One size


def project(camera, points):
    """Where points are seen, from the corner of the first pixel."""
    seen = points @ camera.T
    return seen[:, :2] / seen[:, 2:]


def test_cameras_follow_cutting_and_resizing():
    frame = make_frames(0, 1, "room")[0]
    points = torch.tensor([[0.1, -0.2, 2.0], [0.4, 0.3, 3.0], [-0.5, 0.1, 1.5]])
    before = project(frame.camera, points)
    part = crop(frame, (5, 40, 7, 60))
    torch.testing.assert_close(project(part.camera, points), before - torch.tensor([7.0, 5.0]))
    assert torch.equal(part.image, frame.image[:, 5:40, 7:60])
    assert torch.equal(part.depth, frame.depth[5:40, 7:60])
    small = resize(frame, (24, 16))
    torch.testing.assert_close(project(small.camera, points), before * torch.tensor([16 / 64, 24 / 48]))
    assert tuple(small.image.shape) == (3, 24, 16)
    assert torch.equal(frame.camera, make_frames(0, 1, "room")[0].camera), "the original is left as it is"


def test_a_smaller_depth_takes_the_known_pixel_nearest_to_the_middle():
    depth = torch.zeros(6, 6)
    depth[1, 1], depth[0, 0] = 4.0, 9.0  # in the first cell of 3x3, the middle one is nearer
    depth[5, 0] = 7.0
    assert resize_depth(depth, (2, 2)).tolist() == [[4.0, 0.0], [7.0, 0.0]]


def test_sparse_depth_is_not_lost_when_made_smaller():
    depth = make_frames(2, 1, "street", (96, 128), sparse=True)[0].depth
    small = resize_depth(depth, (24, 32))
    assert (small > 0).float().mean() > 5 * (depth > 0).float().mean()
    assert set(small[small > 0].tolist()) <= set(depth.flatten().tolist())


def test_a_larger_depth_takes_the_nearest_known_of_four():
    depth = torch.tensor([[1.0, 0.0], [3.0, 4.0]])
    large = resize_depth(depth, (4, 4))
    assert large[0].tolist() == [1.0, 1.0, 1.0, 0.0]
    assert large[3].tolist() == [3.0, 3.0, 4.0, 4.0]
    assert large[1, 3] == 4.0
    assert large[2].tolist() == [3.0, 3.0, 4.0, 4.0]


def test_resizing_keeps_depth_where_it_is():
    paper_data, small = make_frames(3, 1, "room", (96, 128))[0], make_frames(3, 1, "room", (32, 128 // 3))[0]
    got = resize(paper_data, (32, 42))
    torch.testing.assert_close(got.camera[0, 0], small.camera[0, 0])
    assert ((got.depth / small.depth - 1).abs() < 0.05).float().mean() > 0.9
    assert (got.image.float() - small.image.float()).abs().mean() < 20


def test_frame_files_need_as_many_of_everything():
    assert message(FrameFiles, [Bytes(b"")], [], torch.zeros(1, 3, 3), DepthFormat(1.0)) == (
        "FrameFiles needs as many depths and cameras as images; got 1, 0 and 1."
    )
    assert "at least one pixel" in message(FrameFiles, [], [], torch.zeros(0, 3, 3), DepthFormat(1.0), size=(0, 3))


# HDF5


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


def test_nyu_in_hdf5_has_one_camera_for_all(tmp_path):
    written = write_nyu_hdf5(tmp_path)
    got = read_hdf5(tmp_path, "nyu", training=False)
    assert got.frame(0).camera.tolist() == [[pytest.approx(v, abs=1e-3) for v in row] for row in nyu.HDF5.camera]
    assert (got.frame(0).depth - written["test"][0].depth).abs().max() < 6e-4


def test_images_without_depth_are_left_out(tmp_path):
    frames = make_frames(0, 2, "room")
    write_images([tmp_path / "kitti.hdf5"], {"kitti_eigen_test.txt": [0]}, "intrinsics.json", 256, frames)
    with h5py.File(tmp_path / "kitti.hdf5", "a") as file:
        put(file, "kitti_eigen_train.txt", "images/0000.png None 7\nimages/0001.png depths/0001.png 7\n")
    assert [len(read_hdf5(tmp_path, "kitti", training=which)) for which in (True, False)] == [1, 1]


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


# Folders


def test_extracted_folders_give_back_what_was_written(folder_root):
    root, written = folder_root
    for training, split in ((True, "train"), (False, "test")):
        got = folders.frames(root / "waymo", paper_data.FOLDERS, training=training)
        assert len(got) == 4
        for index, expected in enumerate(written["waymo"][split]):
            assert_same(got.frame(index), expected, 256, camera=False)
            torch.testing.assert_close(got.frame(index).camera, expected.camera, rtol=1e-4, atol=1e-4)
    assert len(folders.frames(root / "waymo", paper_data.FOLDERS)) == 8


def test_sun_rgbd_is_read_with_its_bits_rotated_back(folder_root):
    root, written = folder_root
    for training, split in ((True, "train"), (False, "test")):
        got = folders.frames(root / "sunrgbd", paper_data.FOLDERS, training=training)
        assert len(got) == len(written["sunrgbd"][split])
        for index, expected in enumerate(written["sunrgbd"][split]):
            assert_same(got.frame(index), expected, 1000, camera=False)


def test_scannet_images_are_brought_to_the_size_of_their_depth(folder_root):
    root, written = folder_root
    got = folders.frames(root / "scannet", paper_data.FOLDERS, training=True)
    assert [Path(got.name(i)).name for i in range(4)] == ["8.jpg", "9.jpg", "10.jpg", "11.jpg"]
    for index, expected in enumerate(written["scannet"]["train"]):
        frame = got.frame(index)
        assert tuple(frame.image.shape[1:]) == tuple(frame.depth.shape) == SIZE
        assert (frame.depth - expected.depth).abs().max() < 6e-4
        torch.testing.assert_close(frame.camera[:2], expected.camera[:2] / 2, rtol=1e-4, atol=1e-4)
        half = torch.nn.functional.avg_pool2d(expected.image.float(), 2)
        assert (frame.image.float() - half).abs().mean() < 6
    assert len(folders.frames(root / "scannet", paper_data.FOLDERS, training=False)) == 4


def test_what_is_missing_in_a_folder_is_reported(tmp_path):
    assert message(folders.frames, tmp_path, paper_data.FOLDERS).endswith(f"{tmp_path} is empty.")
    write_extracted_folder(tmp_path / "waymo")
    first = tmp_path / "waymo/training/segment-0"
    (first / "depth_FRONT/001.png").unlink()
    assert message(folders.frames, tmp_path / "waymo", paper_data.FOLDERS) == (
        f"The image {first}/image_FRONT/001.png has no depth: there is no {first}/depth_FRONT/001.png."
    )
    (first / "K_FRONT.txt").unlink()
    assert "has no intrinsics: there is no" in message(
        folders.frames, tmp_path / "waymo", paper_data.FOLDERS, training=True
    )
    assert len(folders.frames(tmp_path / "waymo", paper_data.FOLDERS, training=False)) == 4
    write_scannet_folder(tmp_path / "scannet")
    (tmp_path / "scannet/train.txt").write_text("scene0707_00\n")
    text = message(folders.frames, tmp_path / "scannet", paper_data.FOLDERS, training=True)
    assert text.startswith(
        f"{tmp_path}/scannet/train.txt must name scenes that are there; none is. The first image is "
    )
    (tmp_path / "scannet/train.txt").unlink()
    assert "must have a list of its scenes, train.txt or" in message(
        folders.frames, tmp_path / "scannet", paper_data.FOLDERS, training=True
    )


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("1 2 3", "must hold the intrinsics, 3x3, 3x4 or 4x4 numbers; it holds 3."),
        ("1 2 x", "must hold numbers, the intrinsics; could not convert string to float: 'x'."),
    ],
)
def test_files_of_intrinsics_that_are_none_are_reported(tmp_path, text, rule):
    save(tmp_path / "k.txt", text)
    assert message(folders.read_intrinsics, Place(str(tmp_path / "k.txt"))) == f"{tmp_path}/k.txt {rule}"


def test_intrinsics_are_read_in_all_shapes(tmp_path):
    camera = make_frames(0, 1, "room")[0].camera
    (fx, _, cx), (_, fy, cy), _ = camera.tolist()
    wide = "\n".join(" ".join(map(str, [*row, 0.0])) for row in camera.tolist())
    for text in (matrix(camera), matrix(camera, 4), wide, f"{fx}, {fy}, {cx}, {cy}", str(camera.tolist())):
        save(tmp_path / "k.txt", text)
        torch.testing.assert_close(
            folders.read_intrinsics(Place(str(tmp_path / "k.txt"))), camera, atol=1e-5, rtol=1e-6
        )


def test_shapes_that_do_not_belong_together_are_reported(tmp_path):
    write_sun_folder(tmp_path)
    scene = tmp_path / "SUNRGBD/kv2/kinect2data/000000_x"
    save(scene / "depth/00000-depth.png", depth16(torch.ones(30, 30), 1000))
    text = message(folders.frames(tmp_path, paper_data.FOLDERS).frame, 0)
    assert text.startswith(
        f"The image {scene}/image/0000001.png and its depth {scene}/depth/00000-depth.png must be of"
    )
    assert text.endswith("they have 48x64 and 30x30 pixels.")


# Large


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


# Archives


@pytest.mark.parametrize("zipped", [True, False])
def test_archives_give_the_sets_of_nyu_and_others_to_report_on(tmp_path, zipped):
    written = write_archives(tmp_path, zipped=zipped)
    sets = nyu.load(tmp_path)
    training, validation, test = sets.training["nyu"], sets.validation.frames, sets.test.frames
    assert len(training) + len(validation) == 15
    assert len(test) == 9
    assert {name: len(each.frames) for name, each in sets.others.items()} == {"7scenes": 2, "tum": 4}
    frame, whole = test.frame(0), written["nyu"][3]
    assert test.name(0).endswith("nyuv2_320/rgb/0003.jpg")
    assert tuple(frame.depth.shape) == (45, 59)
    assert (frame.depth - whole.depth[2:47, 3:62]).abs().max() <= NYU_STEP / 2 + 1e-5
    torch.testing.assert_close(
        frame.camera[:2, 2], written["nyu"][0].camera[:2, 2] - torch.tensor([3.0, 2.0]), atol=1e-4, rtol=1e-6
    )
    assert (frame.image.float() - whole.image[:, 2:47, 3:62].float()).abs().mean() < 5
    kitchen = sets.others["7scenes"].frames.frame(1)
    assert (kitchen.depth - written["7scenes"][1].depth).abs().max() < 6e-4
    small = nyu.load(tmp_path, size=(24, 32)).test.frames.frame(0)
    assert (tuple(small.image.shape), tuple(small.depth.shape)) == ((3, 24, 32), (24, 32))


def test_an_archive_can_be_named_itself(tmp_path):
    write_archives(tmp_path)
    assert nyu.load(tmp_path / "nyuv2_320.zip").others == {}
    (tmp_path / "tum_fr1_320.zip").unlink()
    assert list(nyu.load(tmp_path).others) == ["7scenes"]


def test_a_process_reads_an_archive_once_and_again_when_it_changes(tmp_path, monkeypatch):
    write_archives(tmp_path)
    sets = nyu.load_cached(tmp_path)
    frame = sets.test.frames.frame(2)
    monkeypatch.setattr(nyu.FrameFiles, "frame", lambda *_: pytest.fail("read again"))
    assert nyu.load_cached(tmp_path).test.frames.frame(2) is frame
    monkeypatch.undo()
    os.utime(tmp_path / "nyuv2_320.zip", (1, 1))
    other = nyu.load_cached(tmp_path).test.frames.frame(2)
    assert other is not frame
    assert torch.equal(other.depth, frame.depth)


def test_unpacked_files_are_read_anew(tmp_path):
    write_archives(tmp_path, zipped=False)
    one, two = (nyu.load_cached(tmp_path).test.frames for _ in range(2))
    assert one is not two
    assert torch.equal(one.frame(0).depth, two.frame(0).depth)


def test_frames_that_are_remembered_are_read_once_up_to_a_number():
    read = []

    class Counted:
        def __len__(self):
            return 3

        def name(self, index):
            return str(index)

        def frame(self, index):
            read.append(index)
            return Frame(*(torch.full((1,), index) for _ in range(3)))

    first = Frame(*(torch.zeros(1) for _ in range(3)))
    kept = CachedFrames(Counted(), 2, [first])
    assert kept.frame(0) is first
    assert [int(kept.frame(i).depth) for i in (1, 1, 2, 2)] == [1, 1, 2, 2]
    assert read == [1, 2, 2]


def test_some_of_generated_frames_are_made_together():
    some = Subset(GeneratedFrames(0, 6, "room", (24, 32)), [4, 1])
    images, depths, _ = lists.generate(some, [1, 0], torch.device("cpu"))
    assert torch.equal(images[0], some.frame(1).image)
    assert torch.equal(depths[1], some.frame(0).depth)
    assert lists.generate(Subset(CachedFrames(some), [0]), [0], torch.device("cpu")) is None


def test_no_neighbours_are_separated():
    numbers = [n for n in range(400) if n // 5 % 3]
    held_out = nyu.hold_out_runs(numbers, 0.125)
    assert 0.08 < len(held_out) / len(numbers) < 0.17
    kept = set(numbers) - set(held_out)
    assert not any(n + 1 in kept or n - 1 in kept for n in held_out)
    assert max(held_out) > 300
    assert min(held_out) < 100


def test_what_is_wrong_with_archives_is_reported(tmp_path):
    text = message(nyu.load, tmp_path)
    assert text == (
        "NYU Depth V2 is expected as nyuv2_320.zip, or the folder in it, with meta.json, rgb/ and depth/; "
        f"{tmp_path} is empty."
    )
    assert "got 'nyuv2'. Did you mean 'nyu'?" in message(nyu.load, tmp_path, "nyuv2")
    write_archives(tmp_path, zipped=False)
    (tmp_path / "nyuv2_320/depth/0004.png").unlink()
    place = tmp_path / "nyuv2_320/meta.json"
    assert f"{place} needs depth/0004.png beside it" in message(nyu.load, tmp_path)
    meta = json.loads(place.read_text())
    for changes, rule in (
        ({"K": {"fx": 1}}, "must give the camera, K: fx, fy, cx and cy; reading it failed: KeyError('fy')."),
        ({"train": []}, "must list the numbers of the images of the split 'train'; got []."),
        ({"eigen_crop_rows": [1]}, "must give two rows and two columns to cut out; got [1] and [3, 62]."),
    ):
        place.write_text(json.dumps(meta | changes))
        assert message(nyu.load, tmp_path) == f"{place} {rule}"
    place.write_text("[]")
    assert message(nyu.load, tmp_path) == f"{place} must hold a JSON object; got list."


@pytest.mark.skipif(not (REAL / "nyuv2_320.zip").exists(), reason="needs nyuv2_320.zip in TRAINONCE_DATA")
def test_the_real_archives():
    sets = nyu.load(REAL)
    training, validation, test = sets.training["nyu"], sets.validation.frames, sets.test.frames
    assert (len(training) + len(validation), len(test)) == (795, 654)
    assert 90 <= len(validation) <= 110
    frame = training.frame(100)
    assert tuple(frame.image.shape) == (3, 213, 280)
    assert 0.5 < frame.depth.median() < 8
    few = sets.limit(4)
    assert check(few)["test"] == 0


# The check


def frame_of(**changes):
    return make_frames(0, 1, "room")[0]._replace(**changes)


class Listed:
    """Frames in memory."""

    def __init__(self, *frames):
        self.frames = frames

    def __len__(self):
        return len(self.frames)

    def name(self, index):
        return f"frame {index}"

    def frame(self, index):
        if isinstance(self.frames[index], Exception):
            raise self.frames[index]
        return self.frames[index]


def sets_of(*frames, good=None, counts=Range(0.1, 10.0)):  # noqa: B008 immutable
    good = EvaluationSet(good or Listed(frame_of()), counts)
    return Sets({"rooms": Listed(*frames)}, good, good)


def moved(camera, **to):
    places = {"fx": (0, 0), "fy": (1, 1), "cx": (0, 2), "cy": (1, 2)}
    camera = camera.clone()
    for key, value in to.items():
        camera[places[key]] = value
    return camera


def test_good_frames_pass_and_those_with_little_depth_are_counted():
    empty = frame_of(depth=torch.zeros(SIZE))
    assert check(sets_of(frame_of(), empty, frame_of())) == {"training rooms": 1, "validation": 0, "test": 0}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            lambda f: {"depth": f.depth[:10]},
            "The image frame 1 and its depth must be of one size; they have 48x64 and 10x64 pixels.",
        ),
        (
            lambda f: {"camera": moved(f.camera, fx=float("nan"))},
            "The intrinsics of frame 1 must be a 3x3 matrix of finite numbers; not all numbers are finite.",
        ),
        (
            lambda f: {"camera": torch.eye(4)},
            "The intrinsics of frame 1 must be a 3x3 matrix of finite numbers; it is 4x4.",
        ),
        (
            lambda f: {"camera": moved(f.camera, fx=50.0, fy=-3.0)},
            "The focal lengths of frame 1 must be above 0; they are 50 and -3 pixels.",
        ),
        (
            lambda f: {"camera": moved(f.camera, cx=100.0, cy=20.0)},
            (
                "The camera of frame 1 must have its centre in the image; its image has 48x64 pixels (height x width), "
                "its centre is at x 100, y 20. Are they of the same size?"
            ),
        ),
        (
            lambda f: {"depth": f.depth.clone().fill_(torch.inf)},
            "The depth of frame 1 must be finite and not below 0, with 0 for unknown; it is not.",
        ),
        (
            lambda f: {"depth": -f.depth},
            "The depth of frame 1 must be finite and not below 0, with 0 for unknown; it is not.",
        ),
    ],
)
def test_what_is_wrong_with_a_frame_is_reported(changes, text):
    good = frame_of()
    assert message(check, sets_of(good, good._replace(**changes(good)), good)) == text


@pytest.mark.parametrize(("factor", "said"), [(1000, "1000 times too large"), (1e-3, "1000 times too small")])
def test_depth_in_another_unit_is_reported(factor, said):
    wrong = frame_of(depth=frame_of().depth * factor)
    text = message(check, sets_of(wrong, wrong, wrong))
    assert text.startswith("The depth of the set 'training rooms' must be in metres, half of it between 0.05 and 300;")
    assert text.endswith(f"likely {said}. Correct the scale; the first of them is frame 0.")


def test_depth_beyond_what_counts_is_reported():
    depth = torch.full(SIZE, 12.5)
    depth[:10] = 2.5
    said = message(check, sets_of(frame_of(), good=Listed(frame_of(depth=depth))))
    rule = "Half of the depth of the set 'validation' must be below 10 m, where its metrics end"
    assert f"{rule}; its median is 12.5 m. Is its scale right?" in said


def test_one_frame_in_another_unit_is_reported():
    wrong = frame_of(depth=frame_of().depth * 1000)
    text = message(check, sets_of(frame_of(), wrong, frame_of()))
    assert text.startswith("Depth must be in metres, half of it between 0.05 and 300; the median of ")
    assert text.endswith("Correct its scale.")


def test_a_set_without_depth_or_without_frames_is_reported():
    empty = frame_of(depth=torch.zeros(SIZE))
    assert message(check, sets_of(empty, empty)) == (
        "Frames of the set 'training rooms' must have at least 50 pixels with a depth that counts; "
        "of the 2 that were looked at, the best has 0."
    )
    assert message(check, sets_of()) == "The set 'training rooms' has no frames."
    far = Listed(frame_of(depth=frame_of().depth + 20))
    said = message(check, sets_of(frame_of(), good=far))
    assert "Frames of the set 'validation' must have" in said
    assert re.search(r"The median depth of \S.* is 2\d(\.\d)? m: is its scale right\?", said)


def test_what_cannot_be_read_is_reported_by_name():
    text = message(check, sets_of(ValueError("no such thing"), frame_of(), OSError("disk on fire")))
    assert text == "The data have 2 problems:\n- frame 0: no such thing\n- frame 2: disk on fire"


def test_at_most_so_many_frames_are_read_and_none_twice():
    class Counting(Listed):
        read = 0

        def frame(self, index):
            self.read += 1
            return super().frame(index)

    many = Counting(*[frame_of()] * 30)
    part = EvaluationSet(Subset(many, range(10)), Range(0.1, 10.0))
    sets = Sets({"a": many}, part, part)
    check(sets, most=5)
    assert 5 < many.read <= 10
    many.read = 0
    check(sets, most=0)
    assert many.read == 30 + 10  # those that are examined are looked at for depth in their range
    many.read = 0
    Sets({"a": Subset(many, [3, 3, 3])}, part, part)
    assert check(Sets({"a": Subset(many, [3, 3, 3])}, part, part), most=2)["training a"] == 0


def test_a_damaged_hdf5_set_is_found_before_training(tmp_path):
    written = write_scannet(tmp_path)
    path = tmp_path / "ScanNetS.hdf5"
    with h5py.File(path, "a") as file:
        del file["/scene0000_00/color/3.png"]
    frames = read_hdf5(tmp_path, "scannet")
    fine = EvaluationSet(read_hdf5(tmp_path, "scannet", training=False), Range(0.005, 10.0))
    assert len(frames) == len(written["train"])
    assert "must hold the node '/scene0000_00/color/3.png'; it does not." in message(
        check, Sets({"scannet": frames}, fine, fine)
    )


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
