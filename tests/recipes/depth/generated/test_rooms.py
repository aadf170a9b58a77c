"""Ray-cast rooms and streets: depth against geometry worked out another way, and frames that depend on nothing else."""

import math
import pickle
import random

import pytest
import torch

from trainonce.recipes.depth.data.frames import Range
from trainonce.recipes.depth.generated import rooms, textures
from trainonce.recipes.depth.generated.interiors import interior
from trainonce.recipes.depth.generated.raycast import (
    Light,
    Pose,
    Rays,
    Scene,
    Thing,
    camera_rays,
    is_occluded,
    nearest_hit,
    pack,
    visible_rows,
)
from trainonce.recipes.depth.generated.roads import road
from trainonce.recipes.depth.generated.rooms import GeneratedFrames, frame, frames, intrinsics, load, scene
from trainonce.recipes.depth.generated.shading import render
from trainonce.recipes.depth.generated.textures import Surface

CPU = torch.device("cpu")
GREY = Surface((0.5, 0.5, 0.5))
SIZE = (24, 32)
CAMERA = torch.tensor([[[30.0, 0.0, 15.0], [0.0, 28.0, 13.0], [0.0, 0.0, 1.0]]])


def room(*things, low=(-2.0, -2.5, -1.0), high=(2.0, 0.0, 4.0)):
    return Scene(low, high, (GREY, GREY), GREY, GREY, things, Light((0.0, -2.0, 1.0), 3.0, 0.5, 1.0))


HERE = Pose((0.0, -1.2, 0.0))


def depth_of(what, pose=HERE, camera=CAMERA, size=SIZE):
    return nearest_hit(camera_rays([pose], camera, size), pack([what], CPU))[0].view(size)


def directions(camera=CAMERA, size=SIZE):
    """Rays of length 1 along the optical axis, in double precision, by the inverse of the matrix."""
    v, u = torch.meshgrid(*(torch.arange(n, dtype=torch.float64) + 0.5 for n in size), indexing="ij")
    return torch.stack([u, v, torch.ones_like(u)], -1) @ camera[0].double().inverse().T


# Depth


def test_the_walls_floor_and_ceiling_of_an_empty_room_are_where_they_are():
    to = directions()
    sides = [
        torch.where(to[..., i] > 0, high, low) / to[..., i] for i, (low, high) in enumerate(((-2, 2), (-1.3, 1.2)))
    ]
    expected = torch.minimum(torch.minimum(*sides), torch.tensor(4.0))
    torch.testing.assert_close(depth_of(room()).double(), expected, rtol=1e-5, atol=1e-5)
    assert (expected == 4.0).sum() > 20
    assert (expected < 4.0).sum() > 20


def test_a_ball_is_where_the_quadratic_equation_says():
    ball = Thing("sphere", (0.2, -1.0, 2.5), (0.6,) * 3, GREY, GREY)
    to, centre = directions(), torch.tensor([0.2, 0.2, 2.5], dtype=torch.float64)
    a, b, c = (to * to).sum(-1), (to @ centre), centre @ centre - 0.36
    hit = b * b - a * c > 0
    expected = torch.where(hit, (b - (b * b - a * c).clamp(min=0).sqrt()) / a, depth_of(room()).double())
    assert 30 < hit.sum() < 300
    clear = (b * b - a * c).abs() > 1e-5  # rays that all but touch it may miss it
    torch.testing.assert_close(depth_of(room(ball)).double()[clear], expected[clear], rtol=1e-4, atol=1e-4)


def test_a_pose_turns_right_looks_up_and_leans():
    pose = Pose((0.0, 0.0, 0.0), yaw=0.3, pitch=0.2)
    right, down, ahead = torch.tensor(pose.axes()).T
    assert torch.allclose(
        ahead, torch.tensor([math.sin(0.3) * math.cos(0.2), -math.sin(0.2), math.cos(0.3) * math.cos(0.2)])
    )
    assert right[0] > 0.9
    assert down[1] > 0.9
    assert abs(right[1]) < 1e-6
    axes = torch.tensor(pose._replace(roll=0.1).axes(), dtype=torch.float64)
    torch.testing.assert_close(axes @ axes.T, torch.eye(3, dtype=torch.float64))
    torch.testing.assert_close(axes.det(), torch.tensor(1.0, dtype=torch.float64))
    assert axes[1, 0] == pytest.approx(math.cos(0.2) * math.sin(0.1))


def inside(thing, points):
    """Whether points are inside a thing, by its definition, in double precision."""
    p = points - torch.tensor(thing.centre, dtype=torch.float64)
    cos, sin = math.cos(thing.turn), math.sin(thing.turn)
    p = torch.stack([p[..., 0] * cos - p[..., 2] * sin, p[..., 1], p[..., 0] * sin + p[..., 2] * cos], -1)
    q = (p / torch.tensor(thing.half, dtype=torch.float64)).abs()
    if thing.shape == "sphere":
        return q.square().sum(-1) < 1
    if thing.shape == "cylinder":
        return (q[..., 0].square() + q[..., 2].square() < 1) & (q[..., 1] < 1)
    return (q < 1).all(-1)


@pytest.mark.parametrize("kind", ["room", "street"])
def test_a_ray_goes_through_air_and_ends_at_a_surface(kind):
    for index in range(4):
        what, pose = scene(5, index, kind)
        camera = torch.tensor([intrinsics(5, index, kind, SIZE)])
        depth = depth_of(what, pose, camera).double().flatten()
        to = directions(camera).view(-1, 3) @ torch.tensor(pose.axes(), dtype=torch.float64).T
        start = torch.tensor(pose.place, dtype=torch.float64)
        step = torch.linspace(0, 1, 64, dtype=torch.float64)[:, None] * (depth - 1e-3)
        air = start + to * step[..., None]
        behind = start + to * (depth + 1e-3)[:, None]
        low, high = (torch.tensor(corner, dtype=torch.float64) for corner in (what.low, what.high))
        solid = ((behind < low) | (behind > high)).any(-1)
        for thing in what.things:
            assert not inside(thing, air).any(), thing
            solid |= inside(thing, behind)
        assert solid.float().mean() > 0.99  # the rest only graze an edge
        assert depth.min() > 0.2


def test_points_of_one_camera_are_found_by_another_in_the_same_room():
    what, pose = scene(0, 3, "room")
    camera = torch.tensor([intrinsics(0, 3, "room", SIZE)])
    rays, scenes = camera_rays([pose], camera, SIZE), pack([what], CPU)
    points = rays.at(nearest_hit(rays, scenes)[0])
    other = (pose.place[0] + 0.2, pose.place[1] - 0.2, pose.place[2] + 0.1)
    start = tuple(torch.tensor([[value]]) for value in other)
    back = Rays(start, tuple(p - s for p, s in zip(points, start, strict=True)))
    reached, _ = nearest_hit(back, scenes)
    assert (reached < 1 + 1e-4).all()
    assert ((reached - 1).abs() < 1e-4).float().mean() > 0.7  # the others are hidden from there


def test_light_is_blocked_by_things_and_only_by_those_between():
    block = Thing("box", (0.0, -1.0, 2.0), (0.3, 0.2, 0.3), GREY, GREY)
    lamp = tuple(torch.tensor([[value]]) for value in (0.0, -2.0, 2.0))
    ends = torch.tensor([[0.0, 0.0, 2.0], [1.5, 0.0, 2.0], [0.0, -1.21, 2.0], [0.0, -2.4, 2.0]])
    beam = Rays(lamp, tuple((ends.T[i] - lamp[i]) + 1e-12 for i in range(3)))
    assert is_occluded(beam, pack([room(block)], CPU)).tolist() == [[True, False, False, False]]


def test_a_shadow_is_darker_than_the_same_floor_without_it():
    hanging = Thing("box", (0.0, -1.7, 2.0), (0.3, 0.05, 0.3), GREY, GREY)
    lamp = Light((0.0, -2.4, 2.0), 3.0, 0.3, 1.0)
    down = Pose((0.0, -1.5, 2.0), pitch=-math.pi / 2)
    pictures = []
    for things in ((), (hanging,)):
        what = pack([room(*things)._replace(light=lamp)], CPU)
        pictures.append(render(what, camera_rays([down], CAMERA, SIZE), torch.tensor([[1 / 30]])).colour)
    assert (pictures[1] < pictures[0] * 0.6).float().mean() > 0.5
    torch.testing.assert_close(pictures[1].min(), torch.tensor(0.5 * 0.3 * 1.25))


@pytest.mark.parametrize("kind", ["room", "street"])
def test_rays_that_are_spared_would_have_missed(kind):
    whats, poses = map(list, zip(*(scene(2, index, kind) for index in range(4)), strict=True))
    cameras = torch.tensor([intrinsics(2, index, kind, SIZE) for index in range(4)])
    for some in (slice(0, 1), slice(0, 4)):
        rays, scenes = camera_rays(poses[some], cameras[some], SIZE), pack(whats[some], CPU)
        spans = visible_rows(scenes, poses[some], cameras[some], SIZE)
        for got, expected in zip(nearest_hit(rays, scenes, spans), nearest_hit(rays, scenes), strict=True):
            assert torch.equal(got, expected)
        spared = [span.stop - span.start < SIZE[0] * SIZE[1] for span in spans]
        assert sum(spared) > len(spared) / 4


# Textures


def seen(surface, across, up, footprint=1e-3):
    """The red of a surface at some places."""
    across, up = torch.broadcast_tensors(torch.as_tensor(across), torch.as_tensor(up))
    numbers = torch.tensor(surface.numbers())[:, None].expand(-1, across.numel())
    return textures.paint(numbers, across.flatten(), up.flatten(), torch.full((across.numel(),), footprint))[0]


def test_patterns_have_their_size_in_metres():
    rng = random.Random(0)
    checks = textures.checks(rng, (0.8, 0.5, 0.2))._replace(grain=0.0)
    tone = seen(checks, torch.tensor([0.1, 0.4, 0.6, 0.9, 1.1]), 0.2)
    assert tone[0] == tone[1] == tone[4]
    assert tone[2] == tone[3] != tone[0]
    lanes = textures.lanes(rng)._replace(grain=0.0)
    x = torch.arange(0, 7, 0.01)
    white = x[seen(lanes, x, 6.0) > 0.6]
    assert white.min() == pytest.approx(3.5 / 2 - 0.075, abs=0.011)
    assert (white < 3.5).sum() == pytest.approx(15, abs=1)
    assert white.max() - white.min() == pytest.approx(3.5 + 0.15, abs=0.021)


def test_a_pattern_finer_than_a_pixel_shows_its_mean():
    stripes = Surface((1.0, 1.0, 1.0), (0.0, 0.0, 0.0), (0.2, 1.0), (0.5, 1.0))
    x = torch.linspace(0, 2, 50)
    assert seen(stripes, x, 0.3).unique().tolist() == pytest.approx([0.0, 1.0], abs=1e-4)
    assert (seen(stripes, x, 0.3, footprint=2.0) - 0.5).abs().max() < 0.06


def test_bricks_are_laid_in_a_bond():
    bond = textures.bricks(random.Random(0), (0.8, 0.3, 0.2))._replace(grain=0.0, cell=0.0)
    joint = textures.BRICK[0]  # the end of a brick in the first row is the middle of one in the next
    first, second = seen(bond, joint, torch.tensor([0.04, 0.12]))
    assert first < second


# Frames


def test_a_frame_does_not_depend_on_those_made_with_it():
    together = frames(3, range(6), "mixed", (30, 37))
    for index in (0, 1, 4, 5):
        for got, alone in zip(together, frame(3, index, "mixed", (30, 37)), strict=True):
            assert torch.equal(got[index], alone)
    few = frames(3, [5, 1], "mixed", (30, 37))
    assert torch.equal(few[0], together[0][[5, 1]])


def test_frames_have_the_types_and_ranges_they_should():
    image, depth, camera = frame(0, 0)
    assert (image.dtype, tuple(image.shape)) == (torch.uint8, (3, 96, 128))
    assert (depth.dtype, tuple(depth.shape)) == (torch.float32, (96, 128))
    assert (camera.dtype, tuple(camera.shape)) == (torch.float32, (3, 3))
    images, depths, cameras = frames(1, range(24), "room", SIZE)
    assert depths.min() > 0.1
    assert depths.max() < 10
    assert images.float().std(dim=(2, 3)).mean() > 10, "rooms have texture"
    fields = torch.rad2deg(2 * torch.atan(SIZE[1] / 2 / cameras[:, 0, 0]))
    assert ((fields >= 40) & (fields <= 90)).all()
    assert fields.max() - fields.min() > 20
    centres = cameras[:, :2, 2] / torch.tensor([32.0, 24.0])
    assert ((centres - 0.5).abs() <= 0.01 + 1e-6).all()
    assert (centres - 0.5).abs().max() > 0.005


def test_streets_have_a_sky_without_depth_and_ground_with_it():
    images, depths, _ = frames(1, range(8), "street", SIZE)
    assert (depths[:, -1] > 0).all()
    assert (depths[:, 0] == 0).float().mean() > 0.2
    assert depths.max() <= 80
    sky = images.permute(0, 2, 3, 1)[:, 0][depths[:, 0] == 0].float()
    assert sky.mean() > 150


def test_the_ground_of_a_street_is_as_deep_as_the_camera_is_high():
    what, pose = scene(1, 2, "street")
    camera = torch.tensor([intrinsics(1, 2, "street", SIZE)])
    level = pose._replace(yaw=0.0, pitch=0.0, roll=0.0)
    depth = depth_of(what._replace(things=()), level, camera)
    row = SIZE[0] - 1
    expected = -pose.place[1] * camera[0, 1, 1] / (row + 0.5 - camera[0, 1, 2])
    torch.testing.assert_close(depth[row], expected.expand(SIZE[1]), rtol=1e-4, atol=1e-4)


def test_size_changes_the_sampling_and_nothing_else():
    small, large = frame(2, 1, "room", SIZE), frame(2, 1, "room", (72, 96))
    torch.testing.assert_close(large.camera[:2], small.camera[:2] * 3)
    middle = large.depth[1::3, 1::3]  # every third pixel's middle is that of a small image's pixel
    assert ((middle - small.depth).abs() < 1e-3).float().mean() > 0.99


def test_seed_number_and_kind_decide():
    assert torch.equal(frame(0, 1, size=SIZE).image, frame(0, 1, size=SIZE).image)
    others = [frame(1, 1, size=SIZE), frame(0, 2, size=SIZE), frame(0, 1, "street", SIZE)]
    assert all(not torch.equal(frame(0, 1, size=SIZE).depth, other.depth) for other in others)
    before = torch.random.get_rng_state()
    random.seed(1)
    state = random.getstate()
    frame(0, 5, "mixed", SIZE)
    assert torch.equal(before, torch.random.get_rng_state())
    assert random.getstate() == state


def test_mixed_frames_take_turns():
    made = GeneratedFrames(0, 4, "mixed", SIZE, first=2)
    assert [made.name(i) for i in range(4)] == ["room 0/2", "street 0/3", "room 0/4", "street 0/5"]
    assert torch.equal(made.frame(1).image, frame(0, 3, "street", SIZE).image)


def test_a_list_makes_the_same_one_by_one_and_many_at_once():
    made = pickle.loads(pickle.dumps(GeneratedFrames(4, 5, "room", SIZE, first=7)))
    images, depths, cameras = made.frames([4, 0])
    for row, index in enumerate((4, 0)):
        one = made.frame(index)
        assert torch.equal(images[row], one.image)
        assert torch.equal(depths[row], one.depth)
        assert torch.equal(cameras[row], one.camera)
    assert torch.equal(one.image, frame(4, 7, "room", SIZE).image)
    assert [tuple(part.shape) for part in made.frames([])] == [(0, 3, *SIZE), (0, *SIZE), (0, 3, 3)]
    with pytest.raises(IndexError, match="There are 5 frames, from 0; got 5"):
        made.frame(5)


def test_furniture_does_not_stand_in_the_camera_or_in_other_furniture():
    counts = []
    for index in range(40):
        what, pose = interior(random.Random(index))
        camera = torch.tensor(pose.place, dtype=torch.float64)
        assert not any(inside(thing, camera) for thing in what.things)
        standing = [thing for thing in what.things if thing.centre[1] + thing.half[1] == pytest.approx(0, abs=1e-6)]
        counts.append(len(standing))
        assert all(abs(t.centre[0]) <= what.high[0] and abs(t.centre[2]) <= what.high[2] for t in what.things)
    assert min(counts) >= 2
    assert sum(counts) / len(counts) > 5
    assert all(road(random.Random(index))[0].sky is not None for index in range(3))


# Sets


def test_no_room_is_in_two_sets():
    sets = load(3, SIZE, counts=(6, 3, 4))
    parts = [sets.training["rooms"], sets.validation.frames, sets.test.frames]
    names = [part.name(i) for part in parts for i in range(len(part))]
    assert [len(part) for part in parts] == [6, 3, 4]
    assert len(set(names)) == 13
    assert sets.test.range == Range(0.005, 10.0)
    assert sets.others == {}


def test_mixed_sets_report_on_streets_besides():
    sets = load(3, SIZE, counts=(6, 3, 4), kind="mixed")
    assert list(sets.training) == ["rooms", "streets"]
    assert sets.test.frames.name(0) == "room 3/9"
    assert (sets.others["streets"].frames.name(0), sets.others["streets"].range.farthest) == ("street 3/9", 80.0)
    assert load(3, SIZE, counts=(1, 1, 1), kind="street").test.range.farthest == 80


@pytest.mark.parametrize(
    ("kind", "size", "text"),
    [
        ("rooms", SIZE, "Frames are made of the kinds 'room', 'street', 'mixed'; got 'rooms'. Did you mean 'room'?"),
        ("room", (0, 4), r"Frames need a size \(height, width\) of at least one pixel; got \(0, 4\)."),
    ],
)
def test_wrong_kinds_and_sizes_are_reported(kind, size, text):
    for call in (
        lambda: frame(0, 0, kind, size),
        lambda: GeneratedFrames(0, 1, kind, size),
        lambda: load(0, size, kind=kind),
    ):
        with pytest.raises(ValueError, match=text):
            call()


def test_all_of_it_is_computed_on_the_device_asked_for():
    parts = frames(0, range(3), "mixed", SIZE, device="meta")  # which mixes with no other
    assert [part.device.type for part in parts] == ["meta"] * 3
    assert [tuple(part.shape) for part in parts] == [(3, 3, *SIZE), (3, *SIZE), (3, 3, 3)]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_a_gpu_makes_the_same_frames():
    here, there = frames(0, range(6), "mixed"), frames(0, range(6), "mixed", device="cuda")
    assert ((here[1] - there[1].cpu()).abs() < 1e-3 * (1 + here[1])).float().mean() > 0.999
    assert ((here[0].int() - there[0].cpu().int()).abs() <= 2).float().mean() > 0.99
    assert torch.equal(here[2], there[2].cpu())
    assert rooms.AT_ONCE["cuda"] > rooms.AT_ONCE["cpu"]
