"""The two loss terms, and one forward pass for both images."""

import pytest
import torch

from trainonce.recipes.segmentation.data.scenes import IGNORE
from trainonce.recipes.segmentation.losses import Losses, cross_entropy, invariance
from trainonce.recipes.segmentation.model.deeplab import DeepLab


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


@pytest.mark.parametrize("batch_norm", ["frozen", "trained"])
@pytest.mark.parametrize(
    "settings",
    [{}, {"over": "all"}, {"distance": "l1"}, {"align_corners": False}, {"layers": ["layer2", "layer3"]}],
)
def test_terms_are_those_of_the_image_with_the_settings_that_were_given(settings, batch_norm):
    """The network's parts, put together by hand: the labels are the image's, not those of its copy."""
    network = DeepLab(3, "resnet-small", batch_norm=batch_norm).eval()
    images, stylised, labels = batch()
    labels[:, :5] = IGNORE
    layers = settings.get("layers", ["layer4"])
    with torch.no_grad():
        ours, theirs = (network.features(x, {*layers, "layer4"}) for x in (images, stylised))
        logits = network.classify(ours["layer4"])
        size, align = labels.shape[-2:], settings.get("align_corners", True)
        logits = torch.nn.functional.interpolate(logits, size, mode="bilinear", align_corners=align)
        each = torch.nn.functional.cross_entropy(logits, labels.clamp(max=2), reduction="none")[labels != IGNORE]
        ce = each.sum() / (labels.numel() if settings.get("over") == "all" else len(each))
        apart = [ours[name] - theirs[name] for name in layers]
        each = [(d.abs() if settings.get("distance") == "l1" else d.square()).mean() for d in apart]
        found = Losses(network, **settings)(images, stylised, labels)
    torch.testing.assert_close(found, {"ce": ce, "invariance": torch.stack(each).mean()}, rtol=1e-4, atol=1e-6)


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
