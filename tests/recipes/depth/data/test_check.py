"""The check of the data before training: errors name each frame or set and what is wrong with it."""

import re

import pytest
import torch
from _depth_data import read_hdf5
from _messages import message

from trainonce.recipes.depth.data.check import check
from trainonce.recipes.depth.data.frames import EvaluationSet, Range, Sets, Subset
from trainonce.recipes.depth.data.made_up.frames import SIZE, make_frames
from trainonce.recipes.depth.data.made_up.hdf5 import write_scannet

h5py = pytest.importorskip("h5py")


def frame_of(**changes):
    return make_frames(0, 1, "room")[0]._replace(**changes)


class Listed:
    """Frames in memory."""

    def __init__(self, *frames):
        self.frames = frames

    def __len__(self):
        return len(self.frames)

    def name(self, index):
        return f"frame {index}"

    def frame(self, index):
        if isinstance(self.frames[index], Exception):
            raise self.frames[index]
        return self.frames[index]


def sets_of(*frames, good=None, counts=Range(0.1, 10.0)):  # noqa: B008 immutable
    good = EvaluationSet(good or Listed(frame_of()), counts)
    return Sets({"rooms": Listed(*frames)}, good, good)


def moved(camera, **to):
    places = {"fx": (0, 0), "fy": (1, 1), "cx": (0, 2), "cy": (1, 2)}
    camera = camera.clone()
    for key, value in to.items():
        camera[places[key]] = value
    return camera


def test_good_frames_pass_and_those_with_little_depth_are_counted():
    empty = frame_of(depth=torch.zeros(SIZE))
    found = check(sets_of(frame_of(), empty, frame_of()))
    assert {name: each.sparse for name, each in found.items()} == {"training rooms": 1, "validation": 0, "test": 0}
    middle = f"{frame_of().depth.median():.3g} m"
    assert (
        str(found["training rooms"]) == f"3 frames of 48x64 pixels, median depth {middle}; 1 with under 50 known pixels"
    )
    assert str(found["test"]) == f"1 frame of 48x64 pixels, median depth {middle}"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            lambda f: {"depth": f.depth[:10]},
            "The image frame 1 and its depth must be of one size; they have 48x64 and 10x64 pixels.",
        ),
        (
            lambda f: {"camera": moved(f.camera, fx=float("nan"))},
            "The intrinsics of frame 1 must be a 3x3 matrix of finite numbers; not all numbers are finite.",
        ),
        (
            lambda f: {"camera": torch.eye(4)},
            "The intrinsics of frame 1 must be a 3x3 matrix of finite numbers; it is 4x4.",
        ),
        (
            lambda f: {"camera": moved(f.camera, fx=50.0, fy=-3.0)},
            "The focal lengths of frame 1 must be above 0; they are 50 and -3 pixels.",
        ),
        (
            lambda f: {"camera": moved(f.camera, cx=100.0, cy=20.0)},
            (
                "The camera of frame 1 must have its centre in the image; its image has 48x64 pixels (height x width), "
                "its centre is at x 100, y 20. Are they of the same size?"
            ),
        ),
        (
            lambda f: {"depth": f.depth.clone().fill_(torch.inf)},
            "The depth of frame 1 must be finite and not below 0, with 0 for unknown; it is not.",
        ),
        (
            lambda f: {"depth": -f.depth},
            "The depth of frame 1 must be finite and not below 0, with 0 for unknown; it is not.",
        ),
    ],
)
def test_what_is_wrong_with_a_frame_is_reported(changes, text):
    good = frame_of()
    assert message(check, sets_of(good, good._replace(**changes(good)), good)) == text


@pytest.mark.parametrize(("factor", "said"), [(1000, "1000 times too large"), (1e-3, "1000 times too small")])
def test_depth_in_another_unit_is_reported(factor, said):
    wrong = frame_of(depth=frame_of().depth * factor)
    text = message(check, sets_of(wrong, wrong, wrong))
    assert text.startswith("The depth of the set 'training rooms' must be in metres, half of it between 0.05 and 300;")
    assert text.endswith(f"likely {said}. Correct the scale; the first of them is frame 0.")


def test_depth_beyond_what_counts_is_reported():
    depth = torch.full(SIZE, 12.5)
    depth[:10] = 2.5
    said = message(check, sets_of(frame_of(), good=Listed(frame_of(depth=depth))))
    rule = "Half of the depth of the set 'validation' must be below 10 m, where its metrics end"
    assert f"{rule}; its median is 12.5 m. Is its scale right?" in said


def test_one_frame_in_another_unit_is_reported():
    wrong = frame_of(depth=frame_of().depth * 1000)
    text = message(check, sets_of(frame_of(), wrong, frame_of()))
    assert text.startswith("Depth must be in metres, half of it between 0.05 and 300; the median of ")
    assert text.endswith("Correct its scale.")


def test_a_set_without_depth_or_without_frames_is_reported():
    empty = frame_of(depth=torch.zeros(SIZE))
    assert message(check, sets_of(empty, empty)) == (
        "Frames of the set 'training rooms' must have at least 50 pixels with a depth that counts; "
        "of the 2 that were checked, the best has 0."
    )
    assert message(check, sets_of()) == "The set 'training rooms' has no frames."
    far = Listed(frame_of(depth=frame_of().depth + 20))
    said = message(check, sets_of(frame_of(), good=far))
    assert "Frames of the set 'validation' must have" in said
    assert re.search(r"The median depth of \S.* is 2\d(\.\d)? m: is its scale right\?", said)


def test_what_cannot_be_read_is_reported_by_name():
    text = message(check, sets_of(ValueError("no such thing"), frame_of(), OSError("disk on fire")))
    assert text == "The data have 2 problems:\n- frame 0: no such thing\n- frame 2: disk on fire"


def test_at_most_so_many_frames_are_read_and_none_twice():
    class Counting(Listed):
        read = 0

        def frame(self, index):
            self.read += 1
            return super().frame(index)

    many = Counting(*[frame_of()] * 30)
    part = EvaluationSet(Subset(many, range(10)), Range(0.1, 10.0))
    sets = Sets({"a": many}, part, part)
    check(sets, most=5)
    assert 5 < many.read <= 10
    many.read = 0
    check(sets, most=0)
    assert many.read == 30 + 10  # those that are examined are looked at for depth in their range
    many.read = 0
    Sets({"a": Subset(many, [3, 3, 3])}, part, part)
    assert check(Sets({"a": Subset(many, [3, 3, 3])}, part, part), most=2)["training a"].sparse == 0


def test_a_damaged_hdf5_set_is_found_before_training(tmp_path):
    written = write_scannet(tmp_path)
    path = tmp_path / "ScanNetS.hdf5"
    with h5py.File(path, "a") as file:
        del file["/scene0000_00/color/3.png"]
    frames = read_hdf5(tmp_path, "scannet")
    fine = EvaluationSet(read_hdf5(tmp_path, "scannet", training=False), Range(0.005, 10.0))
    assert len(frames) == len(written["train"])
    assert "must hold the node '/scene0000_00/color/3.png'; it does not." in message(
        check, Sets({"scannet": frames}, fine, fine)
    )
