"""CISS-source as tasks: cross-entropy on the labelled source image, and invariance of features under stylisation.

- ``streets``: generated scenes, a small network from scratch; minutes on a CPU, nothing to download.
- ``camvid``: real images, day to dusk, an encoder with ImageNet weights.
- ``ciss-paper``: Cityscapes to ACDC at the paper's size; optimizer, weight decay, ρ and regularizer are those with
  which its weights can end where it reports, and ``--preset printed`` has the printed ones.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from trainonce import composite
from trainonce.recipes import notes
from trainonce.recipes.segmentation.data.scenes import Domains, Subset, thin
from trainonce.recipes.segmentation.losses import TERMS
from trainonce.recipes.segmentation.settings import INCIDENTAL, Settings
from trainonce.recipes.settings import with_settings
from trainonce.recipes.vision.files import data_root
from trainonce.study import Preset, task, user_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from trainonce.recipes.segmentation.data.scenes import Scenes
    from trainonce.study import KeptTrial, Task, Trial
    from trainonce.study.plans import Plan

# What each recipe can do besides training


def evaluation(
    defaults: Settings,
    load: Callable[[int, Settings], Domains],
    exported: Callable[[Domains, Settings], Mapping[str, Scenes]] | None = None,
) -> Callable[..., Mapping[str, float]]:
    """Make the function that evaluates a kept network.

    :param load: The scenes for a seed.
    :param exported: The sets whose predictions are written as files.
    """

    @with_settings(defaults)
    def evaluate(kept: KeptTrial, settings: Settings) -> Mapping[str, float]:
        from trainonce.recipes.segmentation import kept as network

        with user_errors():
            domains = load(kept.seed, settings)
            sets = exported(domains, settings) if exported and kept.export else None
        return network.evaluate(kept, domains, settings, sets)

    return evaluate


def checker(defaults: Settings, load: Callable[[int, Settings], Domains]) -> Callable[..., Mapping[str, str]]:
    """Make the function that checks the data."""

    @with_settings(defaults)
    def check(progress: Callable[[int, int, str], None], settings: Settings) -> Mapping[str, str]:
        from trainonce.recipes.segmentation.training import check_scenes

        return check_scenes(load(0, settings).limit(settings.limit), settings, progress=progress)

    return check


def writer(name: str, fits: str, **options: Any) -> Callable[[Path, tuple[int, int] | None], str]:
    """Make the function that writes made-up data, by its name in ``made_up``, with further arguments.

    :param fits: The options with which images of the usual size can be checked; the function returns them.
    """

    def write(folder: Path, size: tuple[int, int] | None) -> str:
        from trainonce.recipes.segmentation.data import made_up

        getattr(made_up, name)(folder, **options, **({"size": size} if size else {}))
        return "" if size else fits

    return write


# The paper's numbers


PAPER = Settings(
    protocol="halves",
    frame=(1024, 1920),
    crop=(1024, 1024),
    backbone="resnet-101",
    batch_norm="batch",
    resident=False,
    steps=148_750,
    batch=1,
    lr=2.5e-4,
    head_lr=10.0,
    keep_model=True,
)

PRINTED = Preset(
    "as the paper prints it: SGDW and its weight decay, decay, negentropy and softplus",
    {"optimizer": "sgdw", "weight_decay": 2.0},
    yoto={
        "init": composite.PRINTED["ciss"]["init"],
        "decay": composite.PRINTED["ciss"]["decay"],
        "regularizer": "paper",
    },
)


def shortened(lr: float, exponents: float) -> Preset:
    """Return Algorithm 1 in fewer steps, at higher learning rates and with the paper's decays of a step.

    :param lr: The network's learning rate.
    :param exponents: That of the exponents; it decides how many steps are the paper's learning rate times steps.
    """
    return Preset(
        "Algorithm 1 with the paper's products for the exponents: learning rate x steps, learning rate x decay",
        {
            "optimizer": "sgdw",
            "lr": lr,
            "steps": round(PAPER.steps * PAPER.lr / exponents),
            "weight_decay": PRINTED.settings["weight_decay"] * PAPER.lr / lr,
        },
        yoto={**PRINTED.yoto, "decay": PRINTED.yoto["decay"] * PAPER.lr / exponents, "lr": exponents},
    )


# The generated scenes


STREETS = Settings(protocol="night", crop=(96, 128), backbone="resnet-small", steps=300, batch=4, lr=0.02, head_lr=1.0)


def _streets(seed: int, settings: Settings) -> Domains:
    from trainonce.recipes.segmentation.generated import streets as generated

    return generated.load(seed, size=settings.size or generated.SIZE, target=settings.protocol)


@task(
    terms=TERMS,
    metric="miou",
    direction="maximize",
    unit="%",
    yoto={"init": math.exp(-4), "decay": 0.05, "regularizer": "softplus", "lr": 0.02},
    incidental=INCIDENTAL,
    version=1,
    presets={"printed": shortened(lr=0.02, exponents=0.02)},
    name="streets",
    evaluate=evaluation(STREETS, _streets),
)
@with_settings(STREETS)
def streets(trial: Trial, settings: Settings) -> dict[str, float]:
    """Generated street scenes, day to night; cross-entropy, feature invariance."""
    from trainonce.recipes.segmentation.training import train

    with user_errors():
        domains = _streets(trial.seed, settings)
    return train(trial, domains, settings)


# CamVid


CAMVID = Settings(
    protocol="day2dusk",
    crop=(256, 256),
    backbone="lite0",
    weights="package",
    batch_norm="frozen",
    steps=1500,
    batch=8,
    optimizer="adamw",
    lr=0.001,
    head_lr=1.0,
    weight_decay=0.01,
    warmup=50,
    precision="bfloat16",
    graphed=True,
)


def _camvid(seed: int, settings: Settings) -> Domains:
    del seed
    from trainonce.recipes.segmentation.data import camvid as data

    return data.load(data_root(settings.data_root), settings.protocol, settings.size or None)


@task(
    terms=TERMS,
    metric="miou",
    direction="maximize",
    unit="%",
    yoto={"init": 0.1, "decay": 20.0, "regularizer": "paper", "lr": 0.01},  # the paper's for AdamW
    incidental=INCIDENTAL,
    version=1,
    presets={"printed": shortened(lr=0.0025, exponents=0.02)},
    name="camvid",
    evaluate=evaluation(CAMVID, _camvid),
    check_data=checker(CAMVID, _camvid),
    make_data={
        layout: writer("write_camvid", "--set crop=48,64", layout=layout)
        for layout in ("archive", "zip", "segnet", "original")
    },
)
@with_settings(CAMVID)
def camvid(trial: Trial, settings: Settings) -> dict[str, float]:
    """CamVid, labelled by day and tested at dusk; cross-entropy, feature invariance."""
    from trainonce.recipes.segmentation.training import train

    with user_errors():
        domains = _camvid(trial.seed, settings)
    return train(trial, domains, settings)


# Cityscapes to ACDC


def _paper(seed: int, settings: Settings) -> Domains:
    del seed
    if settings.protocol != "halves":
        raise ValueError(f"The protocol of ciss-paper is 'halves'; got {settings.protocol!r}.")
    return cityscapes_to_acdc(data_root(settings.data_root), settings.size or None)


def _exported(domains: Domains, settings: Settings) -> Mapping[str, Scenes]:
    """ACDC's validation set and, where it is there, its test set, whose labels only its server has."""
    from trainonce.recipes.segmentation.data import acdc

    target = acdc.find(data_root(settings.data_root))
    sets = domains.limit(settings.limit).others
    if not acdc.has_split(target, "test"):
        return sets
    test = acdc.load(target, "test", settings.size or None, labelled=False)
    return {**sets, "acdc-test": thin(test, settings.limit)}


def paper_notes(task: Task, plans: Sequence[Plan], seeds: Sequence[int]) -> list[str]:
    """Where trainings of ciss-paper would not be the paper's."""
    printed = all(task.settings[name] == value for name, value in PRINTED.settings.items())
    found = (
        "" if printed else "Optimizer, weight decay, decay and regularizer are not as printed: --preset printed.",
        notes.of_weights(task, "ImageNet's", "resnet101.pth"),
        notes.of_travel(task, plans, PAPER.lr * PAPER.steps),
        notes.of_batch(task, PAPER.batch, "source images, with as many styles"),
        notes.of_seeds(task, plans, seeds, 3),
    )
    return list(filter(None, found))


@task(
    terms=TERMS,
    metric="miou",
    direction="maximize",
    unit="%",
    yoto={"init": math.exp(-4), "decay": 0.05, "regularizer": "softplus", "lr": 2.5e-4},
    incidental=INCIDENTAL,
    version=1,
    presets={"printed": PRINTED},
    notes=paper_notes,
    name="ciss-paper",
    evaluate=evaluation(PAPER, _paper, _exported),
    check_data=checker(PAPER, _paper),
    make_data={
        "published": writer("write_paper", "--set frame=48,96 --set crop=48,64"),
        "flat": writer("write_paper", "--set frame=48,96 --set crop=48,64", flat=True),
    },
)
@with_settings(PAPER)
def ciss_paper(trial: Trial, settings: Settings) -> dict[str, float]:
    """CISS-source on Cityscapes and ACDC at the paper's size; cross-entropy, feature invariance."""
    from trainonce.recipes.segmentation.training import train

    with user_errors():
        domains = _paper(trial.seed, settings)
    return train(trial, domains, settings)


def cityscapes_to_acdc(root: str, size: tuple[int, int] | None) -> Domains:
    """Cityscapes' training set and ACDC's. ACDC's validation set chooses with one half and is reported on with the
    other; ``val`` is all of it, as the paper reports."""
    from trainonce.recipes.segmentation.data import acdc, cityscapes

    target = acdc.find(root)
    validation = acdc.load(target, "val", size)
    halves = [Subset(validation, part) for part in acdc.halves(validation)]
    return Domains(
        cityscapes.CLASSES,
        source=cityscapes.load(cityscapes.find(root), "train", size),
        style=acdc.load(target, "train", size, labelled=False),
        validation=halves[0],
        test=halves[1],
        others={"val": validation},
    )
