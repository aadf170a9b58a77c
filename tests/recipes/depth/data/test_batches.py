"""Batches of the depth recipe: which frames, in which order, and what happens to unreadable ones."""

import pytest
import torch
from _depth_settings import TINY

from trainonce.recipes.depth import training
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
    stream = batches.StreamLoader({"bad": Bad()}, Settings(readers=0), torch.device("cpu"))
    with pytest.warns(batches.UnreadableFrame) as said:
        found = list(stream.batches(order))
    good = rooms.frame(0, 2, size=(24, 32))
    images = torch.cat([group.frames.image for step in found for group in step])
    assert len(images) == 4
    assert all(torch.equal(image, good.image) for image in images)
    texts = {str(w.message) for w in said}
    assert any("frame 0: it is gone" in text for text in texts)
    assert any("frame 1: it has 0 pixels of known depth, less than 50" in text for text in texts)
