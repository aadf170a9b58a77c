"""Images and labels in files: modes, values, sizes, archives, and errors that name the file."""

import dataclasses
import multiprocessing
import pickle
import zipfile
from pathlib import Path

import pytest
import torch
from _messages import message
from _street_folders import grey, one_scene, rgb
from PIL import Image

from trainonce.recipes.segmentation.data import acdc, camvid, cityscapes
from trainonce.recipes.segmentation.data.label_files import Files, class_table
from trainonce.recipes.segmentation.data.made_up import LAYOUTS, german, write_camvid
from trainonce.recipes.segmentation.data.scenes import IGNORE
from trainonce.recipes.vision.files import Place


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
    scenes = Files((Place(str(tmp_path / f"image.{ending}")),), None, class_table({}))
    assert scenes.image(0).shape == (3, 4, 6)
    assert scenes.image(0).float().mean() > 250


def test_a_palette_label_gives_its_indices(tmp_path):
    scenes = one_scene(tmp_path, rgb(), grey())
    label = Image.new("P", (6, 4), 1)
    label.putpalette([200, 0, 0, 0, 200, 0])
    label.save(tmp_path / "label.png")
    assert scenes.label(0).unique().tolist() == [1]


@pytest.mark.parametrize("mode", ["I;16", "RGBA", "RGB", "1"])
def test_a_label_of_another_mode_is_reported(tmp_path, mode):
    scenes = one_scene(tmp_path, rgb(), grey())
    Image.new(mode, (6, 4)).save(tmp_path / "label.png")
    path = tmp_path / "label.png"
    assert message(scenes.label, 0) == f"The label {path} must have one channel of 8 bits; its mode is {mode!r}."


def test_an_image_of_16_bits_is_reported(tmp_path):
    scenes = one_scene(tmp_path, rgb(), grey())
    Image.new("I;16", (6, 4)).save(tmp_path / "image.png")
    assert "must have 8 bits per channel; its mode is 'I;16'." in message(scenes.image, 0)


def test_a_coloured_label_must_be_rgb(tmp_path):
    scenes = one_scene(tmp_path, rgb(), grey(), colours=((0, 0, 0), (9, 9, 9)))
    assert "must have three channels of 8 bits; its mode is 'L'." in message(scenes.label, 0)


def test_a_value_that_is_no_class_is_reported(tmp_path):
    label = grey()
    label[0, :3], label[1, 0] = 2, 77
    scenes = one_scene(tmp_path, rgb(), label)
    expected = (
        f"The label {tmp_path / 'label.png'} may hold the values 0 to 1, 255; it holds 2 (3 pixels), 77 (1 pixel)."
    )
    assert message(scenes.label, 0) == expected


def test_a_colour_that_is_no_class_is_reported(tmp_path):
    label = rgb()
    label[0, 0] = torch.tensor([1, 2, 3])
    scenes = one_scene(tmp_path, rgb(), label, colours=((0, 0, 0), (9, 9, 9)))
    assert "may hold the 2 colours of its data set; it holds (1, 2, 3) (1 pixel)." in message(scenes.label, 0)


def test_labels_are_resized_by_nearest_pixels_and_images_smoothly(tmp_path):
    fine = (torch.arange(64)[:, None] + torch.arange(96)) % 2
    scenes = one_scene(tmp_path, (fine[..., None] * 255).expand(64, 96, 3), fine, size=(16, 24))
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
    assert "a label for each image; got 1 and 2" in message(Files, (place,), (place, place), class_table({}))
    assert "each of the 256 values; got 3" in message(Files, (place,), None, (0, 1, 2))
    assert "got (0, 4)" in message(Files, (place,), None, class_table({}), size=(0, 4))


def test_a_damaged_image_is_named(tmp_path):
    scenes = one_scene(tmp_path, (torch.rand(64, 64, 3) * 255), grey(64, 64))
    path = tmp_path / "image.png"
    whole = path.read_bytes()
    for damaged in (b"", b"no image", whole[: len(whole) // 2], whole[:40] + b"\0" * 20 + whole[60:]):
        path.write_bytes(damaged)
        assert message(scenes.image, 0).startswith(f"The image {path} cannot be read (")
    path.unlink()
    assert "No such file" in message(scenes.image, 0)


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
