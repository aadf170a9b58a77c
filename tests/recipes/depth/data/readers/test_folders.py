"""Frames in folders: what was written comes back, and errors name what is missing."""

import pytest
import torch
from _depth_data import assert_same
from _messages import message

from trainonce.recipes.depth.data import paper_data
from trainonce.recipes.depth.data.made_up.folders import matrix, write_extracted_folder, write_scannet_folder
from trainonce.recipes.depth.data.made_up.frames import make_frames
from trainonce.recipes.depth.data.readers import folders
from trainonce.recipes.vision.encode import write_file
from trainonce.recipes.vision.files import Place


def test_extracted_folders_give_back_what_was_written(folder_root):
    root, written = folder_root
    for training, split in ((True, "train"), (False, "test")):
        got = folders.frames(root / "waymo", paper_data.FOLDERS, training=training, sequences=True)
        assert len(got) == len(written["waymo"][split]) == (6 if training else 2)
        for index, expected in enumerate(written["waymo"][split]):
            assert_same(got.frame(index), expected, 256, camera=False)
            torch.testing.assert_close(got.frame(index).camera, expected.camera, rtol=1e-4, atol=1e-4)
    assert len(folders.frames(root / "waymo", paper_data.FOLDERS)) == 12
    assert len(folders.frames(root / "waymo", paper_data.FOLDERS, training=False)) == 6


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
    assert len(folders.frames(tmp_path / "waymo", paper_data.FOLDERS, training=False)) == 6
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
    write_file(tmp_path / "k.txt", text)
    assert message(folders.read_intrinsics, Place(str(tmp_path / "k.txt"))) == f"{tmp_path}/k.txt {rule}"


def test_intrinsics_are_read_in_all_shapes(tmp_path):
    camera = make_frames(0, 1, "room")[0].camera
    (fx, _, cx), (_, fy, cy), _ = camera.tolist()
    wide = "\n".join(" ".join(map(str, [*row, 0.0])) for row in camera.tolist())
    for text in (matrix(camera), matrix(camera, 4), wide, f"{fx}, {fy}, {cx}, {cy}", str(camera.tolist())):
        write_file(tmp_path / "k.txt", text)
        torch.testing.assert_close(
            folders.read_intrinsics(Place(str(tmp_path / "k.txt"))), camera, atol=1e-5, rtol=1e-6
        )
