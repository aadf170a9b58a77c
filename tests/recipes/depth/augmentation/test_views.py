"""Views: dots are where their 3-D points project to, depth is kept, light is shared, and nothing depends on company."""

import colorsys
import math

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F

from trainonce.recipes.depth import geometry
from trainonce.recipes.depth.augmentation import colour_jitter, sampling, views
from trainonce.recipes.depth.augmentation.colour_jitter import ColourJitter
from trainonce.recipes.depth.augmentation.letterbox import letterbox
from trainonce.recipes.depth.augmentation.views import Augmentation, Window

SIZE, SHAPE = (60, 80), (70, 84)
PLACES = [(22.0, 18.0), (55.0, 20.0), (30.0, 40.0)]  # of a red, a green and a blue dot: horizontal, vertical
DEPTHS = [1.25, 2.5, 3.75]


def camera():
    return torch.tensor([[50.0, 0, 41.3], [0, 52.0, 28.4], [0, 0, 1]])


def dotted():
    """Black, with three dots of 4 by 4 pixels; depth is known around them only. One frame, and the dots in space."""
    image, depth = torch.zeros(1, 3, *SIZE, dtype=torch.uint8), torch.zeros(1, *SIZE)
    for colour, ((u, v), z) in enumerate(zip(PLACES, DEPTHS, strict=True)):
        rows, columns = slice(int(v) - 2, int(v) + 2), slice(int(u) - 2, int(u) + 2)
        image[0, colour, rows, columns] = 255
        depth[0, int(v) - 4 : int(v) + 4, int(u) - 4 : int(u) + 4] = z
    x, y = torch.tensor(PLACES).T
    k, z = camera(), torch.tensor(DEPTHS)
    return image, depth, k[None], torch.stack(((x - k[0, 2]) / k[0, 0] * z, (y - k[1, 2]) / k[1, 1] * z, z))


def found(image, colour):
    """The middle of what has that colour in a normalised image."""
    mean, deviation = (torch.tensor(v)[:, None, None] for v in (views.MEAN, views.STD))
    share = (image * deviation + mean)[colour].clamp(0, 1)
    rows, columns = (torch.arange(n) + 0.5 for n in share.shape)
    return float((share.sum(0) * columns).sum() / share.sum()), float((share.sum(1) * rows).sum() / share.sum())


def plain(seed, number=0, flip=None):
    drawn = views.draw_augmentation(seed, number, SIZE, camera(), SHAPE)
    windows = tuple(w._replace(fill=-4.0) for w in drawn.windows)
    return drawn._replace(windows=windows, jitter=ColourJitter(), flip=drawn.flip if flip is None else flip)


# Geometry


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_dots_are_seen_where_their_points_project_to(seed, flip):
    image, depth, cameras, corners = dotted()
    seen = views.make_views(image, depth, cameras, [plain(seed, flip=flip)], SHAPE)
    assert seen.flips.tolist() == [flip, flip]
    side = torch.tensor([-1.0 if flip else 1.0, 1, 1])[:, None]
    where = geometry.project((corners * side).expand(2, 3, 3), seen.cameras)
    checked = 0
    for n in range(2):
        for i in range(3):
            u, v = where[n, :, i].tolist()
            if 8 < u < SHAPE[1] - 8 and 8 < v < SHAPE[0] - 8:
                assert found(seen.images[n], i) == pytest.approx((u, v), abs=0.08)
                assert float(seen.depths[n, int(v), int(u)]) == DEPTHS[i]
                checked += 1
    assert checked >= 3
    assert not torch.equal(seen.cameras[0], seen.cameras[1])


def test_depth_keeps_its_values_and_stays_near_its_image():
    image, depth, cameras, _ = dotted()
    seen = views.make_views(image, depth, cameras, [plain(3)], SHAPE)
    assert set(seen.depths.unique().tolist()) <= {0.0, *DEPTHS}
    assert seen.depths.dtype == torch.float32


def test_the_camera_of_a_window_is_that_of_the_steps():
    image, depth, cameras, _ = dotted()
    window = Window(-3.0, 5.0, 70.0, 84.0)
    seen = views.make_views(image, depth, cameras, [Augmentation((window, window._replace(top=4.0)), True)], SHAPE)
    first = geometry.mirror_camera(geometry.crop_camera(cameras, -3.0, 5.0), SHAPE[1])
    torch.testing.assert_close(seen.cameras[:1], first)
    torch.testing.assert_close(seen.cameras[1:], geometry.crop_camera(first, 7.0, 0.0))


def test_whole_pixels_are_copied_and_a_mirror_is_one():
    rng = torch.Generator().manual_seed(0)
    image = torch.randint(256, (1, 3, *SIZE), generator=rng, dtype=torch.uint8)
    depth = torch.rand(1, *SIZE, generator=rng)
    window = Window(-5.0, -2.0, *map(float, SHAPE), fill=4.0)
    for flip in (False, True):
        seen = views.make_views(image, depth, camera()[None], [Augmentation((window, window), flip)], SHAPE)
        images, depths, valid = ((x.flip(-1) if flip else x) for x in (seen.images, seen.depths, seen.valid))
        torch.testing.assert_close(images[0, :, 5:65, 2:82], views.normalise(image.float() / 255)[0], atol=1e-4, rtol=0)
        torch.testing.assert_close(depths[1, 5:65, 2:82], depth[0])
        inside = torch.zeros(SHAPE, dtype=torch.bool)
        inside[5:65, 2:82] = True
        assert torch.equal(valid[0], inside)
        assert torch.equal(images[0] == 4, ~inside.expand(3, *SHAPE))
        assert not depths[0][~inside].any()


# Sampling against loops and torch


@pytest.mark.parametrize("size", [(17, 90), (30, 40), (31, 23)])
def test_whole_images_are_resized_as_by_torch(size):
    images = torch.rand(2, 3, *SIZE, dtype=torch.float64)
    none, full = torch.zeros(2, dtype=torch.bool), torch.ones(2, dtype=torch.float64)
    rows = sampling.pixel_centres(0 * full, SIZE[0] * full, size[0], none)
    columns = sampling.pixel_centres(0 * full, SIZE[1] * full, size[1], none)
    high = sampling.cubic_weights(rows, SIZE[0] / size[0] * full, SIZE[0])
    wide = sampling.cubic_weights(columns, SIZE[1] / size[1] * full, SIZE[1])
    expected = F.interpolate(images, size, mode="bicubic", antialias=True)
    torch.testing.assert_close(high[:, None] @ images @ wide.mT[:, None], expected)
    plane = F.interpolate(images[:, :1], size, mode="bilinear", align_corners=False)[:, 0]
    torch.testing.assert_close(sampling.interpolate_linear(images[:, 0], rows, columns), plane)
    same = F.interpolate(images, (30, 40), mode="bicubic", antialias=True)
    halves = [sampling.pixel_centres(0 * full, n * full, n // 2, none) for n in SIZE]
    torch.testing.assert_close(sampling.resample(images, *halves, 2 * full), same)


def nearest_by_loop(plane, y, x):
    if not (0 <= y < plane.shape[0] and 0 <= x < plane.shape[1]):
        return 0.0
    best = (math.inf, 0.0)
    for row in (math.floor(y - 0.5), math.floor(y - 0.5) + 1):
        for column in (math.floor(x - 0.5), math.floor(x - 0.5) + 1):
            if 0 <= row < plane.shape[0] and 0 <= column < plane.shape[1] and plane[row, column] > 0:
                best = min(best, ((row + 0.5 - y) ** 2 + (column + 0.5 - x) ** 2, float(plane[row, column])))
    return best[1]


def test_depth_is_that_of_the_nearest_neighbour_that_has_one():
    rng = torch.Generator().manual_seed(0)
    planes = torch.rand(2, 9, 11, generator=rng, dtype=torch.float64)
    planes[torch.rand(planes.shape, generator=rng) < 0.6] = 0
    rows = torch.rand(2, 13, generator=rng, dtype=torch.float64) * 12 - 1.5
    columns = torch.rand(2, 17, generator=rng, dtype=torch.float64) * 14 - 1.5
    found = sampling.nearest_known(planes, rows, columns)
    for n in range(2):
        expected = [[nearest_by_loop(planes[n], y, x) for x in columns[n].tolist()] for y in rows[n].tolist()]
        assert found[n].tolist() == expected
    assert torch.equal(found > 0, (found > 0) & sampling.inside(rows, columns, (9, 11)))


# What is random


def test_windows_keep_enough_of_the_frame_and_a_narrow_view():
    kept = []
    for number in range(300):
        for window in views.draw_augmentation(0, number, SIZE, camera(), SHAPE).windows:
            kept.append(window)
            overlap_y = min(60, window.top + window.height) - max(0, window.top)
            overlap_x = min(80, window.left + window.width) - max(0, window.left)
            assert overlap_x * overlap_y >= 0.5 * window.height * window.width * (1 - 1e-9)
            assert window.height / window.width == pytest.approx(SHAPE[0] / SHAPE[1])
    areas = [w.height * w.width / (60 * 80) for w in kept]
    assert 0.5 <= min(areas) < 0.6
    assert 1.6 < max(areas) <= 2.0
    shifts = {8 * (w.left + w.width / 2 - 40) for w in kept} | {8 * (w.top + w.height / 2 - 30) for w in kept}
    assert {round(shift, 6) for shift in shifts} == set(range(-7, 8)), "in an eighth of the usual width"
    assert {w.fill for w in kept} == set(views.FILLS)


def test_windows_of_large_frames_are_shifted_by_whole_pixels():
    planned = [
        views.draw_augmentation(0, number, (960, 1280), camera(), (480, 640)).windows[0] for number in range(300)
    ]
    assert {round(w.left + w.width / 2 - 640, 6) for w in planned} == set(range(-7, 8))


def test_a_wide_lens_is_narrowed():
    wide = torch.tensor([[11.0, 0, 40], [0, 11.0, 30], [0, 0, 1]])
    for number in range(50):
        for window in views.draw_augmentation(0, number, SIZE, wide, SHAPE).windows:
            left, right = 40 - window.left, window.left + window.width - 40
            angle = math.degrees(math.atan(left / 11) + math.atan(right / 11))
            assert angle < 150
    assert any(w.width < 65 for n in range(50) for w in views.draw_augmentation(0, n, SIZE, wide, SHAPE).windows)


@pytest.mark.parametrize(("focal", "widest"), [((1000.0, 50.0), 90.0), ((50.0, 1000.0), 90.0), ((50.0, 25.0), 126.87)])
def test_the_wider_of_both_axes_is_the_field_of_view(focal, widest):
    (fx, fy), window = focal, Window(10, 20, 100, 100)
    camera = [[fx, 0.0, 70.0], [0.0, fy, 60.0], [0.0, 0.0, 1.0]]
    assert views._max_field_of_view(window, camera) == pytest.approx(widest, abs=0.01)


@pytest.mark.parametrize(("width", "sigma"), [(64, 0.2), (320, 1.0), (640, 2.0), (1280, 2.0)])
def test_the_blur_is_less_in_views_narrower_than_640_pixels(width, sigma, monkeypatch):
    blurs = []
    monkeypatch.setattr(
        views, "apply_jitter", lambda images, valid, jitters: blurs.extend(j.blur for j in jitters) or images
    )
    drawn = Augmentation((Window(0, 0, 8, 8), Window(0, 0, 8, 8)), jitter=ColourJitter(blur=2.0))
    image = torch.zeros(1, 3, 8, 8, dtype=torch.uint8)
    views.make_views(image, torch.ones(1, 8, 8), torch.eye(3)[None], [drawn], (4, width))
    assert blurs == pytest.approx([sigma, sigma])


def test_plans_follow_from_seed_and_number():
    drawn = [views.draw_augmentation(seed, number, SIZE, camera(), SHAPE) for seed in range(3) for number in range(3)]
    assert len(set(drawn)) == 9
    assert drawn[4] == views.draw_augmentation(1, 1, SIZE, camera(), SHAPE)
    assert {views.draw_augmentation(0, n, SIZE, camera(), SHAPE).flip for n in range(20)} == {False, True}


def test_shapes_are_whole_patches_of_about_the_wanted_number():
    shapes = [views.draw_shape(0, step) for step in range(200)]
    assert all(h % 14 == w % 14 == 0 for h, w in shapes)
    assert all(190_000 < h * w < 412_000 for h, w in shapes)
    assert all(0.63 < w / h < 2.1 for h, w in shapes)
    assert len(set(shapes)) > 100
    assert shapes[7] == views.draw_shape(0, 7) != views.draw_shape(1, 7)
    small = [views.draw_shape(0, n, pixels=(2000, 4000), patch=4, least=8) for n in range(50)]
    assert all(min(s) >= 32 and s[0] * s[1] < 4700 for s in small)


def test_colour_jitters_are_as_likely_as_they_should_be():
    drawn = [colour_jitter.draw_jitter(views._random_numbers(0, "test", n)) for n in range(2000)]
    share = {name: sum(name in dict(d.jitters) for d in drawn) / 2000 for name in colour_jitter.JITTERS}
    assert all(value == pytest.approx(0.8, abs=0.03) for value in share.values())
    assert sum(d.gamma != 1 for d in drawn) / 2000 == pytest.approx(0.8, abs=0.03)
    assert sum(d.blur > 0 for d in drawn) / 2000 == pytest.approx(0.2, abs=0.03)
    assert sum(d.grey for d in drawn) / 2000 == pytest.approx(0.2, abs=0.03)
    reach = {"brightness": (0.6, 1.4), "contrast": (0.6, 1.4), "saturation": (0.3, 0.7), "hue": (-0.1, 0.1)}
    for name, (low, high) in reach.items():
        amounts = [dict(d.jitters)[name] for d in drawn if name in dict(d.jitters)]
        assert (min(amounts), max(amounts)) == pytest.approx((low, high), abs=0.02)
        assert low <= min(amounts)
        assert max(amounts) <= high
    assert len({tuple(n for n, _ in d.jitters) for d in drawn if len(d.jitters) == 4}) == 24
    for (low, high), amounts in (
        ((0.8, 1.2), [d.gamma for d in drawn if d.gamma != 1]),
        ((0.1, 2.0), [d.blur for d in drawn if d.blur]),
    ):
        assert (min(amounts), max(amounts)) == pytest.approx((low, high), abs=0.02)
        assert low <= min(amounts)
        assert max(amounts) <= high


# Light


def jitter_by_loop(image, jitter):
    """One image with its jitter, pixel by pixel, from 0 to 1 as nested lists of (red, green, blue)."""

    def grey(p):
        return 0.299 * p[0] + 0.587 * p[1] + 0.114 * p[2]

    def clamp(p):
        return tuple(min(1.0, max(0.0, value)) for value in p)

    rows = [[tuple(image[:, i, j].tolist()) for j in range(image.shape[2])] for i in range(image.shape[1])]
    for name, amount in jitter.jitters:
        everything = [p for row in rows for p in row]
        mean = sum(grey(p) for p in everything) / len(everything)

        def treat(p, name=name, f=amount, mean=mean):
            if name == "brightness":
                return clamp(f * v for v in p)
            if name == "contrast":
                return clamp(f * v + (1 - f) * mean for v in p)
            if name == "saturation":
                return clamp(f * v + (1 - f) * grey(p) for v in p)
            h, s, v = colorsys.rgb_to_hsv(*p)
            return colorsys.hsv_to_rgb((h + f) % 1, s, v)

        rows = [[treat(p) for p in row] for row in rows]
    rows = [[tuple(v**jitter.gamma for v in p) for p in row] for row in rows]
    if jitter.blur:
        bell = [math.exp(-0.5 * (k / jitter.blur) ** 2) for k in range(-6, 7)]
        height, width = len(rows), len(rows[0])

        def mirror(i, n):
            return -i if i < 0 else 2 * (n - 1) - i if i >= n else i

        def blur(i, j, c):
            total = 0.0
            for a, wa in enumerate(bell):
                for b, wb in enumerate(bell):
                    total += wa * wb * rows[mirror(i + a - 6, height)][mirror(j + b - 6, width)][c]
            return total / sum(bell) ** 2

        rows = [[tuple(blur(i, j, c) for c in range(3)) for j in range(width)] for i in range(height)]
    if jitter.grey:
        rows = [[(grey(p),) * 3 for p in row] for row in rows]
    return torch.tensor(rows, dtype=torch.float64).permute(2, 0, 1)


def test_colour_jitter_is_that_of_a_loop():
    rng = torch.Generator().manual_seed(0)
    images = torch.rand(7, 3, 8, 9, generator=rng, dtype=torch.float64)
    images[0, :, 2] = 0.5  # no hue at all
    chosen = [
        ColourJitter((("brightness", 1.3), ("hue", 0.09), ("contrast", 0.7), ("saturation", 0.4)), 1.2, 0.0, False),
        ColourJitter((("hue", -0.1), ("saturation", 0.7), ("brightness", 0.6)), 0.8, 1.7, False),
        ColourJitter((("contrast", 1.4),), 1.0, 0.4, True),
        ColourJitter((("saturation", 0.3), ("contrast", 1.2)), 1.0, 0.0, False),
        ColourJitter(grey=True),
        ColourJitter(),
        ColourJitter((("contrast", 1.4), ("hue", 0.05), ("saturation", 0.5))),
    ]
    before = images.clone()
    seen = colour_jitter.apply_jitter(images, torch.ones(7, 8, 9, dtype=torch.bool), chosen)
    assert torch.equal(images, before)
    for n, each in enumerate(chosen):
        torch.testing.assert_close(seen[n], jitter_by_loop(images[n], each))


def test_contrast_is_about_what_lies_in_the_frame():
    images = torch.full((1, 3, 2, 2), 0.5)
    images[..., 0] = 0.0
    inside = torch.tensor([[[False, True], [False, True]]])
    seen = colour_jitter.apply_jitter(images, inside, [ColourJitter((("contrast", 0.5),))])
    torch.testing.assert_close(seen[..., 1], torch.full((1, 3, 2), 0.5))
    torch.testing.assert_close(seen[..., 0], torch.full((1, 3, 2), 0.25))


def test_both_views_have_the_same_jitter_and_other_frames_another():
    """On a frame of one colour every jitter but blur is a single colour."""
    colour = torch.tensor([200, 120, 60], dtype=torch.uint8)[:, None, None]
    image, depth = colour.expand(2, 3, *SIZE), torch.ones(2, *SIZE)
    plans = [views.draw_augmentation(0, number, SIZE, camera(), SHAPE) for number in (0, 1)]
    seen = views.make_views(image, depth, camera().expand(2, 3, 3), plans, SHAPE)
    middle = seen.images[:, :, 35, 42]
    torch.testing.assert_close(middle[0], middle[1])
    torch.testing.assert_close(middle[2], middle[3])
    assert (middle[0] - middle[2]).abs().max() > 0.01


# Company


def noisy(count):
    rng = torch.Generator().manual_seed(1)
    images = torch.randint(256, (count, 3, *SIZE), generator=rng, dtype=torch.uint8)
    return images, torch.rand(count, *SIZE, generator=rng) * 4, camera().expand(count, 3, 3)


def test_views_do_not_depend_on_company_and_repeat():
    images, depths, cameras = noisy(6)
    plans = [views.draw_augmentation(0, number, SIZE, camera(), SHAPE) for number in range(6)]
    whole = views.make_views(images, depths, cameras, plans, SHAPE)
    again = views.make_views(images, depths, cameras, plans, SHAPE)
    for n in range(6):
        alone = views.make_views(images[n : n + 1], depths[n : n + 1], cameras[n : n + 1], plans[n : n + 1], SHAPE)
        for part, single in zip(whole, alone, strict=True):
            torch.testing.assert_close(part[2 * n : 2 * n + 2], single, atol=1e-5, rtol=1e-5)
    assert all(torch.equal(a, b) for a, b in zip(whole, again, strict=True))
    assert whole.images.shape == (12, 3, *SHAPE)
    assert whole.images.dtype == torch.float32


def test_what_lies_around_is_a_number_or_noise():
    images, depths, cameras = noisy(4)
    around = Window(-20.0, -24.0, 100.0, 120.0)
    fills = [(views.NOISE, views.NOISE), (-4.0, 4.0), (0.0, views.NOISE), (4.0, 0.0)]
    plans = [
        Augmentation(tuple(around._replace(fill=f, noise=10 * n + i) for i, f in enumerate(p)))
        for n, p in enumerate(fills)
    ]
    seen = views.make_views(images, depths, cameras, plans, SHAPE)
    for n, fill in enumerate(f for pair in fills for f in pair):
        outside = seen.images[n][:, ~seen.valid[n]]
        assert outside.numel() > 5000
        if fill == views.NOISE:
            assert (float(outside.mean()), float(outside.std())) == pytest.approx((0, 2), abs=0.1)
        else:
            assert (outside == fill).all()
    assert not torch.equal(seen.images[0][:, ~seen.valid[0]], seen.images[1][:, ~seen.valid[1]])


def test_views_have_no_gradient_and_ignore_autocast():
    images, depths, cameras = noisy(1)
    cameras = cameras.clone().requires_grad_()
    plans = [views.draw_augmentation(0, 0, SIZE, camera(), SHAPE)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        seen = views.make_views(images, depths, cameras, plans, SHAPE)
    assert not any(part.requires_grad for part in seen)
    assert torch.equal(seen.images, views.make_views(images, depths, cameras, plans, SHAPE).images)


def test_preparing_reads_no_value_on_the_host():
    """Fake tensors have no values: reading one is an error."""
    drawn = [views.draw_augmentation(0, number, SIZE, camera(), SHAPE) for number in range(30)]
    plans = [p for p in drawn if views.NOISE not in {w.fill for w in p.windows}]  # a generator has no fake
    with FakeTensorMode():
        count = len(plans)
        images, depths = torch.zeros(count, 3, *SIZE, dtype=torch.uint8), torch.zeros(count, *SIZE)
        seen = views.make_views(images, depths, torch.ones(count, 3, 3), plans, SHAPE)
        fitted, _ = letterbox(images, depths, torch.ones(count, 3, 3), SHAPE)
    assert seen.images.shape == (2 * count, 3, *SHAPE)
    assert fitted.images.shape == (count, 3, *SHAPE)


def test_a_missing_augmentation_is_named():
    images, depths, cameras = noisy(2)
    with pytest.raises(ValueError, match="got 2 images, 2 depths, 2 cameras and 1 augmentations"):
        views.make_views(images, depths, cameras, [plain(0)], SHAPE)


# For evaluation


@pytest.mark.parametrize("shape", [(70, 84), (98, 56), (28, 70)])
def test_whole_frames_are_centred_and_brought_back(shape):
    image, depth, cameras, corners = dotted()
    seen, undo = letterbox(image, depth, cameras, shape)
    where = geometry.project(corners[None], seen.cameras)[0]
    for i in range(3):
        assert found(torch.where(seen.valid[0], seen.images[0], -4.0), i) == pytest.approx(
            where[:, i].tolist(), abs=0.05
        )
    scale = min(shape[0] / 60, shape[1] / 80)
    assert float(seen.valid.sum()) == pytest.approx(60 * 80 * scale**2, rel=0.04)
    assert (seen.images[0][:, ~seen.valid[0]] == 0).all()
    torch.testing.assert_close(undo.cameras(seen.cameras), cameras)
    rows, columns = torch.meshgrid(*(torch.arange(n) + 0.5 for n in shape), indexing="ij")
    u = (columns - seen.cameras[0, 0, 2]) / seen.cameras[0, 0, 0]
    v = (rows - seen.cameras[0, 1, 2]) / seen.cameras[0, 1, 1]
    back = undo.depths((2 + u + 3 * v)[None])  # a plane of slopes: known in every pixel of the frame
    rows, columns = torch.meshgrid(*(torch.arange(n) + 0.5 for n in SIZE), indexing="ij")
    expected = 2 + (columns - cameras[0, 0, 2]) / cameras[0, 0, 0] + 3 * (rows - cameras[0, 1, 2]) / cameras[0, 1, 1]
    inner = (..., slice(3, -3), slice(3, -3))
    assert back.shape == (1, *SIZE)
    torch.testing.assert_close(back[0][inner], expected[inner], atol=1e-4, rtol=1e-4)
