"""Panels: true colours, a picture of bounded size, whole or not there."""

import sys

import pytest
import torch

from trainonce.recipes.segmentation.data.scenes import IGNORE, Classes
from trainonce.recipes.segmentation.pictures import colour_labels, write_panel
from trainonce.recipes.vision import panels

CLASSES = Classes(("sky", "road", "car"), ((10, 200, 30), (140, 50, 60), (70, 80, 250)))


def pixels(path):
    """The picture as uint8 (height, width, 3)."""
    from matplotlib.image import imread

    return torch.tensor(imread(path)[..., :3]).mul(255).round().to(torch.uint8)


def colours(picture):
    return {tuple(c) for c in picture.reshape(-1, 3).unique(dim=0).tolist()}


def row(size=(20, 40), value=0):
    image = torch.full((3, *size), 128, dtype=torch.uint8)
    truth = torch.full(size, value, dtype=torch.uint8)
    return image, image.float() + 300, truth, torch.zeros_like(truth)


def test_a_label_has_the_colours_of_its_classes_and_the_rest_is_black():
    label = torch.tensor([[0, 1, 2], [IGNORE, 3, 0]], dtype=torch.uint8)
    shown = colour_labels(label, CLASSES)
    assert shown.dtype == torch.uint8
    assert shown.shape == (3, 2, 3)
    assert [tuple(shown[:, 0, i].tolist()) for i in range(3)] == list(CLASSES.colours)
    assert shown[:, 1, :2].sum() == 0


def test_a_panel_shows_its_tiles_and_the_classes_that_occur(tmp_path):
    write_panel([row(value=1), row(value=IGNORE)], CLASSES, tmp_path / "pictures" / "scenes.png")
    picture = pixels(tmp_path / "pictures" / "scenes.png")
    height, width, _ = picture.shape
    assert 700 < width < 950
    assert height < 400
    found = colours(picture)
    assert {(128, 128, 128), (255, 255, 255), (0, 0, 0), CLASSES.colours[0], CLASSES.colours[1]} <= found
    assert CLASSES.colours[2] not in found
    tile = picture[panels.HEAD + panels.EDGE + 5, :, :]  # a line through the first scene
    order = [tuple(c) for c in tile[panels.EDGE + 5 :: 208].tolist()]
    assert order[:4] == [(128, 128, 128), (255, 255, 255), CLASSES.colours[1], CLASSES.colours[0]]
    assert [p.name for p in (tmp_path / "pictures").iterdir()] == ["scenes.png"]


@pytest.mark.parametrize("size", [(20, 40), (300, 900), (64, 216), (30, 217)])
def test_tiles_are_about_as_wide_as_each_other(size):
    label = torch.randint(3, size, dtype=torch.uint8)
    shown = panels.fit_tile(colour_labels(label, CLASSES), smooth=False)
    assert panels.TILE // 2 < shown.shape[2] <= panels.TILE
    assert shown.shape[1] / shown.shape[2] == pytest.approx(size[0] / size[1], abs=0.01)
    assert colours(shown.permute(1, 2, 0)) <= set(CLASSES.colours)


def test_noise_makes_no_large_file_and_the_same_rows_the_same_bytes(tmp_path):
    noise = torch.randint(256, (3, 512, 1024), dtype=torch.uint8)
    label = torch.zeros(512, 1024, dtype=torch.uint8)
    rows = [(noise, noise, label, label)] * 4
    for name in ("a", "b"):
        write_panel(rows, CLASSES, tmp_path / f"{name}.png")
    assert (tmp_path / "a.png").stat().st_size <= panels.LIMIT
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_a_panel_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "scenes.png"
    write_panel([row()], CLASSES, path)
    before = path.read_bytes()

    def full(self, content):
        self.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(path), "write_bytes", full)
    with pytest.raises(OSError, match="No space"):
        write_panel([row(value=2)], CLASSES, path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_scenes_of_other_sizes_fit_beside_each_other(tmp_path):
    small, large = row(), row((120, 400), 2)
    write_panel([small, (large[0], small[1], large[2], large[3])], CLASSES, tmp_path / "mixed.png")
    assert pixels(tmp_path / "mixed.png").shape[1] < 950


def test_without_scenes_nothing_is_written(tmp_path):
    write_panel([], CLASSES, tmp_path / "pictures" / "none.png")
    assert not list(tmp_path.iterdir())


def test_without_matplotlib_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r'This needs matplotlib.*pip install "trainonce\[study\]"'):
        write_panel([row()], CLASSES, tmp_path / "none.png")
    assert not list(tmp_path.iterdir())
