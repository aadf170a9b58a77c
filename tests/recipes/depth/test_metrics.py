"""Metrics against loops in plain Python, the range and the window, and memory that does not grow."""

import itertools
import math
import statistics

import pytest
import torch
from torch.nn import functional as F

from trainonce.recipes.depth import geometry, metrics
from trainonce.recipes.depth.data.frames import Frame, Range

RANGE = Range(0.05, 8.0)


def camera(scale=1.0):
    return torch.tensor([[20.0 * scale, 0, 9.6], [0, 21.0 * scale, 7.1], [0, 0, 1]])


def frame(size=(14, 18), seed=0):
    rng = torch.Generator().manual_seed(seed)
    depth = torch.rand(size, generator=rng) * 10  # some beyond the range
    depth[torch.rand(size, generator=rng) < 0.3] = 0
    return Frame(torch.zeros(3, *size, dtype=torch.uint8), depth, camera())


def predicted(truth, seed=1):
    rng = torch.Generator().manual_seed(seed)
    return truth.clamp(min=1) * (0.3 * torch.randn(truth.shape, generator=rng)).exp()


def by_loop(prediction, k, given, reach, window=None, squared=False):
    """Everything, pixel by pixel."""
    height, width = given.depth.shape
    top, bottom, left, right = window or (0, height, 0, width)
    pairs, ours, theirs = [], [], []
    for v in range(top, bottom):
        for u in range(left, right):
            z, t = float(prediction[v, u]), float(given.depth[v, u])
            if t > 0 and reach.nearest <= t < reach.farthest:
                pairs.append((z, t))
                for cloud, camera, d in ((ours, k, z), (theirs, given.camera, t)):
                    (fx, _, cx), (_, fy, cy), _ = camera.tolist()
                    cloud.append(((u + 0.5 - cx) / fx * d, (v + 0.5 - cy) / fy * d, d))
    logs = [math.log(z / t) for z, t in pairs]
    count = len(pairs)
    there = [min(math.dist(p, q) for q in theirs) for p in ours]
    back = [min(math.dist(p, q) for q in ours) for p in theirs]
    if squared:
        there, back = ([d * d for d in ds] for ds in (there, back))
    low, high = math.log10(reach.nearest), math.log10(reach.farthest / 20)
    scores = []
    for i in range(100):
        limit = 10 ** (low + (high - low) * i / 99)
        precision, recall = (sum(d < limit for d in ds) / count for ds in (there, back))
        scores.append(2 * precision * recall / (precision + recall) if precision + recall else 0.0)
    return {
        "delta_1": sum(max(z / t, t / z) < 1.25 for z, t in pairs) / count,
        "si_log": 100 * statistics.stdev(logs),
        "a_rel": sum(abs(z - t) / t for z, t in pairs) / count,
        "rmse": math.sqrt(sum((z - t) ** 2 for z, t in pairs) / count),
        "rmse_log": math.sqrt(sum(e * e for e in logs) / count),
        "f_a": sum((a + b) / 2 for a, b in itertools.pairwise(scores)) / 100,
        "focal": (abs(float(k[0, 0]) / 20 - 1) + abs(float(k[1, 1]) / 21 - 1)) / 2,
    }


def measure(prediction, camera, given, reach, window=None, **more):
    """The metrics of one image."""
    found = metrics.measure(prediction[None], camera[None], Frame(*(x[None] for x in given)), reach, window, **more)
    assert all(value.shape == (1,) for value in found.values())
    return {name: value[0] for name, value in found.items() if name != "pixels"}


def numbers(found):
    return {name: float(value) for name, value in found.items()}


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("window", [None, (2, 11, 3, 17)])
def test_metrics_are_those_of_a_loop(window, squared):
    given = frame()
    prediction = predicted(given.depth)
    found = measure(prediction, camera(1.1), given, RANGE, window, squared=squared)
    expected = by_loop(prediction, camera(1.1), given, RANGE, window, squared)
    assert set(found) == set(metrics.METRICS)
    assert 0.1 < expected["f_a"] < 0.9
    assert numbers(found) == pytest.approx(expected, rel=1e-4)


def test_each_image_has_its_own_metrics_and_one_without_depth_does_not_count():
    given = [frame(seed=0), frame(seed=3)._replace(depth=torch.zeros(14, 18)), frame(seed=5)]
    predictions = [predicted(one.depth, seed) for seed, one in enumerate(given)]
    cameras = torch.stack([camera(scale) for scale in (0.9, 1.0, 1.2)])
    whole = Frame(*(torch.stack(part) for part in zip(*given, strict=True)))
    found = metrics.measure(torch.stack(predictions), cameras, whole, RANGE)
    assert found["pixels"].tolist()[1] == 0 < min(found["pixels"].tolist()[::2])
    for i in (0, 2):
        alone = numbers(measure(predictions[i], cameras[i], given[i], RANGE))
        assert {name: float(found[name][i]) for name in alone} == pytest.approx(alone, rel=1e-6)


def test_a_perfect_prediction_is_perfect():
    given = frame()
    found = numbers(measure(given.depth, given.camera, given, RANGE))
    best = {"delta_1": 1, "si_log": 0, "a_rel": 0, "rmse": 0, "rmse_log": 0, "f_a": 0.99, "focal": 0}
    assert found == pytest.approx(best, abs=1e-6)


def test_a_wrong_scale_costs_all_but_the_scale_free_metric():
    given = frame()
    found = numbers(measure(given.depth * 2, given.camera, given, RANGE))
    assert found["si_log"] == pytest.approx(0, abs=1e-3)
    assert found["delta_1"] == 0
    assert found["a_rel"] == pytest.approx(1)
    assert found["rmse_log"] == pytest.approx(math.log(2))


def test_only_the_camera_matters_to_points():
    given = frame()
    right, wrong = (measure(given.depth, camera(f), given, RANGE) for f in (1.0, 1.3))
    assert float(right["rmse"]) == float(wrong["rmse"]) == 0
    assert float(wrong["f_a"]) < 0.9 < float(right["f_a"])


def test_another_size_is_brought_to_the_truths():
    given = frame()
    small = predicted(torch.rand(7, 9) * 5)
    found = measure(small, geometry.resize_camera(camera()[None], 0.5, 0.5)[0], given, RANGE)
    larger = F.interpolate(small[None, None], (14, 18), mode="bilinear")[0, 0]
    assert numbers(found) == numbers(measure(larger, camera(), given, RANGE))


def test_a_camera_of_another_size_is_resized_along_each_axis():
    ours = torch.tensor([[[4.0, 0, 2.0], [0, 5.0, 3.0], [0, 0, 1]]])
    larger, resized = metrics.resize_predictions(torch.ones(1, 7, 6), ours, (14, 18))
    assert larger.shape == (1, 14, 18)
    assert resized.tolist() == [[[12.0, 0, 6.0], [0, 10.0, 6.0], [0, 0, 1]]]


def test_what_is_outside_range_and_window_does_not_count():
    given = frame()
    prediction = predicted(given.depth)
    window = (2, 11, 3, 17)
    before = numbers(measure(prediction, camera(), given, RANGE, window))
    changed = prediction.clone()
    changed[:2] = changed[11:] = 100
    changed[:, :3] = changed[:, 17:] = 100
    changed[(given.depth == 0) | (given.depth >= 8) | (given.depth < 0.05)] = 100
    assert not torch.equal(changed, prediction)
    assert numbers(measure(changed, camera(), given, RANGE, window)) == before


def row(*depths):
    """A frame of one row with these depths."""
    return Frame(torch.zeros(3, 1, len(depths), dtype=torch.uint8), torch.tensor([depths]), camera())


def test_a_ratio_of_exactly_1_25_is_not_within_1_25():
    truth = row(4.0, 5.0, 4.0, 5.0, 2.0)
    prediction = torch.tensor([[5.0, 4.0, 4.99, 4.01, 2.0]])
    assert float(measure(prediction, camera(), truth, RANGE, most=0)["delta_1"]) == pytest.approx(3 / 5)


@pytest.mark.parametrize(("nearest", "counting"), [(0.5, [2, 3, 4]), (0.0, [1, 2, 3, 4])])
def test_the_near_end_of_the_range_counts_and_the_far_end_does_not(nearest, counting):
    """0 is unknown, also where the range begins there."""
    depths = (0.0, 0.49, 0.5, 4.0, 7.99, 8.0, 9.0)
    valid = metrics.valid_pixels(torch.tensor([[depths]]), Range(nearest, 8.0), None)
    assert valid.flatten().nonzero().flatten().tolist() == counting
    found = measure(torch.ones(1, 7), camera(), row(*depths), Range(nearest, 8.0), most=0)
    assert float(found["a_rel"]) == pytest.approx(sum(abs(1 - depths[i]) / depths[i] for i in counting) / len(counting))


@pytest.mark.parametrize(("fx", "fy", "error"), [(1.1, 1.0, 0.05), (1.0, 0.7, 0.15), (1.1, 0.7, 0.2), (2.0, 2.0, 1.0)])
def test_the_focal_error_is_the_mean_of_both_axes_relative_to_the_truth(fx, fy, error):
    truth = torch.tensor([[[20.0, 0, 9.6], [0, 40.0, 7.1], [0, 0, 1]]])
    ours = torch.tensor([[[20.0 * fx, 0, 1.0], [0, 40.0 * fy, 2.0], [0, 0, 1]]])  # the centre does not matter
    assert metrics.focal_error(ours, truth).tolist() == pytest.approx([error])


def test_the_errors_of_two_pixels_are_those_of_a_sample():
    """``si_log`` is the standard deviation of a sample, in percent: of two pixels, the difference by the root of 2."""
    found = measure(torch.tensor([[2.0, 4.0]]), camera(), row(2.0, 2.0), RANGE, most=0)
    assert float(found["si_log"]) == pytest.approx(100 * math.log(2) / math.sqrt(2))
    assert float(found["rmse_log"]) == pytest.approx(math.log(2) / math.sqrt(2))
    assert float(found["rmse"]) == pytest.approx(math.sqrt(2))


def test_a_prediction_that_is_not_a_number_is_not_a_good_one():
    found = measure(torch.tensor([[math.nan, 2.0]]), camera(), row(2.0, 2.0), RANGE)
    assert all(math.isnan(float(value)) for name, value in found.items() if name != "focal")


def test_a_window_beyond_the_image_is_named():
    with pytest.raises(ValueError, match=r"lies in its 14x18 image; got \(0, 15, 0, 3\)"):
        measure(torch.ones(14, 18), camera(), frame(), RANGE, (0, 15, 0, 3))


# Points


@pytest.mark.parametrize("block", [1, 50, 333, 10**6])
def test_nearest_points_are_those_of_a_loop_in_any_block(block):
    rng = torch.Generator().manual_seed(0)
    ours, theirs = (torch.randn(n, 3, generator=rng, dtype=torch.float64) for n in (40, 57))
    for within in (100.0, 0.6):
        found = metrics.nearest_distances(ours, theirs, within, block)
        for a, b, result in ((ours, theirs, found[0]), (theirs, ours, found[1])):
            for p, d in zip(a.tolist(), result.tolist(), strict=True):
                exact = min(math.dist(p, q) for q in b.tolist())
                assert math.sqrt(d) == pytest.approx(exact) if exact <= within else math.sqrt(d) >= exact * (1 - 1e-9)


def test_small_distances_far_away_keep_their_digits():
    far = torch.tensor([[30.0, 20.0, 110.0], [31.0, 20.0, 115.0]])
    found, _ = metrics.nearest_distances(far + torch.tensor([0.01, 0, 0]), far, 6.0)
    torch.testing.assert_close(found.sqrt(), torch.tensor([0.01, 0.01]), rtol=1e-3, atol=0)


def test_clouds_of_large_images_are_thinned_out(monkeypatch):
    seen = []
    original = metrics.nearest_distances
    monkeypatch.setattr(
        metrics, "nearest_distances", lambda a, b, *rest: seen.append((len(a), len(b))) or original(a, b, *rest)
    )
    given = frame()
    found = measure(given.depth, given.camera, given, RANGE, most=60)
    ((ours, theirs),) = seen
    assert 30 < ours == theirs <= 60
    assert float(found["f_a"]) == pytest.approx(0.99)
    without = measure(given.depth, given.camera, given, RANGE, most=0)
    assert set(without) == set(metrics.METRICS) - {"f_a"}
    assert len(seen) == 1


@pytest.mark.parametrize("share", [0.02, 0.5, 1.0])
def test_thinning_takes_pixels_as_torch_would_and_no_more_than_allowed(share):
    valid = torch.rand(100, 130, generator=torch.Generator().manual_seed(0)) < share
    rows, columns = metrics._subsample(valid, 900)
    kept = valid[rows, columns]
    assert kept.sum() <= 900
    assert kept.sum() >= min(800, int(valid.sum()))
    expected = F.interpolate(valid[None, None].float(), tuple(kept.shape), mode="nearest-exact")[0, 0] > 0
    assert torch.equal(kept, expected)


def test_a_single_pixel_has_metrics():
    given = frame()
    depth = torch.zeros_like(given.depth)
    depth[3, 4] = 2.0
    found = numbers(measure(torch.full_like(depth, 2.2), camera(), given._replace(depth=depth), RANGE))
    assert found["si_log"] == 0
    assert found["a_rel"] == pytest.approx(0.1)
