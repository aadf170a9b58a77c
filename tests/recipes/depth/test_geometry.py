"""Cameras: rays against a matrix inverse, and known corners seen before and after an image is changed."""

import math

import pytest
import torch

from trainonce.recipes.depth import geometry

SIZE = (6, 9)


def cameras():
    rows = [[[7.0, 0, 4.2], [0, 8.0, 2.9], [0, 0, 1]], [[11.0, 0, 5.5], [0, 10.5, 3.6], [0, 0, 1]]]
    return torch.tensor(rows, dtype=torch.float64)


def corners():
    """Corners of a box in front of both cameras, (2, 3, 8)."""
    box = [(x, y, z) for x in (-0.4, 0.5) for y in (-0.3, 0.2) for z in (1.5, 3.0)]
    return torch.tensor(box, dtype=torch.float64).T.expand(2, 3, 8)


def test_rays_are_the_normalised_inverse_images_of_pixel_middles():
    found = geometry.rays(cameras(), SIZE)
    assert found.shape == (2, 3, *SIZE)
    for b, camera in enumerate(cameras()):
        for v in range(SIZE[0]):
            for u in range(SIZE[1]):
                ray = torch.linalg.inv(camera) @ torch.tensor([u + 0.5, v + 0.5, 1.0], dtype=torch.float64)
                torch.testing.assert_close(found[b, :, v, u], ray / ray.norm())


def test_rays_carry_gradients_to_the_camera():
    given = cameras().requires_grad_()
    assert torch.autograd.gradcheck(lambda k: geometry.rays(k, (2, 3)), given)


def test_points_project_to_the_middles_of_their_pixels():
    depths = torch.rand(2, *SIZE, dtype=torch.float64) + 1
    places = geometry.points(depths, cameras())
    torch.testing.assert_close(places[:, 2], depths)
    seen = geometry.project(places, cameras())
    for v in range(SIZE[0]):
        for u in range(SIZE[1]):
            expected = torch.tensor([u + 0.5, v + 0.5], dtype=torch.float64).expand(2, 2)
            torch.testing.assert_close(seen[:, :, v, u], expected)


def test_projection_of_corners_is_the_matrix_product():
    seen = geometry.project(corners(), cameras())
    for b, camera in enumerate(cameras()):
        for n in range(8):
            image = camera @ corners()[b, :, n]
            torch.testing.assert_close(seen[b, :, n], image[:2] / image[2])


def test_corners_follow_a_resize_a_cut_and_a_mirror():
    before = geometry.project(corners(), cameras())
    resized = geometry.project(corners(), geometry.resize_camera(cameras(), 2.0, 1.5))
    torch.testing.assert_close(resized, before * torch.tensor([[1.5], [2.0]], dtype=torch.float64))
    cut = geometry.project(corners(), geometry.crop_camera(cameras(), top=1, left=-3))
    torch.testing.assert_close(cut, before + torch.tensor([[3.0], [-1.0]], dtype=torch.float64))
    mirrored = geometry.mirror_camera(cameras(), SIZE[1])
    other_side = corners() * torch.tensor([[-1.0], [1.0], [1.0]], dtype=torch.float64)
    seen = geometry.project(other_side, mirrored)
    torch.testing.assert_close(seen[:, 0], SIZE[1] - before[:, 0])
    torch.testing.assert_close(seen[:, 1], before[:, 1])


def test_each_camera_can_have_its_own_factors():
    factors = torch.tensor([2.0, 3.0], dtype=torch.float64)
    found = geometry.resize_camera(cameras(), factors, 1.0)
    torch.testing.assert_close(found[1], geometry.resize_camera(cameras(), 3.0, 1.0)[1])
    torch.testing.assert_close(
        geometry.crop_camera(cameras(), 0.0, factors)[0], geometry.crop_camera(cameras(), 0.0, 2.0)[0]
    )


def test_mirrored_rays_are_the_mirror_image():
    found = geometry.rays(geometry.mirror_camera(cameras(), SIZE[1]), SIZE)
    expected = geometry.rays(cameras(), SIZE).flip(-1) * torch.tensor([-1.0, 1, 1], dtype=torch.float64)[:, None, None]
    torch.testing.assert_close(found, expected)


def test_a_camera_is_made_of_its_parts():
    assert torch.equal(geometry.camera_matrix(*geometry.intrinsics(cameras())), cameras())


@pytest.mark.parametrize(("focal", "centre", "length"), [(50, 50, 100), (30, 10, 80), (30, -5, 40)])
def test_the_field_of_view_is_the_angle_between_the_edge_rays(focal, centre, length):
    first, last = (torch.tensor([place - centre, focal], dtype=torch.float64) for place in (0.0, length))
    cosine = float(first @ last / first.norm() / last.norm())
    assert geometry.field_of_view(focal, centre, length) == pytest.approx(math.degrees(math.acos(cosine)))
