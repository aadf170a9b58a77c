"""NYU Depth V2 in its archive, with TUM and 7-Scenes beside it, and in HDF5."""

import json
import os
from pathlib import Path

import pytest
import torch
from _depth_data import read_hdf5, write_nyu_hdf5
from _messages import message

from trainonce.recipes.depth.data import nyu
from trainonce.recipes.depth.data.check import check
from trainonce.recipes.depth.data.made_up.archives import NYU_STEP, write_archives

pytest.importorskip("h5py")

REAL = Path(os.environ.get("TRAINONCE_DATA", "none"))


def test_nyu_in_hdf5_has_one_camera_for_all(tmp_path):
    written = write_nyu_hdf5(tmp_path)
    got = read_hdf5(tmp_path, "nyu", training=False)
    assert got.frame(0).camera.tolist() == [[pytest.approx(v, abs=1e-3) for v in row] for row in nyu.HDF5.camera]
    assert (got.frame(0).depth - written["test"][0].depth).abs().max() < 6e-4


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
