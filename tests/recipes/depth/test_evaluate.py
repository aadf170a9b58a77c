"""Evaluation against means computed by hand: frames in groups, frames left out, one process or two."""

import math

import pytest
import torch
from _depth_settings import TINY
from torch import nn

from trainonce.recipes.depth import evaluate
from trainonce.recipes.depth.data.frames import EvaluationSet, Frame, Range
from trainonce.recipes.depth.model.network import Prediction
from trainonce.recipes.depth.settings import Settings

REACH = Range(0.5, 8.0)
SETTINGS = Settings(**TINY | {"readers": 0})


class Flat:
    """Frames of one depth each; those of an odd number are wider, and one of None cannot be read."""

    def __init__(self, *depths):
        self.depths = depths

    def __len__(self):
        return len(self.depths)

    def name(self, index):
        return f"frame {index}"

    def frame(self, index):
        if self.depths[index] is None:
            raise OSError("it is gone")
        height, width = 28, 42 + 14 * (index % 2)
        camera = torch.tensor([[40.0, 0, width / 2], [0, 50.0, height / 2], [0, 0, 1]])
        image = torch.full((3, height, width), 10 * index, dtype=torch.uint8)
        return Frame(image, torch.full((height, width), float(self.depths[index])), camera)


class TwoMetres(nn.Module):
    """Predicts 2 m everywhere, and focal lengths of 44 and 40 pixels of the input."""

    patch = 14

    def __init__(self):
        super().__init__()
        self.seen = []

    def forward(self, images):
        self.seen.append((self.training, torch.is_grad_enabled(), len(images)))
        camera = torch.tensor([[44.0, 0, 21], [0, 40.0, 14], [0, 0, 1]])
        return Prediction(torch.full_like(images[:, 0], 2.0), camera.expand(len(images), 3, 3), None, None)


def means(*depths, window=None, network=None, **more):
    examined = EvaluationSet(Flat(*depths), REACH, window)
    return evaluate.mean_metrics(network or TwoMetres(), examined, SETTINGS, torch.device("cpu"), **more)


def test_metrics_are_means_over_frames_in_their_units():
    """Three frames of one size: 2 m, 2.4 m and 4 m where 2 m is predicted."""
    found = means(2.0, 9.0, 2.4, 9.0, 4.0)  # those of the other size are beyond the range, and left out
    assert found["delta_1"] == pytest.approx(100 * 2 / 3)
    assert found["a_rel"] == pytest.approx((0 + 0.4 / 2.4 + 0.5) / 3)
    assert found["rmse"] == pytest.approx((0 + 0.4 + 2) / 3)
    assert found["rmse_log"] == pytest.approx((0 + math.log(1.2) + math.log(2)) / 3)
    assert found["si_log"] == pytest.approx(0, abs=1e-3)
    assert found["focal"] == pytest.approx(100 * (0.1 + 0.2) / 2, rel=1e-5)
    assert 100 / 3 * 0.99 - 1 < found["f_a"] < 99
    assert set(means(2.0, with_points=False)) == set(found) - {"f_a"}


def test_a_set_without_a_pixel_that_counts_has_no_metrics():
    assert all(math.isnan(value) for value in means(9.0, 0.0, 0.4, 8.0).values())


@pytest.mark.filterwarnings("always::trainonce.recipes.depth.data.batches.UnreadableFrame")
def test_a_frame_that_cannot_be_read_is_left_out_alone():
    with pytest.warns(evaluate.UnreadableFrame, match="left out of the metrics: frame 1: it is gone"):
        found = means(2.0, None, 4.0)
    assert found["rmse"] == pytest.approx((0 + 2) / 2)


def test_only_the_window_counts():
    class Split(Flat):
        """2 m, and 4 m in the lower half."""

        def frame(self, index):
            made = super().frame(index)
            made.depth[14:] = 4.0
            return made

    for window, error in [((0, 14, 0, 42), 0.0), ((14, 28, 0, 42), 2.0), ((13, 15, 3, 5), math.sqrt(2))]:
        examined = EvaluationSet(Split(2.0), REACH, window)
        found = evaluate.mean_metrics(TwoMetres(), examined, SETTINGS, torch.device("cpu"), with_points=False)
        assert found["rmse"] == pytest.approx(error, abs=1e-5)


def test_frames_of_one_size_are_seen_together_and_all_are_seen_once(monkeypatch):
    monkeypatch.setattr(evaluate, "GROUP", 2)
    monkeypatch.setattr(Flat, "frame", lambda self, i, frame=Flat.frame: frame(Flat(*self.depths[i : i + 1]), 0))
    network = TwoMetres()
    found = means(2.0, 3.0, 4.0, 5.0, 6.0, network=network)
    assert found["rmse"] == pytest.approx((0 + 1 + 2 + 3 + 4) / 5)
    assert [count for _, _, count in network.seen] == [2, 2, 1]


@pytest.mark.parametrize("training", [False, True])
def test_the_network_is_evaluated_without_gradients_and_left_as_it_was(training):
    network = TwoMetres().train(training)
    means(2.0, 3.0, network=network)
    assert network.training is training
    assert {(mode, gradients) for mode, gradients, _ in network.seen} == {(False, False)}


@pytest.mark.parametrize(
    ("shape", "size", "seen"),
    [
        ((30, 40), (480, 640), (28, 42)),
        ((), (480, 640), (546, 728)),
        ((), (300, 1200), (448, 896)),  # no wider than twice the height
        ((), (1200, 300), (784, 518)),  # and no narrower than 0.66 of it
    ],
)
def test_frames_are_evaluated_at_the_shape_of_training_or_at_its_most_pixels(shape, size, seen):
    settings = Settings(**TINY | {"shape": shape, "pixels": (200_000, 400_000)})
    assert evaluate._shape(settings, 14, size) == seen


DEPTHS = (2.0, 2.4, 4.0, 5.0, 9.0, 3.0, 8.5)


def on_a_rank():
    network = TwoMetres()
    return means(*DEPTHS, network=network), sum(count for _, _, count in network.seen)


@pytest.mark.dist
def test_two_processes_find_what_one_finds(ranks):
    """Seven frames: two of the first process's four count, and all three of the other's."""
    alone = means(*DEPTHS)
    (first, first_count), (second, second_count) = ranks(on_a_rank)
    assert first == second == pytest.approx(alone)
    assert (first_count, second_count) == (4, 3)
