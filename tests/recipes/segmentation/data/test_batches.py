"""Batches: order, seeds, processes, crops, and scenes that cannot be read."""

import dataclasses
import pickle

import pytest
import torch

from trainonce.recipes.segmentation.data import batches
from trainonce.recipes.segmentation.data.batches import Sample, SampleOrder, WholeScenes, make_batch, sample
from trainonce.recipes.segmentation.data.scenes import Classes, Domains, Subset
from trainonce.recipes.segmentation.data.stylise import stylise
from trainonce.recipes.segmentation.generated.streets import Streets
from trainonce.recipes.segmentation.settings import Settings


def test_an_epoch_has_every_source_scene_once_and_the_next_another_order():
    epochs = [[sample(n, 10, 4, 0.5, 0).source for n in range(e * 10, e * 10 + 10)] for e in range(3)]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]


def test_samples_depend_on_seed_and_number_only():
    first = [sample(n, 10, 4, 0.5, 3) for n in range(20)]
    torch.rand(5)
    assert [sample(n, 10, 4, 0.5, 3) for n in reversed(range(20))] == first[::-1]
    assert [sample(n, 10, 4, 0.5, 4) for n in range(20)] != first
    assert {s.style for s in first} == set(range(4))


def test_style_crop_and_mirror_of_a_sample_depend_on_its_seed():
    drawn = [[sample(n, 5, 1000, 0.5, seed)[1:] for n in range(20)] for seed in (0, 1)]
    assert not set(drawn[0]) & set(drawn[1])
    assert len(set(drawn[0])) == 20


@pytest.mark.parametrize("share", [0.0, 0.2, 1.0])
def test_as_many_samples_are_mirrored_as_asked_for(share):
    mirrored = [sample(n, 5, 3, share, 0).mirrored for n in range(500)]
    assert sum(mirrored) / 500 == pytest.approx(share, abs=0.05 if 0 < share < 1 else 0)


def test_two_processes_see_what_one_with_the_double_batch_sees():
    one = SampleOrder(10, 4, 4, 0.5, 0, range(3))
    two = [SampleOrder(10, 4, 2, 0.5, 0, range(3), (rank, 2)) for rank in range(2)]
    assert [a + b for a, b in zip(*two, strict=True)] == list(one)


def test_a_resumed_order_goes_on():
    whole = SampleOrder(10, 4, 2, 0.5, 0, range(6))
    assert list(SampleOrder(10, 4, 2, 0.5, 0, range(4, 6))) == list(whole)[4:]
    assert pickle.loads(pickle.dumps(whole)) == whole


def test_image_copy_and_label_share_the_cut_and_the_mirror():
    height, width, crop = 12, 16, (5, 7)
    numbers = torch.arange(height * width, dtype=torch.uint8).reshape(height, width)
    whole = WholeScenes(numbers.expand(2, 3, -1, -1), numbers.expand(2, -1, -1), numbers.expand(2, 3, -1, -1))
    chosen = [Sample(0, 0, 0.999, 0.0, False), Sample(0, 0, 0.0, 0.999, True)]
    images, stylised, labels = make_batch(whole, chosen, crop, 0.0)
    assert torch.equal(labels[0], numbers[7:, :7].long())
    assert torch.equal(labels[1], numbers[:5, 9:].flip(1).long())
    assert torch.equal(images[:, 1].long(), labels)
    torch.testing.assert_close(stylised[:, 2], images[:, 2], rtol=0, atol=1e-2)  # in its own style
    assert images.is_contiguous(memory_format=torch.channels_last)


def test_the_whole_scene_is_stylised_and_then_cut():
    image, style = torch.randint(0, 255, (2, 1, 3, 20, 30), dtype=torch.uint8)
    whole = WholeScenes(image, image[:, 0], style)
    cut = make_batch(whole, [Sample(0, 0, 0.0, 0.0, False)], (8, 8), 0.1).stylised
    torch.testing.assert_close(cut, stylise(image.float(), style.float(), 0.1)[..., :8, :8])


def test_the_middle_of_a_scene():
    scene = torch.arange(30).reshape(1, 5, 6)
    assert torch.equal(batches.crop_centre(scene, (3, 2)), scene[:, 1:4, 2:4])
    assert batches.crop_centre(scene, ()) is scene


TWO = Classes(("a", "b"), ((0, 0, 0), (255, 255, 255)))


def domains(count=4, size=(32, 48)):
    street = Streets(0, count, size=size)
    return Domains(TWO, street, street, street, street)


@pytest.mark.parametrize("frame", [(), (24, 40)])
def test_scenes_in_memory_and_scenes_read_on_the_way_are_the_same(frame):
    order = SampleOrder(4, 4, 2, 0.5, 0, range(3))
    settings = Settings(crop=(16, 16), frame=frame, readers=2)
    one, two = (
        kind(domains(), settings, torch.device("cpu")).batches(order)
        for kind in (batches.DeviceCache, batches.StreamLoader)
    )
    for a, b in zip(one, two, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))
        assert a.images.shape == (2, 3, *(frame or (32, 48)))


@dataclasses.dataclass(frozen=True)
class Broken:
    """Scenes of which some cannot be read any more."""

    whole: Streets
    bad: tuple[int, ...]

    def __len__(self):
        return len(self.whole)

    def name(self, index):
        return f"scene-{index}.png"

    def image(self, index):
        if index in self.bad:
            raise OSError("the disk is gone")
        return self.whole.image(index)

    def label(self, index):
        return self.whole.label(index)


def test_a_scene_that_cannot_be_read_is_replaced_and_named():
    given = dataclasses.replace(domains(), source=Broken(Streets(0, 4, size=(32, 48)), (1, 2)))
    order = SampleOrder(4, 4, 4, 0.0, 0, range(1))
    settings = Settings(crop=(16, 16), readers=0)
    with pytest.warns(batches.UnreadableScene, match=r"scene-[12].png: the disk is gone") as said:
        (whole,) = batches.StreamLoader(given, settings, torch.device("cpu")).batches(order)
    assert {str(w.message).split()[-5][:-1] for w in said} == {"scene-1.png", "scene-2.png"}
    next_one = Streets(0, 4, size=(32, 48)).image(3)
    assert torch.equal(whole.images[[s.source for s in order[0]].index(1)], next_one)


def test_a_scene_of_another_size_is_replaced_and_named():
    class Odd(Broken):
        def image(self, index):
            return self.whole.image(index)[..., : 40 if index in self.bad else 48]

    def read(scenes, **more):
        stream = batches.StreamLoader(
            dataclasses.replace(domains(), source=scenes), Settings(readers=0, **more), torch.device("cpu")
        )
        return list(stream.batches(SampleOrder(4, 4, 4, 0.0, 0, range(1))))

    for more, said in (
        ({"crop": (16, 16)}, r"scene-1.png: its label has \(32, 48\) pixels, not \(32, 40\)"),
        ({"crop": (16, 16), "frame": (32, 48)}, r"scene-1.png: it has \(32, 40\) pixels, less than \(32, 48\)"),
    ):
        with pytest.warns(batches.UnreadableScene, match=said):
            (whole,) = read(Odd(Streets(0, 4, size=(32, 48)), (1,)), **more)
        assert whole.images.shape == (4, 3, 32, 48)


def test_if_nothing_can_be_read_that_is_the_error():
    given = dataclasses.replace(domains(), style=Broken(Streets(0, 4, size=(32, 48)), (0, 1, 2, 3)))
    stream = batches.StreamLoader(given, Settings(crop=(16, 16), readers=0), torch.device("cpu"))
    with pytest.raises(OSError, match="None of the 4 scenes can be read any more"):
        list(stream.batches(SampleOrder(4, 4, 1, 0.0, 0, range(1))))


def test_scenes_of_different_sizes_cannot_be_kept_together():
    with pytest.raises(ValueError, match=r"one size; got 8x8, 8x9. Set size=height,width, or resident=False"):
        batches.stack_scenes([torch.zeros(3, 8, 9), torch.zeros(3, 8, 8)])


def test_a_subset_keeps_its_order():
    streets = Streets(0, 5, size=(32, 48))
    some = Subset(streets, [3, 1])
    assert (len(some), some.name(0)) == (2, "street 0/3 day")
    assert torch.equal(some.label(1), streets.label(1))
