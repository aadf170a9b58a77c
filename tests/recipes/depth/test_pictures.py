"""Pictures: one scale a row, grey where nothing is known, near points before far ones, whole files or none."""

import math
import sys

import pytest
import torch

from trainonce.recipes.depth import pictures
from trainonce.recipes.depth.data.frames import Frame
from trainonce.recipes.depth.pictures import Viewpoint
from trainonce.recipes.vision import panels

SIZE = (24, 36)
STRAIGHT = Viewpoint(torch.eye(3), torch.zeros(3), 10.0, (8.0, 6.0))


def camera(focal=30.0):
    return torch.tensor([[focal, 0, 18.0], [0, focal, 12.0], [0, 0, 1]])


def shown(factor=1.0, size=SIZE, image=None, predicted=30.0):
    image = torch.full((3, *size), 128, dtype=torch.uint8) if image is None else image
    truth = torch.linspace(1, 4, size[1]).expand(size).clone()
    truth[:4] = 0
    return Frame(image, truth, camera()), truth.clamp(min=1) * factor, camera(predicted)


def pixels(path):
    from matplotlib.image import imread

    return torch.tensor(imread(path)[..., :3]).mul(255).round().to(torch.uint8)


# Depth maps


def test_values_are_colours_of_the_scale_and_grey_where_unknown():
    table = pictures._colour_table("viridis")
    values = torch.tensor([[1.0, 2.0, 4.0, 8.0, 0.0, math.nan]])
    linear = pictures.colour_map(values, 1, 5, "viridis")[:, 0].T
    assert linear[:4].tolist() == [table[i].tolist() for i in (0, 64, 191, 255)]
    log = pictures.colour_map(values, 1, 16, "viridis", log=True)[:, 0].T
    assert log[:4].tolist() == [table[i].tolist() for i in (0, 64, 128, 191)]
    assert linear[4:].tolist() == log[4:].tolist() == [list(pictures.UNKNOWN)] * 2


def test_the_span_leaves_out_the_ends_and_what_is_unknown():
    truth = torch.cat((torch.zeros(500), torch.arange(1, 102).float()))
    assert pictures.colour_range(truth) == (3.0, 99.0)
    assert pictures.colour_range(torch.zeros(5)) == (0.1, 1.0)
    low, high = pictures.colour_range(torch.full((5,), 2.0))
    assert low == 2
    assert high > low


def tile(picture, column, row=0):
    """The middle of a tile of the first row."""
    x = panels.EDGE + column * (panels.TILE + panels.GAP) + panels.TILE // 2
    return tuple(picture[panels.HEAD + 100 + row, x].tolist())


def test_truth_and_prediction_share_a_scale_and_the_error_has_its_own(tmp_path):
    pictures.write_panel([shown(1.0), shown(1.25)], tmp_path / "pictures" / "depth.png")
    picture = pixels(tmp_path / "pictures" / "depth.png")
    assert tile(picture, 0) == (128, 128, 128)
    assert tile(picture, 1) == tile(picture, 2)
    assert tile(picture, 3) == tuple(pictures._colour_table(pictures.LITTLE_MUCH)[0].tolist())
    below = 24 * 6 + panels.GAP
    assert tile(picture, 1, below) == tile(picture, 1)
    assert tile(picture, 2, below) != tile(picture, 2)
    half = pictures._colour_table(pictures.LITTLE_MUCH)[128]
    assert (torch.tensor(tile(picture, 3, below)) - half.int()).abs().max() <= 4
    assert pictures.UNKNOWN in {tuple(c) for c in picture.reshape(-1, 3).unique(dim=0).tolist()}
    bar = picture[panels.HEAD : panels.HEAD + 144, panels.EDGE + 4 * (panels.TILE + panels.GAP) + 3]
    table = pictures._colour_table(pictures.NEAR_FAR)
    assert torch.equal(bar[[0, -1]], table[[255, 0]])
    assert [p.name for p in (tmp_path / "pictures").iterdir()] == ["depth.png"]


# Points


def test_the_nearer_point_covers_the_farther():
    scene = torch.tensor([[0.0, 0, 2], [0, 0, 1], [0.5, 0.25, 1.0]])
    colours = torch.tensor([[255, 0, 0], [0, 255, 0], [0, 0, 255]], dtype=torch.uint8)
    for order in ([0, 1, 2], [2, 1, 0], [1, 0, 2]):
        picture = pictures.render_points(scene[order], colours[order], torch.full((3,), 0.01), STRAIGHT, (12, 16))
        drawn = (picture != pictures.PAPER).any(0).nonzero().tolist()
        assert len(drawn) == 2
        (first, second) = drawn
        assert picture[:, first[0], first[1]].tolist() == [0, 255, 0]
        assert picture[:, second[0], second[1]].tolist() == [0, 0, 255]
        assert (second[0] - first[0], second[1] - first[1]) == (2, 5)


def test_near_points_are_large_and_those_behind_or_outside_are_not_drawn():
    scene = torch.tensor([[0.0, 0, 1], [0, 0, -1], [50, 0, 1], [math.inf, 0, 1]])
    colours = torch.zeros(4, 3, dtype=torch.uint8)
    picture = pictures.render_points(scene, colours, torch.full((4,), 0.3), STRAIGHT, (12, 16))
    side = math.ceil(pictures.OVERLAP * 10 * 0.3)
    assert int((picture[0] == 0).sum()) == side**2
    behind = pictures.render_points(-scene[:1], colours[:1], torch.ones(1), STRAIGHT, (12, 16))
    assert (behind == pictures.PAPER).all()


def test_a_viewpoint_is_raised_looks_down_and_has_the_scene_in_its_picture():
    rng = torch.Generator().manual_seed(0)
    scene = torch.rand(2000, 3, generator=rng) * torch.tensor([4.0, 2.5, 5.0]) + torch.tensor([-2.0, -1.5, 1.0])
    seen_from = pictures.viewpoint(scene, (240, 320))
    assert seen_from.place[1] < scene[:, 1].median() - 0.5
    assert seen_from.turn[2, 1] > 0.3
    torch.testing.assert_close(seen_from.turn @ seen_from.turn.T, torch.eye(3))
    assert float(torch.linalg.det(seen_from.turn)) == pytest.approx(1)
    x, y, z = ((scene - seen_from.place) @ seen_from.turn.T).T
    u, v = seen_from.focal * x / z + seen_from.centre[0], seen_from.focal * y / z + seen_from.centre[1]
    inside = (u > 0) & (u < 320) & (v > 0) & (v < 240) & (z > 0)
    assert float(inside.float().mean()) > 0.95
    assert max(float(u.max() - u.min()) / 320, float(v.max() - v.min()) / 240) > 0.9


def test_clouds_of_equal_predictions_look_equal_and_of_others_do_not(tmp_path):
    pictures.write_clouds([shown(), shown(1.5, predicted=45.0)], tmp_path / "clouds.png")
    picture = pixels(tmp_path / "clouds.png").int()
    first, second = (panels.EDGE + i * (panels.TILE + panels.GAP) for i in (1, 2))
    rows = slice(panels.HEAD, panels.HEAD + 100)
    assert torch.equal(picture[rows, first : first + 216], picture[rows, second : second + 216])
    assert (picture[rows, first : first + 216] < 200).any()
    rows = slice(panels.HEAD + 180, panels.HEAD + 280)
    assert not torch.equal(picture[rows, first : first + 216], picture[rows, second : second + 216])


def test_a_frame_without_depth_can_be_drawn(tmp_path):
    frame, *found = shown()
    empty = (frame._replace(depth=torch.zeros(SIZE)), *found)
    pictures.write_panel([empty], tmp_path / "depth.png")
    pictures.write_cloud(empty, tmp_path / "clouds.png")
    first, second = (panels.EDGE + i * (panels.TILE + panels.GAP) for i in (1, 2))
    drawn = pixels(tmp_path / "clouds.png")[panels.HEAD :]
    assert (drawn[:, first : first + 216] == 255).all()
    assert (drawn[:, second : second + 216] < 200).any()
    assert tile(pixels(tmp_path / "depth.png"), 1) == pictures.UNKNOWN


# The file


@pytest.mark.parametrize("write", [pictures.write_panel, pictures.write_clouds])
def test_a_file_is_bounded_the_same_again_and_replaced_whole(write, tmp_path, monkeypatch):
    rng = torch.Generator().manual_seed(0)
    noise = torch.randint(256, (3, 216, 216), generator=rng, dtype=torch.uint8)
    rows = [shown(1.1, (216, 216), noise)] * 3
    path = tmp_path / "a.png"
    for name in ("a", "b"):
        write(rows, tmp_path / f"{name}.png")
    assert path.read_bytes() == (tmp_path / "b.png").read_bytes()
    assert path.stat().st_size <= panels.LIMIT
    before = path.read_bytes()

    def full(self, content):
        self.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(path), "write_bytes", full)
    with pytest.raises(OSError, match="No space"):
        write(rows[:1], path)
    assert path.read_bytes() == before
    assert {p.name for p in tmp_path.iterdir()} == {"a.png", "b.png"}


@pytest.mark.parametrize("write", [pictures.write_panel, pictures.write_clouds])
def test_without_frames_nothing_is_written(write, tmp_path):
    write([], tmp_path / "pictures" / "none.png")
    assert not list(tmp_path.iterdir())


def test_without_matplotlib_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r'This needs matplotlib.*pip install "trainonce\[study\]"'):
        pictures.write_clouds([shown()], tmp_path / "none.png")
    assert not list(tmp_path.iterdir())
