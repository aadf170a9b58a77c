"""The three terms against loops in float64, their gradients, and the original's accidents by name."""

import itertools
import math

import pytest
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.nn import functional as F

from trainonce.recipes.depth import geometry, losses

DOUBLE = torch.float64


def depths(batch=3, size=(5, 7), seed=0):
    rng = torch.Generator().manual_seed(seed)
    truth = torch.rand(batch, *size, generator=rng, dtype=DOUBLE) * 5 + 0.5
    truth[torch.rand(truth.shape, generator=rng) < 0.4] = 0
    return torch.rand(batch, *size, generator=rng, dtype=DOUBLE) * 5 + 0.5, truth


def moments(prediction, truth):
    """The variance and the mean of one image's log error, pixel by pixel."""
    pairs = zip(prediction.flatten().tolist(), truth.flatten().tolist(), strict=True)
    errors = [math.log(p + 1e-4) - math.log(t + 1e-4) for p, t in pairs if t > 0]
    mean = sum(errors) / len(errors)
    return sum((e - mean) ** 2 for e in errors) / len(errors), mean


# Depth


def test_silog_is_that_of_a_loop():
    prediction, truth = depths()
    each = [moments(p, t) for p, t in zip(prediction, truth, strict=True)]
    expected = sum(math.sqrt(v + 0.15 * m * m + 1e-4) for v, m in each) / 3
    assert float(losses.silog(prediction, truth)) == pytest.approx(expected, rel=1e-12)


def test_silog_crossed_pairs_every_variance_with_every_mean():
    prediction, truth = depths()
    each = [moments(p, t) for p, t in zip(prediction, truth, strict=True)]
    expected = sum(math.sqrt(v + 0.15 * m * m + 1e-4) for v, _ in each for _, m in each) / 9
    assert float(losses.silog(prediction, truth, crossed=True)) == pytest.approx(expected, rel=1e-12)
    assert float(losses.silog(prediction, truth)) != pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("crossed", [False, True])
def test_an_image_without_depth_is_left_out(crossed):
    prediction, truth = depths()
    truth[1] = 0
    found = losses.silog(prediction, truth, crossed=crossed)
    torch.testing.assert_close(found, losses.silog(prediction[[0, 2]], truth[[0, 2]], crossed=crossed))
    assert float(losses.silog(prediction, torch.zeros_like(truth), crossed=crossed)) == 0


def test_silog_has_gradients_only_where_depth_is_known():
    prediction, truth = depths()
    prediction[truth == 0] = math.nan  # whatever it is there
    prediction.requires_grad_()
    losses.silog(prediction, truth).backward()
    assert torch.equal(prediction.grad != 0, truth > 0)
    clean, truth = depths(2, (2, 3), seed=5)
    assert torch.autograd.gradcheck(lambda p: losses.silog(p, truth), clean.requires_grad_())


def test_a_perfect_depth_costs_the_floor():
    _, truth = depths()
    assert float(losses.silog(truth.clamp(min=1), truth.clamp(min=1))) == pytest.approx(0.01)


# Camera


def some_cameras(count, size, seed=0):
    rng = torch.Generator().manual_seed(seed)
    focal = (0.6 + 0.6 * torch.rand(count, generator=rng, dtype=DOUBLE)) * size[1]
    cx, cy = (s * (0.4 + 0.2 * torch.rand(count, generator=rng, dtype=DOUBLE)) for s in (size[1], size[0]))
    return geometry.camera_matrix(focal, focal * 1.05, cx, cy)


def test_ray_error_is_the_mean_of_the_roots_of_rows():
    size = (4, 6)
    ours, theirs = (geometry.rays(some_cameras(3, size, seed), size) for seed in (1, 2))
    total = 0.0
    for b in range(3):
        for v in range(4):
            squares = [float(ours[b, c, v, u] - theirs[b, c, v, u]) ** 2 for c in range(3) for u in range(6)]
            total += math.sqrt(sum(squares) / 18 + 1e-4)
    assert float(losses.ray_error(ours, theirs)) == pytest.approx(total / 12, rel=1e-12)
    assert float(losses.ray_error(ours, ours)) == pytest.approx(0.01)


def test_angle_error_is_the_printed_squared_error_of_both_angles():
    """From the four numbers of the cameras, pixel by pixel."""
    size = (4, 6)
    cameras = some_cameras(3, size, 1), some_cameras(3, size, 2)
    total = 0.0
    for ours, theirs in zip(*(each.tolist() for each in cameras), strict=True):
        for v, u in itertools.product(range(size[0]), range(size[1])):
            found = []
            for (fx, _, cx), (_, fy, cy), _ in (ours, theirs):
                x, y = (u + 0.5 - cx) / fx, (v + 0.5 - cy) / fy
                found.append((math.atan(x), math.acos(y / math.sqrt(x * x + y * y + 1))))
            total += (found[0][0] - found[1][0]) ** 2 + (found[0][1] - found[1][1]) ** 2
    ours, theirs = (geometry.rays(camera, size) for camera in cameras)
    assert float(losses.angle_error(ours, theirs)) == pytest.approx(total / (3 * 4 * 6), rel=1e-12)
    assert float(losses.angle_error(ours, ours)) == 0


def test_angle_error_draws_a_camera_to_the_true_one():
    truth = geometry.rays(some_cameras(2, (3, 4), 1), (3, 4))
    numbers = torch.tensor([[3.0, 3.0, 2.0, 1.5]] * 2, dtype=DOUBLE, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda n: losses.angle_error(geometry.rays(geometry.camera_matrix(*n.T), (3, 4)), truth), numbers
    )


# Invariance: the loop


def test_cells_are_known_where_their_middle_is():
    valid = torch.zeros(1, 28, 42, dtype=torch.bool)
    valid[0, 7, 21] = valid[0, 22, 7] = True
    assert losses.cells(valid, 14).tolist() == [[[False, True, False], [False, False, False]]]
    valid = torch.rand(2, 28, 42) < 0.5
    expected = F.interpolate(valid[:, None].double(), (2, 3), mode="nearest-exact")[:, 0] > 0.5
    assert torch.equal(losses.cells(valid, 14), expected)


def warped_by_a_loop(features, mask, ours, theirs, turned, patch):
    """One view's features and mask at the cells of another: cell by cell, neighbour by neighbour."""
    _, rows, columns = features.shape
    if turned:
        features, mask = features.flip(-1), mask.flip(-1)
        ours = geometry.mirror_camera(ours[None], columns * patch)[0]
    out, kept = torch.zeros_like(features), torch.zeros_like(mask)
    for i in range(rows):
        for j in range(columns):
            x, y = (j + 0.5) * patch, (i + 0.5) * patch
            x = float((x - theirs[0, 2]) / theirs[0, 0] * ours[0, 0] + ours[0, 2]) / patch
            y = float((y - theirs[1, 2]) / theirs[1, 1] * ours[1, 1] + ours[1, 2]) / patch
            if not (0 <= x < columns and 0 <= y < rows):
                continue
            kept[i, j] = mask[int(y), int(x)]
            x, y = min(max(x - 0.5, 0), columns - 1), min(max(y - 0.5, 0), rows - 1)
            left, top = int(x), int(y)
            for row, share_y in ((top, 1 - (y - top)), (min(top + 1, rows - 1), y - top)):
                for column, share_x in ((left, 1 - (x - left)), (min(left + 1, columns - 1), x - left)):
                    out[:, i, j] += share_y * share_x * features[:, row, column]
    return out, kept


def original_warp(features, mask, ours, theirs, turned, patch):
    """Zoom, shift by a whole number of cells, fill and cut, as the original is described.

    The rim is repeated before the zoom and cut after it, because torch copies where the size stays what it was.
    """
    _, rows, columns = features.shape
    (fx0, cx0, cy0), (fx1, cx1, cy1) = (
        [float(k[0, 0]) / patch, float(k[0, 2]) / patch, float(k[1, 2]) / patch] for k in (ours, theirs)
    )
    if turned:
        features, mask, cx0 = features.flip(-1), mask.flip(-1), columns - cx0
    zoom = fx1 / fx0
    rim = (0, 50, 0, 50)
    wider, wider_mask = F.pad(features[None], rim, mode="replicate"), F.pad(mask[None, None].to(DOUBLE), rim)
    cut = (..., slice(math.floor(rows * zoom)), slice(math.floor(columns * zoom)))
    zoomed = F.interpolate(wider, scale_factor=zoom, mode="bilinear", align_corners=False)[0][cut]
    zoomed_mask = F.interpolate(wider_mask, scale_factor=zoom, mode="nearest")[0, 0][cut] > 0.5
    left, top = (int(c1 - (c0 - 0.5) * zoom - 0.5) for c0, c1 in ((cx0, cx1), (cy0, cy1)))
    padding = (left, columns - left - zoomed.shape[2], top, rows - top - zoomed.shape[1])
    return F.pad(zoomed, padding), F.pad(zoomed_mask, padding)


def pairs(count=4, size=(5, 6), seed=0, patch=14):
    rng = torch.Generator().manual_seed(seed)
    features = torch.randn(2 * count, 3, *size, generator=rng, dtype=DOUBLE)
    masks = torch.rand(2 * count, *size, generator=rng) < 0.8
    cameras = some_cameras(2 * count, (size[0] * patch, size[1] * patch), seed)
    flips = torch.tensor([False, True, True, True, False, False, True, False])[: 2 * count]
    return features, masks, cameras, flips


@pytest.mark.parametrize(("rounding", "by_loop"), [("none", warped_by_a_loop), ("integer", original_warp)])
@pytest.mark.parametrize("seed", range(6))
def test_views_are_warped_as_by_a_loop(rounding, by_loop, seed):
    features, masks, cameras, flips = pairs(seed=seed)
    found, kept = losses.warp(features[0::2], masks[0::2], cameras, flips, 14, rounding)
    for n in range(4):
        turned = bool(flips[2 * n] != flips[2 * n + 1])
        args = (features[2 * n], masks[2 * n], cameras[2 * n], cameras[2 * n + 1], turned, 14)
        expected, expected_mask = by_loop(*args)
        torch.testing.assert_close(found[n], expected)
        assert torch.equal(kept[n], expected_mask)


def two_sided(features, masks, cameras, flips, warp, crossed=False):
    """Both directions with the other side held fixed, pair by pair."""
    losses_of_pairs = []
    warped = []
    for n in range(len(features) // 2):
        turned = bool(flips[2 * n] != flips[2 * n + 1])
        moved, kept = warp(features[2 * n], masks[2 * n], cameras[2 * n], cameras[2 * n + 1], turned, 14)
        warped.append((moved, kept & masks[2 * n + 1], features[2 * n + 1]))
    for i, (_, mask, _) in enumerate(warped):
        for j, (ours, _, theirs) in enumerate(warped):
            if (i == j or crossed) and mask.any():
                for a, b in ((ours, theirs.detach()), (theirs, ours.detach())):
                    error = (a - b).square().mean(0)[mask].mean()
                    losses_of_pairs.append((error + 1e-5 + 1e-4).sqrt())
    return torch.stack(losses_of_pairs).mean()


@pytest.mark.parametrize("crossed", [False, True])
@pytest.mark.parametrize(("rounding", "by_loop"), [("none", warped_by_a_loop), ("integer", original_warp)])
def test_invariance_and_its_gradient_are_those_of_two_directions(rounding, by_loop, crossed):
    features, masks, cameras, flips = pairs()
    masks[5] = False  # a pair without a common cell
    ours, theirs = (features.clone().requires_grad_() for _ in range(2))
    found = losses.invariance(ours, masks, cameras, flips, 14, rounding=rounding, crossed=crossed)
    expected = two_sided(theirs, masks, cameras, flips, by_loop, crossed)
    torch.testing.assert_close(found, expected)
    found.backward()
    expected.backward()
    torch.testing.assert_close(ours.grad, theirs.grad)
    assert ours.grad[:4].abs().sum() > 0


def test_features_that_are_a_smooth_function_of_direction_cost_little_in_any_view():
    """Features painted on the scene, not on the image: only interpolation and rounding are left."""
    size, patch = (20, 24), 14
    _, _, cameras, _ = pairs(2, size, patch=patch)
    directions = geometry.rays(geometry.resize_camera(cameras, 1 / patch, 1 / patch), size)
    features = torch.cat((directions, (2 * directions).sin()), 1)
    masks, flips = torch.ones(4, *size, dtype=torch.bool), torch.zeros(4, dtype=torch.bool)
    exact, rounded = (
        losses.invariance(features, masks, cameras, flips, patch, rounding=r) for r in ("none", "integer")
    )
    assert float(exact) < 0.012
    assert float(rounded) > float(exact)
    features[1] = features[1].flip(-1)
    flips[1], cameras[1] = True, geometry.mirror_camera(cameras[1:2], size[1] * patch)[0]
    torch.testing.assert_close(losses.invariance(features, masks, cameras, flips, patch), exact)


def test_without_a_common_cell_invariance_is_zero_and_still_has_a_gradient():
    features, masks, cameras, flips = pairs()
    features.requires_grad_()
    found = losses.invariance(features, torch.zeros_like(masks), cameras, flips, 14)
    assert found.item() == 0
    found.backward()
    assert torch.equal(features.grad, torch.zeros_like(features))


def test_terms_are_float32_under_autocast():
    features, masks, cameras, flips = pairs()
    prediction, truth = depths()
    ours = geometry.rays(cameras.float(), (4, 6))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = (
            losses.silog(prediction.bfloat16(), truth.float()),
            losses.ray_error(ours, ours.flip(0)),
            losses.invariance(features.bfloat16(), masks, cameras.float(), flips, 14),
        )
    assert [f.dtype for f in found] == [torch.float32] * len(losses.TERMS)
    torch.testing.assert_close(found[0], losses.silog(prediction.bfloat16().float(), truth.float()))
    exact = losses.invariance(features.bfloat16().double(), masks, cameras, flips, 14)
    torch.testing.assert_close(found[2].double(), exact, rtol=1e-5, atol=0)


def test_an_unknown_rounding_is_named():
    with pytest.raises(ValueError, match='rounding is "none" or "integer"; got \'up\''):
        losses.invariance(*pairs(), 14, rounding="up")


def test_no_term_reads_a_value_on_the_host():
    """Fake tensors have no values: reading one is an error."""
    with FakeTensorMode():
        features, prediction = (torch.randn(shape, requires_grad=True) for shape in ((4, 3, 5, 6), (2, 5, 6)))
        masks, flips, cameras = torch.ones(4, 5, 6) > 0, torch.ones(4) > 0, torch.rand(4, 3, 3)
        for crossed in (False, True):
            losses.silog(prediction, torch.rand(2, 5, 6), crossed=crossed).backward()
            for rounding in ("none", "integer"):
                found = losses.invariance(features, masks, cameras, flips, 14, rounding=rounding, crossed=crossed)
                found.backward()
        losses.ray_error(geometry.rays(cameras, (4, 5)), geometry.rays(cameras, (4, 5)))
        with pytest.raises(DataDependentOutputException):
            found.item()


# By hand


def warp_one(features, cameras, rounding="none"):
    """The warp of one pair of views whose cells are pixels."""
    mask = torch.ones_like(features, dtype=torch.bool)
    flips = torch.zeros(2, dtype=torch.bool)
    warped, seen = losses.warp(features[None, None], mask[None], cameras, flips, 1, rounding)
    return warped[0, 0], seen[0]


@pytest.mark.parametrize(("rounding", "rows"), [("none", [0.75, 1.25, 1.75, 2.25]), ("integer", [0.0, 1.0, 2.0, 3.0])])
def test_each_axis_has_its_own_zoom_and_in_the_original_that_of_the_width(rounding, rows):
    """The second view shows twice the height and the same width."""
    two = torch.tensor([2.0, 2.0])
    features = torch.arange(4.0)[:, None] + 10 * torch.arange(4.0)
    warped, _ = warp_one(features, geometry.camera_matrix(two, torch.tensor([3.0, 6.0]), two, two), rounding)
    torch.testing.assert_close(warped, torch.tensor(rows)[:, None] + 10 * torch.arange(4.0))


@pytest.mark.parametrize(
    ("shift", "seen"), [(0.5, [1, 1, 1, 0]), (0.49, [1, 1, 1, 1]), (-0.5, [1, 1, 1, 1]), (-0.51, [0, 1, 1, 1])]
)
@pytest.mark.parametrize("axis", [0, 1])
def test_the_near_edge_of_a_view_belongs_to_it_and_the_far_edge_does_not(axis, shift, seen):
    """The middles of the second view's cells lie ``shift`` cells further on; the first view ends at 4."""
    focal, middle, moved = torch.ones(2), torch.tensor([2.0, 2.0]), torch.tensor([2.0 + shift, 2.0])
    centres = (middle, moved) if axis == 0 else (moved, middle)
    _, mask = warp_one(torch.zeros(4, 4), geometry.camera_matrix(focal, focal, *centres))
    expected = torch.tensor(seen, dtype=torch.bool)
    assert torch.equal(mask, (expected[:, None] if axis == 0 else expected[None]).expand(4, 4))
