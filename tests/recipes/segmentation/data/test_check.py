"""The check of the data before training."""

import dataclasses

import torch
from _messages import message
from _street_folders import grey, one_scene, rgb

from trainonce.recipes.segmentation.data import acdc, camvid, cityscapes
from trainonce.recipes.segmentation.data.check import check
from trainonce.recipes.segmentation.data.label_files import Files
from trainonce.recipes.segmentation.data.made_up import LAYOUTS, save
from trainonce.recipes.segmentation.data.scenes import IGNORE, Classes, Domains, Subset
from trainonce.recipes.vision.files import Place

TWO = Classes(("a", "b"), ((0, 0, 0), (1, 1, 1)))


def domains(scenes, classes=TWO, **others):
    return Domains(classes, **(dict.fromkeys(("source", "style", "validation", "test"), scenes) | others))


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
    text = message(check, dataclasses.replace(found, validation=found.style), (32, 64))
    assert text.startswith("The data have 12 problems:\n- The scene ")
    assert text.endswith("\n- and 7 more.")
    assert len(text.splitlines()) == 7


def test_check_names_what_is_wrong_with_a_scene(tmp_path):
    scenes = one_scene(tmp_path, rgb(4, 6), grey(4, 6))
    image, label = tmp_path / "image.png", tmp_path / "label.png"
    check(domains(scenes), (4, 6))
    text = message(check, domains(scenes), (4, 7))
    rule = f"The image {image} must have at least the 4x7 pixels that are cut out of it"
    assert text == f"{rule}; it has 4x6. Make frame and crop smaller."
    save(label, grey(5, 6))
    text = message(check, domains(scenes), (4, 6))
    assert text == f"The image {image} and its label must be of one size; they have 4x6 and 5x6 pixels."
    assert text == message(check, domains(dataclasses.replace(scenes, size=(2, 2))), (2, 2))
    save(label, grey(value=9))
    text = message(check, domains(scenes), (4, 6))
    assert text == f"The label {label} may hold the values 0 to 1, 255; it holds 9 (24 pixels)."
    image.write_bytes(image.read_bytes()[:45])
    assert message(check, domains(scenes), (4, 6)).startswith(f"The image {image} cannot be read (")


def test_crops_are_taken_of_source_and_style_alone(tmp_path):
    scenes = one_scene(tmp_path, rgb(4, 6), grey(4, 6))
    (tmp_path / "large").mkdir()
    large = one_scene(tmp_path / "large", rgb(8, 8), grey(8, 8))
    check(domains(scenes, source=large, style=large), (8, 8))
    assert "at least the 8x8 pixels" in message(check, domains(large, style=scenes), (8, 8))


def test_check_wants_scenes_and_one_size_where_asked(tmp_path):
    parts = []
    for i, height in enumerate((4, 4, 5)):
        (tmp_path / str(i)).mkdir()
        parts.append(one_scene(tmp_path / str(i), rgb(height), grey(height)))
    whole = Files(tuple(p.images[0] for p in parts), tuple(p.labels[0] for p in parts), parts[0].values)
    check(domains(whole), (4, 6))
    check(domains(dataclasses.replace(whole, size=(4, 6))), (4, 6), same_size=True)
    text = message(check, domains(whole), (4, 6), same_size=True)
    rule = "The images of the set 'source' must be of one size; most have 4x6 pixels"
    assert text == f"{rule}, {whole.name(2)} has 5x6. Set size=."
    text = message(check, domains(whole, others={"night": Subset(whole, ())}), (4, 6))
    assert text == "The set 'night' has no scenes."


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
    text = message(check, domains(Made(1), test=Made(3)), (4, 6))
    assert "- The label of scene 0 may hold the classes 0 to 1 and 255; it holds 3 (24 pixels).\n" in text
    assert "- scene 1: there is no label." in message(check, domains(Made(1), test=Made(None)), (4, 6))
    assert "must be of one size; they have 5x6 and 4x6 pixels." in message(check, domains(Made(1, height=5)), (4, 6))
