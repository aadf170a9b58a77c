"""Drawn streets: the same wherever and in whatever order they are asked for, exact labels, weather that shows."""

import pickle

import pytest
import torch

from trainonce.recipes.segmentation.generated import streets
from trainonce.recipes.segmentation.generated.streets import CLASSES, Streets

CONDITIONS = ("day", "dusk", "night", "fog")
SIZE = (48, 96)


def mean(condition, of=lambda image: image.float().mean(), count=8):
    made = Streets(0, count, condition, SIZE)
    return float(torch.stack([of(made.image(i)) for i in range(count)]).mean())


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_scene_is_its_seed_number_and_condition(condition):
    forwards, backwards = (Streets(5, 3, condition, SIZE) for _ in range(2))
    one = [forwards.image(i) for i in range(3)]
    torch.manual_seed(99)
    threads = torch.get_num_threads()
    torch.set_num_threads(3 if threads != 3 else 2)
    try:
        other = [backwards.image(i) for i in (2, 1, 0)][::-1]
    finally:
        torch.set_num_threads(threads)
    assert all(map(torch.equal, one, other))
    assert not torch.equal(one[0], one[1])
    assert not torch.equal(one[0], Streets(6, 3, condition, SIZE).image(0))


def test_drawing_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    Streets(0, 1, "night", SIZE).image(0)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("size", [(16, 16), (33, 57), (96, 192)])
def test_images_and_labels_have_the_form_of_scenes(size):
    made = Streets(1, 2, "dusk", size)
    assert len(made) == 2
    assert made.image(1).shape == (3, *size)
    assert made.label(1).shape == size
    assert made.image(1).dtype == made.label(1).dtype == torch.uint8


def test_every_class_is_there_and_no_other():
    made = Streets(0, 12, "day")
    found = torch.bincount(torch.stack([made.label(i) for i in range(12)]).flatten().long())
    assert len(found) == len(CLASSES) == len(CLASSES.colours)
    assert (found / found.sum() > 0.002).all()


def test_the_weather_changes_the_picture_and_not_the_label():
    made = [Streets(2, 4, condition, SIZE) for condition in CONDITIONS]
    for i in range(4):
        labels, images = ([getattr(m, kind)(i) for m in made] for kind in ("label", "image"))
        assert all(torch.equal(label, labels[0]) for label in labels)
        assert len({image.numpy().tobytes() for image in images}) == 4


def test_nights_are_darkest_and_fog_is_flat():
    night, dusk, day, fog = map(mean, ("night", "dusk", "day", "fog"))
    assert 10 < night < 0.8 * dusk
    assert dusk < 0.75 * day
    assert fog > day
    contrasts = {condition: mean(condition, lambda image: image.float().std()) for condition in CONDITIONS}
    assert max(contrasts, key=contrasts.get) == "day"


def test_dusk_is_warm():
    assert mean("dusk", lambda image: image[0].float().mean() - image[2].float().mean()) > 15


def test_fog_hides_the_far_and_not_the_near():
    clear, foggy = (Streets(3, 1, condition) for condition in ("day", "fog"))
    road = clear.label(0) == CLASSES.names.index("road")
    rows = road.nonzero()[:, 0]
    far, near = (foggy.image(0).float()[:, row, road[row]].mean() for row in (int(rows.min()) + 2, -1))
    assert far > near + 30


def test_what_is_handed_out_is_the_callers_own():
    made = Streets(0, 1, "day", SIZE)
    label = made.label(0)
    made.image(0).zero_()
    made.label(0).fill_(99)
    assert made.image(0).any()
    assert torch.equal(made.label(0), label)


def test_large_scenes_are_drawn_again_and_not_kept(monkeypatch):
    monkeypatch.setattr(streets, "KEPT", 4 * SIZE[0] * SIZE[1])
    made = Streets(0, 2, "day", SIZE)
    images = [made.image(i) for i in (0, 1)]
    assert len(made._drawn) == 1
    assert all(torch.equal(image, made.image(i)) for i, image in enumerate(images))


def test_a_list_travels_without_its_pictures():
    domains = streets.load(4, size=SIZE, source=3, style=2, validation=2, test=2, held_out=2)
    image = domains.test.image(1)
    packed = pickle.dumps(domains)
    assert len(packed) < 2000
    assert torch.equal(pickle.loads(packed).test.image(1), image)


@pytest.mark.parametrize("target", ["night", "fog"])
def test_no_street_is_in_two_sets(target):
    counts = {"source": 6, "style": 3, "validation": 4, "test": 5}
    domains = streets.load(7, size=SIZE, target=target, held_out=2, **counts)
    sets = domains.sets()
    assert {name: len(scenes) for name, scenes in sets.items()} == counts | {"day": 2}
    labels = [scenes.label(i).numpy().tobytes() for scenes in sets.values() for i in range(len(scenes))]
    assert len(set(labels)) == 20
    for name, scenes in sets.items():
        assert scenes.name(0).endswith("day" if name in ("source", "day") else target)


@pytest.mark.parametrize("index", [-1, 2])
def test_there_is_no_scene_beyond_the_count(index):
    with pytest.raises(IndexError, match=r"There are 2 streets, from 0; got"):
        Streets(0, 2, "day", SIZE).image(index)


def test_an_unknown_condition_is_named():
    with pytest.raises(ValueError, match=r"'day', 'dusk', 'night', 'fog'; got 'fogg'\. Did you mean 'fog'\?"):
        Streets(0, 1, "fogg")
