"""Scenes in files: every layout, the sets they give, and a sentence for every way in which they can be wrong."""

import dataclasses
import multiprocessing
import os
import pickle
import shutil
import zipfile
from pathlib import Path

import pytest
import torch
from _street_folders import (
    camvid_frames,
    english,
    german,
    save,
    stored,
    street,
    write_acdc,
    write_camvid,
    write_cityscapes,
)
from PIL import Image

from trainonce.recipes.segmentation.data import acdc, camvid, cityscapes
from trainonce.recipes.segmentation.data.check import check
from trainonce.recipes.segmentation.data.scenes import IGNORE, Classes, Domains, Subset
from trainonce.recipes.vision import files
from trainonce.recipes.vision.files import Files, Place

LAYOUTS = ("archive", "zip", "segnet", "original")
TWO = Classes(("a", "b"), ((0, 0, 0), (1, 1, 1)))


@pytest.fixture(scope="module")
def streets(tmp_path_factory):
    """Cityscapes and ACDC side by side, to be read only."""
    root = tmp_path_factory.mktemp("data")
    write_cityscapes(root / "cityscapes")
    write_acdc(root / "ACDC", frames=1)
    return root


@pytest.fixture(scope="module")
def cambridge(tmp_path_factory):
    """CamVid in every layout, to be read only."""
    root = tmp_path_factory.mktemp("cambridge")
    for layout in LAYOUTS:
        write_camvid(root / layout, layout, frames=2)
    return root


def one(tmp_path, image, label, **kwargs):
    """A single scene in files."""
    save(tmp_path / "image.png", image)
    save(tmp_path / "label.png", label)
    values = kwargs.pop("values", files.table({0: 0, 1: 1}))
    return Files((Place(str(tmp_path / "image.png")),), (Place(str(tmp_path / "label.png")),), values, **kwargs)


def grey(height=4, width=6, value=0):
    return torch.full((height, width), value, dtype=torch.uint8)


def rgb(height=4, width=6, value=0):
    return torch.full((height, width, 3), value, dtype=torch.uint8)


def domains(scenes, classes=TWO, **others):
    return Domains(classes, **(dict.fromkeys(("source", "style", "validation", "test"), scenes) | others))


def message(call, *args, **kwargs):
    """What the error says."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 the tests look at the text
        call(*args, **kwargs)
    return str(caught.value)


# Reading


def test_what_is_read_is_what_was_stored(streets):
    scenes = cityscapes.load(streets, "train")
    assert [Path(scenes.name(i)).name[:13] for i in (0, 5)] == ["aachen_000000", "zurich_000002"]
    for i in range(len(scenes)):
        image, label = german(i, (64, 128))
        assert torch.equal(scenes.image(i), image.permute(2, 0, 1))
        assert torch.equal(scenes.label(i), label.where(label >= 0, torch.tensor(IGNORE)).to(torch.uint8))
        assert scenes.image(i).is_contiguous()
        assert scenes.image(i).dtype == scenes.label(i).dtype == torch.uint8


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "1", "LA", "CMYK"])
def test_images_of_any_mode_become_rgb(tmp_path, mode):
    ending = "jpg" if mode == "CMYK" else "png"
    Image.new("RGB", (6, 4), (255, 255, 255)).convert(mode).save(tmp_path / f"image.{ending}")
    scenes = Files((Place(str(tmp_path / f"image.{ending}")),), None, files.table({}))
    assert scenes.image(0).shape == (3, 4, 6)
    assert scenes.image(0).float().mean() > 250


def test_a_palette_label_gives_its_indices(tmp_path):
    scenes = one(tmp_path, rgb(), grey())
    label = Image.new("P", (6, 4), 1)
    label.putpalette([200, 0, 0, 0, 200, 0])
    label.save(tmp_path / "label.png")
    assert scenes.label(0).unique().tolist() == [1]


@pytest.mark.parametrize("mode", ["I;16", "RGBA", "RGB", "1"])
def test_a_label_of_another_mode_is_reported(tmp_path, mode):
    scenes = one(tmp_path, rgb(), grey())
    Image.new(mode, (6, 4)).save(tmp_path / "label.png")
    path = tmp_path / "label.png"
    assert message(scenes.label, 0) == f"The label {path} must have one channel of 8 bits; its mode is {mode!r}."


def test_an_image_of_16_bits_is_reported(tmp_path):
    scenes = one(tmp_path, rgb(), grey())
    Image.new("I;16", (6, 4)).save(tmp_path / "image.png")
    assert "must have 8 bits per channel; its mode is 'I;16'." in message(scenes.image, 0)


def test_a_coloured_label_must_be_rgb(tmp_path):
    scenes = one(tmp_path, rgb(), grey(), colours=((0, 0, 0), (9, 9, 9)))
    assert "must have three channels of 8 bits; its mode is 'L'." in message(scenes.label, 0)


def test_a_value_that_is_no_class_is_reported(tmp_path):
    label = grey()
    label[0, :3], label[1, 0] = 2, 77
    scenes = one(tmp_path, rgb(), label)
    expected = (
        f"The label {tmp_path / 'label.png'} may hold the values 0 to 1, 255; it holds 2 (3 pixels), 77 (1 pixel)."
    )
    assert message(scenes.label, 0) == expected


def test_a_colour_that_is_no_class_is_reported(tmp_path):
    label = rgb()
    label[0, 0] = torch.tensor([1, 2, 3])
    scenes = one(tmp_path, rgb(), label, colours=((0, 0, 0), (9, 9, 9)))
    assert "may hold the 2 colours of its data set; it holds (1, 2, 3) (1 pixel)." in message(scenes.label, 0)


def test_labels_are_resized_by_nearest_pixels_and_images_smoothly(tmp_path):
    fine = (torch.arange(64)[:, None] + torch.arange(96)) % 2
    scenes = one(tmp_path, (fine[..., None] * 255).expand(64, 96, 3), fine, size=(16, 24))
    assert scenes.image(0).shape == (3, 16, 24)
    assert scenes.label(0).shape == (16, 24)
    assert (scenes.image(0)[:, 1:-1, 1:-1].float() - 127.5).abs().max() < 5  # a fine pattern turns grey
    assert set(scenes.label(0).unique().tolist()) <= {0, 1}
    larger = dataclasses.replace(scenes, size=(128, 192))
    assert torch.equal(larger.label(0), fine.repeat_interleave(2, 0).repeat_interleave(2, 1).to(torch.uint8))


def test_a_resized_image_and_its_label_stay_in_place(streets):
    small, large = (cityscapes.load(streets, "val", size=size) for size in ((32, 64), None))
    assert torch.equal(
        small.label(0), large.label(0)[1::2, 1::2]
    )  # of four pixels, the one right of and below the middle
    means = large.image(0).float().unflatten(2, (64, 2)).unflatten(1, (32, 2)).mean((2, 4))
    assert (small.image(0) - means).abs().mean() < 8


def test_a_scene_without_label_is_reported(streets):
    scenes = acdc.load(streets, "train", labelled=False)
    assert message(scenes.label, 0) == f"The scene {scenes.name(0)} was loaded without its label."


def test_files_must_fit_together():
    place = Place("a.png")
    assert "a label for each image; got 1 and 2" in message(Files, (place,), (place, place), files.table({}))
    assert "each of the 256 values; got 3" in message(Files, (place,), None, (0, 1, 2))
    assert "got (0, 4)" in message(Files, (place,), None, files.table({}), size=(0, 4))


def test_a_damaged_image_is_named(tmp_path):
    scenes = one(tmp_path, (torch.rand(64, 64, 3) * 255), grey(64, 64))
    path = tmp_path / "image.png"
    whole = path.read_bytes()
    for damaged in (b"", b"no image", whole[: len(whole) // 2], whole[:40] + b"\0" * 20 + whole[60:]):
        path.write_bytes(damaged)
        assert message(scenes.image, 0).startswith(f"The image {path} cannot be read (")
    path.unlink()
    assert "No such file" in message(scenes.image, 0)


# Archives


def test_scenes_can_be_pickled_with_and_without_an_open_archive(cambridge):
    for layout in LAYOUTS:
        scenes = camvid.load(cambridge / layout).source
        fresh = pickle.loads(pickle.dumps(scenes))
        image = scenes.image(0)
        again = pickle.loads(pickle.dumps(scenes))
        assert fresh == again == scenes
        assert torch.equal(fresh.image(0), image)
        assert torch.equal(again.image(0), image)


def sums(scenes, indices, results):
    results.put([int(scenes.image(i).sum()) for i in indices])


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_forked_processes_read_an_archive_at_the_same_time(cambridge):
    scenes = camvid.load(cambridge / "zip").source
    indices = list(range(len(scenes))) * 5
    expected = [int(scenes.image(i).sum()) for i in indices]  # the archive is open before the fork
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    workers = [context.Process(target=sums, args=(scenes, indices, results)) for _ in range(3)]
    for worker in workers:
        worker.start()
    assert [int(scenes.image(i).sum()) for i in indices] == expected
    assert [results.get() for _ in workers] == [expected] * 3
    for worker in workers:
        worker.join()


def test_a_cut_archive_and_a_damaged_member_are_reported(tmp_path):
    path = write_camvid(tmp_path, "zip", frames=1) / "camvid.zip"
    whole = path.read_bytes()
    scenes = camvid.load(path).source
    member = scenes.whole.images[scenes.indices[0]].member
    with zipfile.ZipFile(path) as archive:
        offset = archive.getinfo(member).header_offset + 30 + len(member)
    path.write_bytes(whole[: offset + 200] + b"\0" * 50 + whole[offset + 250 :])
    assert message(scenes.image, 0).startswith(f"The image {path}/{member} cannot be read (Bad CRC-32")
    cut = tmp_path / "cut" / "camvid.zip"
    cut.parent.mkdir()
    cut.write_bytes(whole[: len(whole) // 2])
    assert "is not a whole zip archive" in message(camvid.load, cut)
    assert "is not a whole zip archive" in message(camvid.load, cut.parent)


# Cityscapes


def test_train_ids_are_those_of_the_paper():
    ids = "7 road, 8 sidewalk, 11 building, 12 wall, 13 fence, 17 pole, 19 traffic light, 20 traffic sign, "
    ids += "21 vegetation, 22 terrain, 23 sky, "
    ids += "24 person, 25 rider, 26 car, 27 truck, 28 bus, 31 train, 32 motorcycle, 33 bicycle"
    expected = {int(n): name for n, name in (entry.split(" ", 1) for entry in ids.split(", "))}
    values = cityscapes.KINDS["labelIds"]
    assert {i: cityscapes.CLASSES.names[values[i]] for i in range(256) if values[i] not in (IGNORE, -1)} == expected
    assert [i for i in range(256) if values[i] == -1] == list(range(34, 255))
    assert cityscapes.KINDS["labelTrainIds"] == (*range(19), *[-1] * 236, IGNORE)
    assert len(cityscapes.CLASSES.colours) == len(set(cityscapes.CLASSES.colours)) == 19


def test_both_kinds_of_labels_give_the_same_classes(tmp_path, streets):
    write_cityscapes(tmp_path, labels="labelTrainIds")
    for split in ("train", "val"):
        ids, train_ids = cityscapes.load(streets, split), cityscapes.load(tmp_path, split)
        assert len(ids) == len(train_ids) == 6
        assert all(torch.equal(ids.label(i), train_ids.label(i)) for i in range(6))
    every = torch.cat([ids.label(i).flatten() for i in range(6)]).unique()
    assert every.tolist() == [*range(19), IGNORE]


def test_train_ids_are_preferred_once_all_are_there(tmp_path):
    write_cityscapes(tmp_path, val=1)
    labels = sorted(tmp_path.glob("gtFine/val/*/[a-z]*_labelIds.png"))
    used = []
    for path in labels:
        other = path.with_name(path.name.replace("labelIds", "labelTrainIds"))
        save(other, torch.zeros(64, 128))
        used.append({p.path.rsplit("_", 1)[1] for p in cityscapes.load(tmp_path, "val").labels})
    assert used == [{"labelIds.png"}, {"labelTrainIds.png"}]


def test_an_archives_own_folder_around_is_accepted(tmp_path):
    write_cityscapes(tmp_path / "data", train=1, val=1)
    for name in ("leftImg8bit", "gtFine"):
        around = tmp_path / f"{name}_trainvaltest"
        around.mkdir()
        (tmp_path / "data" / name).rename(around / name)
    assert len(cityscapes.load(tmp_path, "val")) == 2


def test_an_image_or_a_label_without_the_other_is_named(tmp_path):
    write_cityscapes(tmp_path, val=1)
    label = next(tmp_path.glob("gtFine/val/lindau/lindau*_labelIds.png"))
    image = next(tmp_path.glob("leftImg8bit/val/lindau/*.png"))
    kept = label.read_bytes()
    label.unlink()
    assert message(cityscapes.load, tmp_path, "val") == f"The image {image} has no label: there is no {label}."
    label.write_bytes(kept)
    image.unlink()
    assert message(cityscapes.load, tmp_path, "val") == f"The label {label} has no image: there is no {image}."


def test_a_wrong_root_is_explained(tmp_path, streets):
    city = streets / "cityscapes"
    rule = "Cityscapes is expected in a folder with the sub-folder 'leftImg8bit'; "
    assert message(cityscapes.find, tmp_path / "no") == f"{rule}there is no folder {tmp_path / 'no'}."
    assert message(cityscapes.find, tmp_path) == f"{rule}{tmp_path} is empty."
    child = city / "leftImg8bit"
    assert (
        message(cityscapes.find, child)
        == f"{rule}{child} holds train/, val/. Name the folder above 'leftImg8bit': {city}."
    )
    shutil.copytree(city, tmp_path / "mine")
    assert message(cityscapes.find, tmp_path) == f"{rule}{tmp_path} holds mine/. Name {tmp_path / 'mine'}."
    assert cityscapes.find(tmp_path / "mine") == tmp_path / "mine"
    (tmp_path / "leftImg8bit_trainvaltest.zip").touch()
    assert message(cityscapes.find, tmp_path).endswith("Unpack leftImg8bit_trainvaltest.zip there.")
    assert message(cityscapes.find, tmp_path / "leftImg8bit_trainvaltest.zip").endswith("is a file.")


def test_missing_labels_and_splits_are_explained(tmp_path):
    write_cityscapes(tmp_path, train=1, val=1)
    shutil.rmtree(tmp_path / "gtFine" / "val")
    told = message(cityscapes.load, tmp_path, "val")
    folder = tmp_path / "gtFine" / "val"
    rule = f"Labels named *_labelTrainIds.png or *_labelIds.png are expected below {folder}; "
    assert told == f"{rule}there is no folder {folder}."
    shutil.rmtree(tmp_path / "gtFine")
    (tmp_path / "gtFine_trainvaltest.zip").touch()
    told = message(cityscapes.load, tmp_path, "val")
    assert told.startswith(f"{tmp_path} must hold the sub-folder 'gtFine'; ")
    assert told.endswith("Unpack gtFine_trainvaltest.zip there.")
    (tmp_path / "gtFine").mkdir()
    (tmp_path / "leftImg8bit" / "test").mkdir()
    folder = tmp_path / "leftImg8bit" / "test"
    told = message(cityscapes.load, tmp_path, "test")
    assert told == f"Images named *_leftImg8bit.png are expected below {folder}; {folder} is empty."
    told = message(cityscapes.load, tmp_path, "validation")
    assert told == "Cityscapes has the splits 'train', 'val', 'test'; got 'validation'. Did you mean 'val'?"


# ACDC


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
    told = message(acdc.load, streets, "test")
    folder = streets / "ACDC" / "rgb_anon"
    rule = f"Images named *_rgb_anon.png are expected below {folder} in folders named 'test'; "
    assert told == f"{rule}{folder} holds fog/, night/, rain/, snow/."
    assert "ACDC has the splits" in message(acdc.load, streets, "vall")
    assert message(acdc.find, tmp_path).startswith("ACDC is expected in a folder with the sub-folder 'rgb_anon'; ")
    write_acdc(tmp_path, frames=1)
    label = next(tmp_path.glob("gt/snow/val/*/*_labelTrainIds.png"))
    label.unlink()
    told = message(acdc.load, tmp_path, "val")
    assert told.endswith(f"has no label: there is no {tmp_path}/gt/**/val/**/{label.name}.")


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
    return Files(tuple(places), None, files.table({}))


def test_halves_are_as_equal_as_recordings_allow():
    first, second = acdc.halves(
        recorded(("fog", 60), ("fog", 40), ("night", 106), ("rain", 100), ("snow", 50), ("snow", 50))
    )
    assert abs(len(first) - len(second)) <= 26
    first, second = acdc.halves(recorded(*[("", n) for n in (50, 30, 20, 60, 40)]))
    assert len(first) == len(second) == 100


def test_halves_say_when_they_cannot_be():
    assert message(acdc.halves, recorded(("fog", 3))) == "Halves need two recordings or more; 3 scenes come from 1."
    odd = Files((Place("/r/frame_1_rgb_anon.png"),), None, files.table({}))
    assert "The recording of /r/frame_1_rgb_anon.png must be told by a name like GOPR0376_frame_" in message(
        acdc.halves, odd
    )


# CamVid


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
    told = message(camvid.load, cambridge / "zip", "offical")
    assert told == "CamVid has the protocols 'day2dusk', 'official'; got 'offical'. Did you mean 'official'?"
    told = message(camvid.load, tmp_path)
    assert told.startswith(
        "CamVid is expected as a folder or a zip archive with images/NAME.jpg and labels/NAME.png, or "
    )
    assert told.endswith(f"; {tmp_path} is empty.")
    assert message(camvid.load, tmp_path / "no.zip").endswith(f"there is no folder {tmp_path / 'no.zip'}.")
    root = tmp_path / "camvid"
    shutil.copytree(cambridge / "archive", root)
    label = root / "labels" / "0001TP_006690.png"
    label.unlink()
    told = message(camvid.load, tmp_path)
    assert told == f"The image {root}/images/0001TP_006690.jpg has no label: there is no {label}."
    (root / "images" / "0001TP_006690.jpg").unlink()
    told = message(camvid.load, tmp_path)
    assert told.startswith(f"The split 'train' of {root} names the frame 0001TP_006690; there is no {root}/images/")
    (root / "splits.json").write_text('{"train": []}')
    assert "must hold lists of names under 'official_split'" in message(camvid.load, tmp_path)
    (root / "splits.json").write_text('{"official_split": {"train": [], "val": [], "test": []}}')
    told = message(camvid.load, tmp_path)
    assert (
        told == f"CamVid needs dusk frames (0001TP) in the training split; {root} holds 11 frames, but none of these."
    )


# Looking at all of it


def test_good_data_pass_and_each_file_is_read_once(cambridge, monkeypatch):
    read = []
    monkeypatch.setattr(Place, "read", lambda place, whole=Place.read: read.append(str(place)) or whole(place))
    for layout in LAYOUTS:
        found = camvid.load(cambridge / layout)
        read.clear()
        check(found, (48, 64), same_size=True)
        assert len(read) == len(set(read)) == 2 * (6 + 2 + 2 + 2)


def test_labels_of_style_are_not_read(streets):
    found = Domains(
        cityscapes.CLASSES,
        source=cityscapes.load(streets, "train", (32, 64)),
        style=acdc.load(streets, "train", (32, 64), labelled=False),
        validation=acdc.load(streets, "val", (32, 64)),
        test=acdc.load(streets, "val", (32, 64)),
    )
    check(found, (32, 64), same_size=True, threads=2)
    told = message(check, dataclasses.replace(found, validation=found.style), (32, 64))
    assert told.startswith("The data have 12 problems:\n- The scene ")
    assert told.endswith("\n- and 7 more.")
    assert len(told.splitlines()) == 7


def test_check_names_what_is_wrong_with_a_scene(tmp_path):
    scenes = one(tmp_path, rgb(4, 6), grey(4, 6))
    image, label = tmp_path / "image.png", tmp_path / "label.png"
    check(domains(scenes), (4, 6))
    told = message(check, domains(scenes), (4, 7))
    rule = f"The image {image} must have at least the 4x7 pixels that are cut out of it"
    assert told == f"{rule}; it has 4x6. Make frame and crop smaller."
    save(label, grey(5, 6))
    told = message(check, domains(scenes), (4, 6))
    assert told == f"The image {image} and its label must be of one size; they have 4x6 and 5x6 pixels."
    assert told == message(check, domains(dataclasses.replace(scenes, size=(2, 2))), (2, 2))
    save(label, grey(value=9))
    told = message(check, domains(scenes), (4, 6))
    assert told == f"The label {label} may hold the values 0 to 1, 255; it holds 9 (24 pixels)."
    image.write_bytes(image.read_bytes()[:45])
    assert message(check, domains(scenes), (4, 6)).startswith(f"The image {image} cannot be read (")


def test_crops_are_taken_of_source_and_style_alone(tmp_path):
    scenes = one(tmp_path, rgb(4, 6), grey(4, 6))
    (tmp_path / "large").mkdir()
    large = one(tmp_path / "large", rgb(8, 8), grey(8, 8))
    check(domains(scenes, source=large, style=large), (8, 8))
    assert "at least the 8x8 pixels" in message(check, domains(large, style=scenes), (8, 8))


def test_check_wants_scenes_and_one_size_where_asked(tmp_path):
    parts = []
    for i, height in enumerate((4, 4, 5)):
        (tmp_path / str(i)).mkdir()
        parts.append(one(tmp_path / str(i), rgb(height), grey(height)))
    whole = Files(tuple(p.images[0] for p in parts), tuple(p.labels[0] for p in parts), parts[0].values)
    check(domains(whole), (4, 6))
    check(domains(dataclasses.replace(whole, size=(4, 6))), (4, 6), same_size=True)
    told = message(check, domains(whole), (4, 6), same_size=True)
    rule = "The images of the set 'source' must be of one size; most have 4x6 pixels"
    assert told == f"{rule}, {whole.name(2)} has 5x6. Set size=."
    told = message(check, domains(whole, others={"night": Subset(whole, ())}), (4, 6))
    assert told == "The set 'night' has no scenes."


class Made:
    """Scenes that are no files."""

    def __init__(self, value, height=4):
        self.value, self.height = value, height

    def __len__(self):
        return 2

    def name(self, index):
        return f"scene {index}"

    def image(self, index):
        return torch.zeros(3, self.height, 6, dtype=torch.uint8)

    def label(self, index):
        if self.value is None:
            raise ValueError("there is no label.")
        return torch.full((4, 6), self.value, dtype=torch.uint8)


def test_scenes_that_are_no_files_are_checked_too():
    check(domains(Made(1)), (4, 6))
    check(domains(Made(IGNORE)), (4, 6))
    told = message(check, domains(Made(1), test=Made(3)), (4, 6))
    assert "- The label of scene 0 may hold the classes 0 to 1 and 255; it holds 3 (24 pixels).\n" in told
    assert "- scene 1: there is no label." in message(check, domains(Made(1), test=Made(None)), (4, 6))
    assert "must be of one size; they have 5x6 and 4x6 pixels." in message(check, domains(Made(1, height=5)), (4, 6))


# The miniatures themselves


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


# Real data


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
