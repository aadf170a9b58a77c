"""ACDC: layouts, halves of recordings, and errors that explain what is missing."""

import shutil
from pathlib import Path

import pytest
import torch
from _messages import message

from trainonce.recipes.segmentation.data import acdc
from trainonce.recipes.segmentation.data.label_files import Files, class_table
from trainonce.recipes.segmentation.data.made_up import write_acdc
from trainonce.recipes.vision.files import Place


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("labels", ["labelIds", "labelTrainIds"])
def test_acdc_reads_the_same_from_every_layout(tmp_path, streets, flat, labels):
    write_acdc(tmp_path, flat=flat, labels=labels, frames=1)
    for split in ("train", "val"):
        scenes, expected = acdc.load(tmp_path, split), acdc.load(streets, split)
        assert len(scenes) == 12
        for i in range(12):
            assert Path(scenes.name(i)).name == Path(expected.name(i)).name
            assert torch.equal(scenes.image(i), expected.image(i))
            assert torch.equal(scenes.label(i), expected.label(i))


def test_flattened_copies_beside_the_originals_are_not_read_twice(tmp_path):
    write_acdc(tmp_path, frames=1)
    write_acdc(tmp_path, frames=1, flat=True)
    scenes = acdc.load(tmp_path, "val")
    assert len(scenes) == 12
    assert all("/val/G" in place.path and "rgb_anon/val" not in place.path for place in scenes.images)


def test_unlabelled_scenes_need_no_labels(tmp_path):
    write_acdc(tmp_path, frames=1)
    shutil.rmtree(tmp_path / "gt")
    assert len(acdc.load(tmp_path, "train", labelled=False)) == 12
    assert f"{tmp_path} must hold the sub-folder 'gt'; " in message(acdc.load, tmp_path, "train")


def test_acdc_explains_what_is_missing(tmp_path, streets):
    write_acdc(tmp_path / "acdc", frames=1)
    folder = tmp_path / "acdc" / "rgb_anon"
    for test in list(folder.glob("*/test")):
        shutil.rmtree(test)
    rule = f"Images named *_rgb_anon.png are expected below {folder} in folders named 'test'; "
    assert message(acdc.load, tmp_path, "test") == f"{rule}{folder} holds fog/, night/, rain/, snow/."
    shutil.rmtree(tmp_path / "acdc")
    assert "ACDC has the splits" in message(acdc.load, streets, "vall")
    assert message(acdc.find, tmp_path).startswith("ACDC is expected in a folder with the sub-folder 'rgb_anon'; ")
    write_acdc(tmp_path, frames=1)
    label = next(tmp_path.glob("gt/snow/val/*/*_labelTrainIds.png"))
    label.unlink()
    text = message(acdc.load, tmp_path, "val")
    assert text.endswith(f"has no label: there is no {tmp_path}/gt/**/val/**/{label.name}.")


def test_halves_share_no_recording_and_are_equal(tmp_path):
    write_acdc(tmp_path, frames=2)
    scenes = acdc.load(tmp_path, "val")
    first, second = acdc.halves(scenes)
    assert sorted(first + second) == list(range(24))
    assert first == sorted(first)
    assert len(first) == len(second)
    recordings = [{Path(scenes.name(i)).name[4:8] for i in half} for half in (first, second)]
    assert not recordings[0] & recordings[1]
    for half in (first, second):
        conditions = [c for c in acdc.CONDITIONS if any(f"/{c}/" in scenes.name(i) for i in half)]
        assert conditions == list(acdc.CONDITIONS)
    assert acdc.halves(acdc.load(tmp_path, "val")) == (first, second)


def recorded(*counts):
    """Scenes without files: of each recording a condition and a number of frames."""
    places = [
        Place(f"/r/{condition}/val/GOPR{recording:04d}_frame_{i:06d}_rgb_anon.png")
        for recording, (condition, frames) in enumerate(counts)
        for i in range(frames)
    ]
    return Files(tuple(places), None, class_table({}))


def test_halves_are_as_equal_as_recordings_allow():
    first, second = acdc.halves(
        recorded(("fog", 60), ("fog", 40), ("night", 106), ("rain", 100), ("snow", 50), ("snow", 50))
    )
    assert abs(len(first) - len(second)) <= 26
    first, second = acdc.halves(recorded(*[("", n) for n in (50, 30, 20, 60, 40)]))
    assert len(first) == len(second) == 100


def test_halves_say_when_they_cannot_be():
    assert message(acdc.halves, recorded(("fog", 3))) == "Halves need two recordings or more; 3 scenes come from 1."
    odd = Files((Place("/r/frame_1_rgb_anon.png"),), None, class_table({}))
    assert "The recording of /r/frame_1_rgb_anon.png must follow from a name like GOPR0376_frame_" in message(
        acdc.halves, odd
    )
