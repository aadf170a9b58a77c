"""Cityscapes: classes, layouts, and errors that explain what is missing."""

import shutil

import torch
from _messages import message

from trainonce.recipes.segmentation.data import cityscapes
from trainonce.recipes.segmentation.data.made_up import save, write_cityscapes
from trainonce.recipes.segmentation.data.scenes import IGNORE


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
    text = message(cityscapes.load, tmp_path, "val")
    folder = tmp_path / "gtFine" / "val"
    rule = f"Labels named *_labelTrainIds.png or *_labelIds.png are expected below {folder}; "
    assert text == f"{rule}there is no folder {folder}."
    shutil.rmtree(tmp_path / "gtFine")
    (tmp_path / "gtFine_trainvaltest.zip").touch()
    text = message(cityscapes.load, tmp_path, "val")
    assert text.startswith(f"{tmp_path} must hold the sub-folder 'gtFine'; ")
    assert text.endswith("Unpack gtFine_trainvaltest.zip there.")
    (tmp_path / "gtFine").mkdir()
    (tmp_path / "leftImg8bit" / "test").mkdir()
    folder = tmp_path / "leftImg8bit" / "test"
    text = message(cityscapes.load, tmp_path, "test")
    assert text == f"Images named *_leftImg8bit.png are expected below {folder}; {folder} is empty."
    text = message(cityscapes.load, tmp_path, "validation")
    assert text == "Cityscapes has the splits 'train', 'val', 'test'; got 'validation'. Did you mean 'val'?"
