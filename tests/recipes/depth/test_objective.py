"""The objective: each term is its loss of what the network says, with the settings of the objective."""

import pytest
import torch
from torch import nn

from trainonce.recipes.depth import geometry, losses
from trainonce.recipes.depth.model.network import Prediction
from trainonce.recipes.depth.objective import Objective

SIZE, PATCH = (8, 12), 4


class Said(nn.Module):
    """A network that says what it was given, whatever it sees."""

    patch, flat = PATCH, None

    def __init__(self, prediction):
        super().__init__()
        self.prediction = prediction

    def forward(self, images):
        return self.prediction


def batch():
    """Two frames of two views, the first with a larger focal length, and depth that is known in places."""
    rng = torch.Generator().manual_seed(0)
    focal = torch.tensor([8.0, 11.0, 9.0, 6.0])
    cameras = geometry.camera_matrix(focal, focal * 1.3, torch.full((4,), 5.0), torch.full((4,), 4.5))
    depths = torch.rand(4, *SIZE, generator=rng) + 1
    depths[:, :3, :6] = 0
    depths[2, 2:5] = 0
    flips = torch.tensor([False, True, False, False])
    predicted = geometry.camera_matrix(focal + 1, focal, torch.full((4,), 6.0), torch.full((4,), 4.0))
    said = Prediction(
        torch.rand(4, *SIZE, generator=rng) + 1,
        predicted,
        geometry.rays(predicted, SIZE),
        torch.randn(4, 5, 2, 3, generator=rng),
    )
    return said, (torch.zeros(4, 3, *SIZE), depths, cameras, flips)


@pytest.mark.parametrize("camera", ["rays", "angles"])
@pytest.mark.parametrize("rounding", ["none", "integer"])
@pytest.mark.parametrize("crossed", [False, True])
def test_every_term_is_its_loss_with_the_settings_that_were_given(crossed, rounding, camera):
    said, given = batch()
    _, depths, cameras, flips = given
    found = Objective(Said(said), camera=camera, crossed=crossed, rounding=rounding)(*given)
    known = torch.stack([depth[2::4, 2::4] > 0 for depth in depths])  # of the middle pixel of each cell
    assert known.any()
    assert not known.all()
    settings = {"crossed": crossed, "rounding": rounding}
    expected = {
        "depth": losses.silog(said.depth, depths, crossed=crossed),
        "camera": {"rays": losses.ray_error, "angles": losses.angle_error}[camera](
            said.rays, geometry.rays(cameras, SIZE)
        ),
        "invariance": losses.invariance(said.features, known, cameras, flips, PATCH, **settings),
    }
    assert list(found) == list(losses.TERMS) == list(expected)
    torch.testing.assert_close(found, expected)


def test_the_settings_matter_to_the_batch_of_that_test():
    said, given = batch()
    values = [
        torch.stack(list(Objective(Said(said), camera=kind, crossed=crossed, rounding=rounding)(*given).values()))
        for crossed in (False, True)
        for rounding in ("none", "integer")
        for kind in ("rays", "angles")
    ]
    depth, camera, invariance = (sorted({round(float(v[i]), 6) for v in values}) for i in range(3))
    assert (len(depth), len(camera), len(invariance)) == (2, 2, 4)
