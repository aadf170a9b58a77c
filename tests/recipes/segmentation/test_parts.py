"""Stylisation, losses, metric, batches, settings: each against something slow and obvious."""

import dataclasses
import inspect
import pickle

import numpy as np
import pytest
import torch

from trainonce.recipes.segmentation import metrics
from trainonce.recipes.segmentation.data import batches
from trainonce.recipes.segmentation.data.batches import Order, Sample, Whole, prepared, sample
from trainonce.recipes.segmentation.data.scenes import IGNORE, Classes, Domains, Subset
from trainonce.recipes.segmentation.data.stylise import stylise
from trainonce.recipes.segmentation.generated.streets import Streets
from trainonce.recipes.segmentation.losses import Losses, cross_entropy, invariance
from trainonce.recipes.segmentation.model.deeplab import DeepLab
from trainonce.recipes.segmentation.settings import Settings
from trainonce.recipes.settings import configured

# Stylisation


def by_fourier(image, style, bandwidth):
    """The published description, word for word, of one channel."""
    height, width = image.shape
    b = int(np.floor(bandwidth * min(height, width)))
    ours, theirs = np.fft.fft2(image), np.fft.fft2(style)
    amplitude, phase = np.fft.fftshift(np.abs(ours)), np.angle(ours)
    middle = (slice(height // 2 - b, height // 2 + b + 1), slice(width // 2 - b, width // 2 + b + 1))
    amplitude[middle] = np.fft.fftshift(np.abs(theirs))[middle]
    return np.fft.ifft2(np.fft.ifftshift(amplitude) * np.exp(1j * phase)).real


@pytest.mark.parametrize("size", [(37, 50), (64, 64), (45, 30)])
@pytest.mark.parametrize("bandwidth", [0.0, 0.02, 0.1, 0.3])
def test_stylisation_is_the_swap_of_amplitudes(size, bandwidth):
    image, style = (torch.rand(2, 3, *size, dtype=torch.float64) * 255 for _ in range(2))
    found = stylise(image, style, bandwidth)
    for i in range(2):
        for c in range(3):
            expected = by_fourier(image[i, c].numpy(), style[i, c].numpy(), bandwidth)
            np.testing.assert_allclose(found[i, c].numpy(), expected, rtol=0, atol=1e-9)


def test_an_image_in_its_own_style_is_itself():
    image = torch.rand(1, 3, 40, 60) * 255
    torch.testing.assert_close(stylise(image, image, 0.1), image, rtol=0, atol=1e-3)


def test_the_style_may_have_another_size_and_gives_its_brightness():
    image, style = torch.rand(1, 3, 40, 60) * 255, 30 + 5 * torch.rand(1, 3, 33, 21)
    found = stylise(image, style, 0.01)
    torch.testing.assert_close(found.mean((2, 3)), style.mean((2, 3)), rtol=1e-4, atol=1e-3)


def test_a_grey_image_has_no_phase_to_keep():
    assert torch.isfinite(stylise(torch.zeros(1, 3, 8, 8), torch.rand(1, 3, 8, 8), 0.2)).all()


@pytest.mark.parametrize("bandwidth", [-0.1, 0.5, float("nan")])
def test_a_window_larger_than_the_image_is_refused(bandwidth):
    with pytest.raises(ValueError, match=r"from 0 to below 0.5; got"):
        stylise(torch.rand(1, 3, 8, 8), torch.rand(1, 3, 8, 8), bandwidth)


# Losses


def test_cross_entropy_is_over_valid_or_over_all_pixels():
    logits, labels = torch.randn(2, 4, 6, 6), torch.randint(0, 4, (2, 6, 6))
    labels[0, :3] = IGNORE
    valid = labels != IGNORE
    by_hand = -logits.log_softmax(1).gather(1, labels.clamp(max=3)[:, None])[:, 0][valid].sum()
    torch.testing.assert_close(cross_entropy(logits, labels), by_hand / valid.sum())
    torch.testing.assert_close(cross_entropy(logits, labels, "all"), by_hand / 72)


def test_a_batch_without_a_valid_pixel_has_no_cross_entropy():
    logits = torch.randn(1, 4, 6, 6, requires_grad=True)
    loss = cross_entropy(logits, torch.full((1, 6, 6), IGNORE))
    loss.backward()
    assert loss == 0
    assert not logits.grad.any()


def test_invariance_is_the_mean_distance_and_moves_both_sides():
    ours, theirs = (torch.randn(2, 3, 4, 4, requires_grad=True) for _ in range(2))
    torch.testing.assert_close(invariance([(ours, theirs)]), (ours - theirs).square().mean())
    torch.testing.assert_close(invariance([(ours, theirs)], "l1"), (ours - theirs).abs().mean())
    invariance([(ours, theirs), (ours[:1], theirs[:1])]).backward()
    torch.testing.assert_close(ours.grad, -theirs.grad)
    assert theirs.grad.abs().sum() > 0


def batch(size=32, count=2):
    pictures = [torch.rand(count, 3, size, size) * 255 for _ in range(2)]
    return (*pictures, torch.randint(0, 3, (count, size, size)))


def test_one_pass_for_both_images_is_the_same_as_two():
    network = DeepLab(3, "resnet-small", batch_norm="frozen")
    given = batch()
    together = Losses(network)(*given)
    network.batch_norm = "batch"  # two passes, in modules that still use the kept statistics
    apart = Losses(network)(*given)
    for term in ("ce", "invariance"):
        torch.testing.assert_close(together[term], apart[term], rtol=1e-5, atol=1e-6)


def test_both_passes_have_gradients():
    network = DeepLab(3, "resnet-small", batch_norm="trained")
    losses = Losses(network)(*batch())
    losses["invariance"].backward()
    assert network.encoder.conv1.weight.grad.abs().sum() > 0
    assert network.head[0].weight.grad is None


def test_layers_can_be_chosen():
    network = DeepLab(3, "resnet-small", batch_norm="frozen")
    images, stylised, labels = batch()
    one, two = (Losses(network, [name])(images, stylised, labels)["invariance"] for name in ("layer1", "layer4"))
    both = Losses(network, ["layer1", "layer4"])(images, stylised, labels)["invariance"]
    torch.testing.assert_close(both, (one + two) / 2)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"layers": ["layer5"]}, "layers are among layer1, layer2, layer3, layer4; got layer5"),
    ],
)
def test_unknown_losses_are_named(given, said):
    with pytest.raises(ValueError, match=said):
        Losses(DeepLab(3, "resnet-small"), **given)


# The metric


def test_intersection_over_union_is_that_of_counting_pixels():
    rng = np.random.default_rng(0)
    truth, seen = rng.integers(0, 6, (5, 20, 30)), rng.integers(0, 6, (5, 20, 30))
    truth[truth == 5] = IGNORE  # class 4 is there, class 5 is predicted and never true
    total = sum(metrics.confusion(torch.tensor(s), torch.tensor(t), 7) for s, t in zip(seen, truth, strict=True))
    expected = []
    for c in range(7):
        both = either = 0
        for s, t in zip(seen.ravel(), truth.ravel(), strict=True):
            if t != IGNORE:
                both += s == c == t
                either += c in (s, t)
        expected.append(both / either if either else float("nan"))
    np.testing.assert_array_equal(metrics.iou_per_class(total).numpy(), expected)
    assert metrics.mean_iou(total) == pytest.approx(100 * np.nanmean(expected))
    assert np.isnan(expected[6])
    assert expected[5] == 0


def test_uint8_labels_do_not_overflow():
    counts = metrics.confusion(torch.tensor([18], dtype=torch.uint8), torch.tensor([18], dtype=torch.uint8), 19)
    assert counts[18, 18] == 1
    assert counts.sum() == 1


# Batches


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


def test_two_processes_see_what_one_with_the_double_batch_sees():
    one = Order(10, 4, 4, 0.5, 0, range(3))
    two = [Order(10, 4, 2, 0.5, 0, range(3), (rank, 2)) for rank in range(2)]
    assert [a + b for a, b in zip(*two, strict=True)] == list(one)


def test_a_resumed_order_goes_on():
    whole = Order(10, 4, 2, 0.5, 0, range(6))
    assert list(Order(10, 4, 2, 0.5, 0, range(4, 6))) == list(whole)[4:]
    assert pickle.loads(pickle.dumps(whole)) == whole


def test_image_copy_and_label_share_the_cut_and_the_mirror():
    height, width, crop = 12, 16, (5, 7)
    numbers = torch.arange(height * width, dtype=torch.uint8).reshape(height, width)
    whole = Whole(numbers.expand(2, 3, -1, -1), numbers.expand(2, -1, -1), numbers.expand(2, 3, -1, -1))
    chosen = [Sample(0, 0, 0.999, 0.0, False), Sample(0, 0, 0.0, 0.999, True)]
    images, stylised, labels = prepared(whole, chosen, crop, 0.0)
    assert torch.equal(labels[0], numbers[7:, :7].long())
    assert torch.equal(labels[1], numbers[:5, 9:].flip(1).long())
    assert torch.equal(images[:, 1].long(), labels)
    torch.testing.assert_close(stylised[:, 2], images[:, 2], rtol=0, atol=1e-2)  # in its own style
    assert images.is_contiguous(memory_format=torch.channels_last)


def test_the_whole_scene_is_stylised_and_then_cut():
    image, style = torch.randint(0, 255, (2, 1, 3, 20, 30), dtype=torch.uint8)
    whole = Whole(image, image[:, 0], style)
    cut = prepared(whole, [Sample(0, 0, 0.0, 0.0, False)], (8, 8), 0.1).stylised
    torch.testing.assert_close(cut, stylise(image.float(), style.float(), 0.1)[..., :8, :8])


def test_the_middle_of_a_scene():
    scene = torch.arange(30).reshape(1, 5, 6)
    assert torch.equal(batches.middle(scene, (3, 2)), scene[:, 1:4, 2:4])
    assert batches.middle(scene, ()) is scene


TWO = Classes(("a", "b"), ((0, 0, 0), (255, 255, 255)))


def domains(count=4, size=(32, 48)):
    street = Streets(0, count, size=size)
    return Domains(TWO, street, street, street, street)


@pytest.mark.parametrize("frame", [(), (24, 40)])
def test_scenes_in_memory_and_scenes_read_on_the_way_are_the_same(frame):
    order = Order(4, 4, 2, 0.5, 0, range(3))
    settings = Settings(crop=(16, 16), frame=frame, readers=2)
    one, two = (
        kind(domains(), settings, torch.device("cpu")).wholes(order) for kind in (batches.Resident, batches.Stream)
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
    order = Order(4, 4, 4, 0.0, 0, range(1))
    settings = Settings(crop=(16, 16), readers=0)
    with pytest.warns(batches.UnreadableScene, match=r"scene-[12].png: the disk is gone") as said:
        (whole,) = batches.Stream(given, settings, torch.device("cpu")).wholes(order)
    assert {str(w.message).split()[-5][:-1] for w in said} == {"scene-1.png", "scene-2.png"}
    next_one = Streets(0, 4, size=(32, 48)).image(3)
    assert torch.equal(whole.images[[s.source for s in order[0]].index(1)], next_one)


def test_a_scene_of_another_size_is_replaced_and_named():
    class Odd(Broken):
        def image(self, index):
            return self.whole.image(index)[..., : 40 if index in self.bad else 48]

    def read(scenes, **more):
        stream = batches.Stream(
            dataclasses.replace(domains(), source=scenes), Settings(readers=0, **more), torch.device("cpu")
        )
        return list(stream.wholes(Order(4, 4, 4, 0.0, 0, range(1))))

    for more, said in (
        ({"crop": (16, 16)}, r"scene-1.png: its label has \(32, 48\) pixels, not \(32, 40\)"),
        ({"crop": (16, 16), "frame": (32, 48)}, r"scene-1.png: it has \(32, 40\) pixels, less than \(32, 48\)"),
    ):
        with pytest.warns(batches.UnreadableScene, match=said):
            (whole,) = read(Odd(Streets(0, 4, size=(32, 48)), (1,)), **more)
        assert whole.images.shape == (4, 3, 32, 48)


def test_if_nothing_can_be_read_that_is_said():
    given = dataclasses.replace(domains(), style=Broken(Streets(0, 4, size=(32, 48)), (0, 1, 2, 3)))
    stream = batches.Stream(given, Settings(crop=(16, 16), readers=0), torch.device("cpu"))
    with pytest.raises(OSError, match="None of the 4 scenes can be read any more"):
        list(stream.wholes(Order(4, 4, 1, 0.0, 0, range(1))))


def test_scenes_of_different_sizes_cannot_be_kept_together():
    with pytest.raises(ValueError, match=r"one size; got 8x8, 8x9. Set size=height,width, or resident=False"):
        batches.stacked([torch.zeros(3, 8, 9), torch.zeros(3, 8, 8)])


def test_a_subset_keeps_its_order():
    streets = Streets(0, 5, size=(32, 48))
    some = Subset(streets, [3, 1])
    assert (len(some), some.name(0)) == (2, "street 0/3 day")
    assert torch.equal(some.label(1), streets.label(1))


# Settings


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"crop": (256,)}, r"crop is a height and a width, as in crop=512,1024; got \(256,\)"),
        ({"crop": (0, 8)}, "crop is a height and a width"),
        ({"size": 512}, "size is a height and a width"),
        ({"frame": (100, 100)}, r"crop must fit into frame, \(100, 100\); got \(256, 256\)"),
        ({"size": (100, 300)}, r"crop must fit into size"),
        ({"schedule": "cosine"}, "schedule is one of 'constant', 'poly'; got 'cosine'"),
        ({"precision": "half"}, "precision is one of"),
        ({"distance": "l3"}, "distance is one of 'l2', 'l1'; got 'l3'"),
        ({"over": "some"}, "over is one of 'valid', 'all'; got 'some'"),
        ({"batch": 0}, "batch is a whole number of at least 1; got 0"),
        ({"batch": 2.5}, "batch is a whole number of at least 1; got 2.5"),
        ({"readers": True}, "readers is a whole number of at least 0; got True"),
        ({"lr": -1.0}, "lr is a number of at least 0; got -1.0"),
        ({"lr": "fast"}, "lr is a number of at least 0; got 'fast'"),
        ({"flip": 2.0}, "flip is a number of at least 0 and at most 1; got 2.0"),
        ({"bandwidth": 0.7}, "bandwidth is a number of at least 0 and below 0.5; got 0.7"),
        ({"momentum": 1.0}, "momentum is a number of at least 0 and below 1; got 1.0"),
        ({"check": "no"}, "check is True or False; got 'no'"),
        ({"layers": 4}, "layers is a text; got 4"),
    ],
)
def test_settings_are_checked(given, said):
    with pytest.raises(ValueError, match=said):
        Settings(**given)


def test_settings_become_the_parameters_of_a_task():
    @configured(Settings(lr=0.5))
    def function(trial, settings):
        return settings

    parameters = inspect.signature(function).parameters
    assert next(iter(parameters)) == "trial"
    assert parameters["lr"].default == 0.5
    assert [field.name for field in dataclasses.fields(Settings)] == list(parameters)[1:]
    assert function(None, batch=3) == Settings(lr=0.5, batch=3)
