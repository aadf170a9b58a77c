"""CamVid: layouts, protocols, and errors that explain what is wrong."""

import os
import shutil
from pathlib import Path

import pytest
import torch
from _messages import message

from trainonce.recipes.segmentation.data import camvid
from trainonce.recipes.segmentation.data.check import check
from trainonce.recipes.segmentation.data.made_up import (
    LAYOUTS,
    camvid_frames,
    english,
    german,
    stored,
    street,
    write_camvid,
)
from trainonce.recipes.segmentation.data.scenes import IGNORE


@pytest.mark.parametrize("layout", LAYOUTS)
def test_camvid_reads_the_same_from_every_layout(cambridge, layout):
    found = camvid.load(cambridge / layout)
    assert {name: len(scenes) for name, scenes in found.sets().items()} == {
        "source": 6,
        "style": 2,
        "validation": 2,
        "test": 2,
        "day": 2,
    }
    assert found.style is found.validation
    numbers = {name: (i, condition) for i, (name, condition, _) in enumerate(sorted(camvid_frames(2)))}
    for scenes in found.sets().values():
        for i in range(len(scenes)):
            number, condition = numbers[Path(scenes.name(i)).stem]
            image, label = english(number, (48, 64), condition)
            assert torch.equal(scenes.label(i), label.where(label >= 0, torch.tensor(IGNORE)).to(torch.uint8))
            difference = (scenes.image(i).float() - image.permute(2, 0, 1).float()).abs().mean()
            assert difference < (30 if layout in ("archive", "zip") else 1e-6)  # JPEG blurs the noise


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_protocols_take_the_frames_they_say(cambridge, layout):
    def names(scenes):
        return [Path(scenes.name(i)).stem for i in range(len(scenes))]

    dusk = camvid.load(cambridge / layout, "day2dusk")
    assert {name[:6] for name in names(dusk.source)} == {"0006R0", "0016E5"}
    assert names(dusk.validation) == ["0001TP_006690", "0001TP_006720"]
    assert names(dusk.test) == ["0001TP_008550", "0001TP_008580"]
    assert names(dusk.others["day"]) == ["Seq05VD_f00000", "Seq05VD_f00030"]
    splits = camvid.load(cambridge / layout, "official")
    expected = {s: sorted(n for n, _, split in camvid_frames(2) if split == s) for s in ("train", "val", "test")}
    assert [names(scenes) for scenes in (splits.source, splits.validation, splits.test)] == list(expected.values())
    assert names(splits.style) == names(dusk.style)
    assert not splits.others


def test_the_published_layout_needs_no_lists(tmp_path, cambridge):
    write_camvid(tmp_path, "original", frames=2, lists=False)
    for protocol in camvid.PROTOCOLS:
        with_lists, without = (camvid.load(root, protocol) for root in (cambridge / "original", tmp_path))
        for name, scenes in without.sets().items():
            assert scenes.indices == with_lists.sets()[name].indices


@pytest.mark.parametrize("inside", ["camvid", "CamVid"])
def test_camvid_is_found_one_folder_down_and_in_its_archive(tmp_path, cambridge, inside):
    shutil.copytree(cambridge / "segnet", tmp_path / inside)
    assert len(camvid.load(tmp_path).source) == 6
    assert camvid.find(cambridge / "zip") == cambridge / "zip" / "camvid.zip"
    assert len(camvid.load(cambridge / "zip" / "camvid.zip", size=(24, 32)).source) == 6


def test_the_32_colours_are_distinct_and_cover_the_11_classes():
    assert len(camvid.COLOURS) == 32
    assert set(camvid.COLOURS.values()) == {*camvid.CLASSES.names, ""}
    for name, colour in zip(camvid.CLASSES.names, camvid.CLASSES.colours, strict=True):
        assert camvid.COLOURS[colour] == name


def test_camvid_explains_what_is_wrong(tmp_path, cambridge):
    text = message(camvid.load, cambridge / "zip", "offical")
    assert text == "CamVid has the protocols 'day2dusk', 'official'; got 'offical'. Did you mean 'official'?"
    text = message(camvid.load, tmp_path)
    assert text.startswith(
        "CamVid is expected as a folder or a zip archive with images/NAME.jpg and labels/NAME.png, or "
    )
    assert text.endswith(f"; {tmp_path} is empty.")
    assert message(camvid.load, tmp_path / "no.zip").endswith(f"there is no folder {tmp_path / 'no.zip'}.")
    root = tmp_path / "camvid"
    shutil.copytree(cambridge / "archive", root)
    label = root / "labels" / "0001TP_006690.png"
    label.unlink()
    text = message(camvid.load, tmp_path)
    assert text == f"The image {root}/images/0001TP_006690.jpg has no label: there is no {label}."
    (root / "images" / "0001TP_006690.jpg").unlink()
    text = message(camvid.load, tmp_path)
    assert text.startswith(f"The split 'train' of {root} names the frame 0001TP_006690; there is no {root}/images/")
    (root / "splits.json").write_text('{"train": []}')
    assert "must hold lists of names under 'official_split'" in message(camvid.load, tmp_path)
    (root / "splits.json").write_text('{"official_split": {"train": [], "val": [], "test": []}}')
    text = message(camvid.load, tmp_path)
    assert (
        text == f"CamVid needs dusk frames (0001TP) in the training split; {root} holds 11 frames, but none of these."
    )


def test_miniatures_show_every_class_and_repeat():
    image, label = german(3, (64, 128))
    again = german(3, (64, 128))
    assert torch.equal(image, again[0])
    assert torch.equal(label, again[1])
    assert stored(label, "labelIds").max() <= 33
    dark, _ = german(3, (64, 128), "night")
    assert dark.float().mean() < 0.5 * image.float().mean()
    seen = torch.cat([english(i, (48, 64))[1].flatten() for i in range(2)]).unique()
    assert seen.tolist() == list(range(-1, 11))
    small, _ = street(0, (16, 16), ("car",), ("road",), camvid.CLASSES)
    assert small.shape == (16, 16, 3)


@pytest.fixture
def real():
    folder = os.environ.get("TRAINONCE_DATA", "")
    if not folder or not (Path(folder) / "camvid.zip").is_file():
        pytest.skip("needs camvid.zip in the folder that TRAINONCE_DATA names")
    return Path(folder)


def test_the_real_archive(real):
    found = camvid.load(real)
    assert [len(scenes) for scenes in found.sets().values()] == [406, 62, 62, 62, 171]
    splits = camvid.load(real, "official")
    assert [len(scenes) for scenes in (splits.source, splits.validation, splits.test)] == [367, 101, 233]
    for split, scenes in zip(camvid.SPLITS, (splits.source, splits.validation, splits.test), strict=True):
        assert {camvid.official_split(Path(scenes.name(i)).stem) for i in range(len(scenes))} == {split}
    check(found, (360, 480), same_size=True)
    bright = [
        torch.stack([s.image(i).float().mean() for i in range(0, 62, 8)]).mean() for s in (found.source, found.test)
    ]
    assert bright[0] > 1.4 * bright[1]
