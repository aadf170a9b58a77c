"""Batches of the depth recipe: which frames, in which order, and what happens to unreadable ones."""

import pytest
import torch
from _depth_settings import TINY

from trainonce.recipes.depth import training
from trainonce.recipes.depth.augmentation import views
from trainonce.recipes.depth.data import batches
from trainonce.recipes.depth.generated import rooms
from trainonce.recipes.depth.settings import Settings

pytestmark = pytest.mark.filterwarnings("ignore::trainonce.recipes.depth.data.batches.UnreadableFrame")


def test_sets_are_drawn_equally_often_and_frames_once_an_epoch():
    sizes = {"large": 6, "small": 2}
    chosen = [batches.choice(n, sizes, seed=3) for n in range(24)]
    counts = {name: sum(c.set == name for c in chosen) for name in sizes}
    assert counts == {"large": 12, "small": 12}
    first = [c.at for c in chosen if c.set == "large"][:6]
    assert sorted(first) == list(range(6)) != first
    assert chosen == [batches.choice(n, sizes, seed=3) for n in range(24)]
    assert chosen != [batches.choice(n, sizes, seed=4) for n in range(24)]


def test_the_order_of_frames_and_of_sets_depends_on_the_seed_and_on_the_epoch():
    def order(sizes, seed, numbers):
        return [batches.choice(n, sizes, seed)[1:] for n in numbers]

    one = {"rooms": 8}
    epochs = [order(one, seed, range(8 * epoch, 8 * epoch + 8)) for seed in (3, 4) for epoch in (0, 1)]
    assert all(sorted(epoch) == sorted(epochs[0]) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 4
    three = {"a": 1, "b": 1, "c": 1}
    turns = [tuple(order(three, seed, range(3 * turn, 3 * turn + 3))) for seed in (3, 4) for turn in range(12)]
    assert all(sorted(turn) == sorted(turns[0]) for turn in turns)
    assert len(set(turns[:12])) > 3
    assert turns[:12] != turns[12:]


def test_two_processes_share_what_one_would_train_on():
    sizes = {"large": 6, "small": 2}
    whole = batches.SampleOrder(sizes, 4, 0, range(2, 5))
    first, second = (batches.SampleOrder(sizes, 2, 0, range(2, 5), (rank, 2)) for rank in (0, 1))
    assert [whole[i] for i in range(3)] == [first[i] + second[i] for i in range(3)]
    assert [chosen.number for chosen in whole[0]] == [8, 9, 10, 11]


def test_frames_of_several_sizes_stay_in_order():
    made = [rooms.frame(0, i, size=size) for i, size in enumerate([(24, 32), (30, 40), (24, 32)])]
    chosen = [batches.Choice(i, "rooms", i) for i in range(3)]

    def group(*members):
        stack = batches.Frame(*(torch.stack([made[i][k] for i in members]) for k in range(3)))
        return batches.Group(list(members), stack, stack.camera)

    settings = Settings(**TINY)
    together = batches.make_batch(chosen, [group(0, 2), group(1)], settings, (28, 42), seed=0)
    alone = [
        batches.make_batch([chosen[i]], [group(i)._replace(members=[0])], settings, (28, 42), seed=0) for i in range(3)
    ]
    for part, parts in zip(together, zip(*alone, strict=True), strict=True):
        torch.testing.assert_close(part, torch.cat(parts))


def test_views_made_for_several_steps_are_those_of_each_step(monkeypatch):
    settings = Settings(**TINY | {"steps": 5, "limit": 0})
    sets = rooms.load(0, (30, 40), counts=(6, 1, 1), kind="mixed")

    def all_of(most, first=0):
        monkeypatch.setitem(batches.MOST_STEPS, "cpu", most)
        return list(training.batches_from(sets, settings, 14, 0, torch.device("cpu"), first))

    one, several, later = all_of(1), all_of(3), all_of(3, first=4)
    assert [step for step, _ in one] == [step for step, _ in several] == [1, 2, 3, 4, 5]
    for (_, a), (_, b) in zip(one, several, strict=True):
        for x, y in zip(a, b, strict=True):
            torch.testing.assert_close(x, y)
    ((step, views_of_it),) = later
    assert step == 5
    assert all(torch.equal(x, y) for x, y in zip(views_of_it, several[4][1], strict=True))


class Bad:
    """Three frames: a lost file, one without depth, and a good one."""

    def __len__(self):
        return 3

    def name(self, index):
        return f"frame {index}"

    def frame(self, index):
        if index == 0:
            raise OSError("it is gone")
        made = rooms.frame(0, index, size=(24, 32))
        return made._replace(depth=made.depth * (index == 2))


def test_frames_in_memory_are_replaced_alike():
    with pytest.warns(batches.UnreadableFrame, match="frame 1: it has 0 pixels of known depth"):
        source = batches.DeviceCache({"bad": Bad()}, Settings(readers=1), torch.device("cpu"))
    (found,) = source.groups(batches.SampleOrder({"bad": 3}, 3, 0, range(1))[0])
    good = rooms.frame(0, 2, size=(24, 32))
    assert all(torch.equal(depth, good.depth) for depth in found.frames.depth)


def test_what_cannot_be_trained_on_is_replaced_with_a_warning():
    order = batches.SampleOrder({"bad": 3}, 2, 0, range(2))
    stream = batches.StreamLoader({"bad": Bad()}, Settings(readers=0), 14, torch.device("cpu"))
    with pytest.warns(batches.UnreadableFrame) as said:
        found = list(stream.batches(order))
    good = rooms.frame(0, 2, size=(24, 32))
    images = torch.cat([group.frames.image for step in found for group in step])
    assert len(images) == 4
    assert all(torch.equal(image, good.image) for image in images)
    texts = {str(w.message) for w in said}
    assert any("frame 0: it is gone" in text for text in texts)
    assert any("frame 1: it has 0 pixels of known depth, less than 50" in text for text in texts)


# Fewer than 50 known pixels in a view


class Sparse:
    """Two frames: one that is known in a corner alone, and one that is known everywhere."""

    def __len__(self):
        return 2

    def name(self, index):
        return f"frame {index}"

    def frame(self, index):
        made = rooms.frame(0, index, size=(48, 64))
        if index == 0:
            depth = torch.zeros(48, 64)
            depth[:8, :12] = made.depth[:8, :12]
            made = made._replace(depth=depth)
        return made


SMALL = Settings(**TINY | {"resident": False, "readers": 0, "shape": (42, 56)})


def views_of(number, settings=SMALL):
    """The two views of the sparse frame under the augmentation of a sample."""
    made = Sparse().frame(0)
    drawn = batches.augmentation(settings, 0, number, (48, 64), made.camera, (42, 56))
    return made, drawn, views.make_views(*(part[None] for part in made), [drawn], (42, 56))


def test_pixels_are_counted_in_the_views_that_will_be_made():
    counts = set()
    for number in range(12):
        made, drawn, both = views_of(number)
        counted = int((both.depths > 0).sum((1, 2)).min())
        assert views.fewest_known(made.depth, drawn, (42, 56), enough=10**6) == counted
        assert (views.fewest_known(made.depth, drawn, (42, 56), enough=50) >= 50) == (counted >= 50)
        counts.add(counted)
    assert min(counts) < 50 <= max(counts)
    whole = Sparse().frame(1)
    assert views.fewest_known(whole.depth, drawn, (42, 56), enough=50) >= 50


@pytest.mark.filterwarnings("always::trainonce.recipes.depth.data.batches.UnreadableFrame")
def test_a_frame_is_replaced_by_what_its_views_show_and_not_by_what_it_has():
    """Of the samples of the sparse frame, those whose crop leaves at least 50 known pixels are trained on."""
    order = batches.SampleOrder({"sparse": 2}, 2, 0, range(12))
    stream = batches.StreamLoader({"sparse": Sparse()}, SMALL, 14, torch.device("cpu"))
    with pytest.warns(batches.UnreadableFrame, match=r"frame 0: it has \d+ pixels .* in one of its views"):
        found = list(stream.batches(order))
    kept = {}
    for step, (group,) in enumerate(found):
        for at, depth in zip(group.members, group.frames.depth, strict=True):
            chosen = order[step][at]
            if chosen.at == 0:
                kept[chosen.number] = not bool((depth > 0).all())
    assert kept == {n: int((views_of(n)[2].depths > 0).sum((1, 2)).min()) >= 50 for n in kept}
    assert set(kept.values()) == {False, True}


def test_views_on_the_device_that_show_too_little_lose_their_depth():
    order = batches.SampleOrder({"sparse": 2}, 12, 0, range(1))[0]
    cache = batches.DeviceCache({"sparse": Sparse()}, SMALL, torch.device("cpu"))
    made = batches.make_batch(order, cache.groups(order), SMALL, (42, 56), seed=0)
    counts = (made.depths > 0).sum((1, 2)).tolist()
    raw = [count for each in order if each.at == 0 for count in (views_of(each.number)[2].depths > 0).sum((1, 2))]
    assert [counts[2 * i + k] for i, each in enumerate(order) if each.at == 0 for k in range(2)] == [
        int(count) if count >= 50 else 0 for count in raw
    ]
    assert any(0 < count < 50 for count in raw)
    assert any(count >= 50 for count in raw)


@pytest.mark.parametrize(("known", "kept"), [(49, 0), (50, 50)])
def test_fifty_pixels_are_enough(known, kept):
    depths = torch.zeros(1, 10, 10)
    depths.view(-1)[:known] = 1.0
    made = views.Views(torch.zeros(1, 3, 10, 10), depths, torch.eye(3)[None], torch.zeros(1), depths > 0)
    assert int((batches.forget_sparse_depth(made).depths > 0).sum()) == kept
