"""UniDepth as tasks: depth, the camera's rays, and features that two views of an image share.

- ``rooms``: generated rooms, a small network from scratch; nothing to download.
- ``nyu``: NYU Depth v2, an encoder with ImageNet weights, also tested on other places and cameras.
- ``unidepth-paper``: the five large sets with the paper's numbers.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from trainonce.recipes import notes
from trainonce.recipes.depth.losses import TERMS
from trainonce.recipes.depth.settings import INCIDENTAL, Settings
from trainonce.recipes.settings import with_settings
from trainonce.recipes.vision.files import data_root
from trainonce.study import Preset, task, user_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from trainonce.recipes.depth.data.frames import Sets
    from trainonce.study import KeptTrial, Task, Trial
    from trainonce.study.plans import Plan


# What each recipe can do besides training


def evaluation(defaults: Settings, load: Callable[[int, Settings], Sets]) -> Callable[..., Mapping[str, float]]:
    """Make the function that evaluates a kept network.

    :param load: The sets for a seed.
    """

    @with_settings(defaults)
    def evaluate(kept: KeptTrial, settings: Settings) -> Mapping[str, float]:
        from trainonce.recipes.depth import kept as network

        with user_errors():
            sets = load(kept.seed, settings)
        return network.evaluate(kept, sets, settings)

    return evaluate


def checker(defaults: Settings, load: Callable[[int, Settings], Sets]) -> Callable[..., Mapping[str, str]]:
    """Make the function that checks the data."""

    @with_settings(defaults)
    def check(progress: Callable[[int, int, str], None], settings: Settings) -> Mapping[str, str]:
        from trainonce.recipes.depth.data.check import check

        found = check(load(0, settings).limit(settings.limit), progress=progress)
        return {name: str(each) for name, each in found.items()}

    return check


def writer(module: str, **options: Any) -> Callable[[Path, tuple[int, int] | None], None]:
    """Make the function that writes made-up data, by its module in ``made_up``, with further arguments."""

    def write(folder: Path, size: tuple[int, int] | None) -> None:
        made_up = importlib.import_module(f"trainonce.recipes.depth.data.made_up.{module}")
        getattr(made_up, f"write_{module}")(folder, **options, **({"size": size} if size else {}))

    return write


# The recipes


ROOMS = Settings(
    protocol="room", shape=(84, 112), encoder="vit-tiny", steps=2000, batch=16, lr=5e-4, average=0.99, graphed=True
)


def _rooms(seed: int, settings: Settings) -> Sets:
    from trainonce.recipes.depth.generated import rooms as generated

    counts = (settings.frames, 100, 200)
    return generated.load(seed, settings.size or generated.SIZE, counts, settings.protocol)


@task(
    terms=TERMS,
    metric="delta_1",
    direction="maximize",
    unit="%",
    yoto={"init": 0.1, "decay": 20.0, "regularizer": "paper", "lr": 0.01},
    incidental=INCIDENTAL,
    version=2,
    name="rooms",
    evaluate=evaluation(ROOMS, _rooms),
)
@with_settings(ROOMS)
def rooms(trial: Trial, settings: Settings) -> dict[str, float]:
    """Generated rooms with exact depth; depth, camera rays, feature invariance."""
    from trainonce.recipes.depth.training import train

    with user_errors():
        sets = _rooms(trial.seed, settings)
    return train(trial, sets, settings)


NYU = Settings(
    protocol="nyu",
    shape=(192, 256),
    encoder="lite0",
    weights="package",
    dim=128,
    steps=1000,
    batch=16,
    lr=2.5e-4,
    precision="bfloat16",
    average=0.99,
    graphed=True,
    points=19_200,
)


def _nyu(seed: int, settings: Settings) -> Sets:
    del seed
    from trainonce.recipes.depth.data import nyu as data

    load = data.load_cached if settings.resident else data.load
    return load(data_root(settings.data_root), settings.protocol, settings.size or None)


@task(
    terms=TERMS,
    metric="delta_1",
    direction="maximize",
    unit="%",
    yoto={"init": 0.1, "decay": 20.0, "regularizer": "paper", "lr": 0.01},
    incidental=INCIDENTAL,
    version=2,
    name="nyu",
    evaluate=evaluation(NYU, _nyu),
    check_data=checker(NYU, _nyu),
    make_data={
        "zip": writer("archives"),
        "folder": writer("archives", zipped=False),
    },
)
@with_settings(NYU)
def nyu(trial: Trial, settings: Settings) -> dict[str, float]:
    """NYU Depth v2, also tested on other places and cameras; depth, camera rays, feature invariance."""
    from trainonce.recipes.depth.training import train

    with user_errors():
        sets = _nyu(trial.seed, settings)
    return train(trial, sets, settings)


PAPER = Settings(
    protocol="zero-shot",
    encoder="vit-l",
    dim=512,
    heads=8,
    depths=(3, 2, 1),
    attention="nystrom",
    resident=False,
    steps=300_000,
    batch=64,
    lr=1.35e-4,
    encoder_lr=0.1,
    average=0.9995,
    precision="bfloat16",
    points=76_800,
    keep_model=True,
)


def _paper(seed: int, settings: Settings) -> Sets:
    del seed
    from trainonce.recipes.depth.data import paper_data

    return paper_data.load(data_root(settings.data_root), settings.size or None, protocol=settings.protocol)


RELEASED = Preset(
    "what UniDepth's released code does, on which the paper's numbers presumably rest",
    {
        "crossed": True,
        "rounding": "integer",
        "squared": True,
        "clip_exponents": True,
        "lowest": float(f"{1e-6 / PAPER.lr:.12g}"),  # the decoder's and the exponents' last rate is 1e-6
    },
)


def paper_notes(task: Task, plans: Sequence[Plan], seeds: Sequence[int]) -> list[str]:
    """Where trainings of unidepth-paper would not be the paper's."""
    found = (
        notes.of_weights(task, "DINOv2's", "dinov2_vitl14_pretrain.pth"),
        notes.of_travel(task, plans, PAPER.lr * PAPER.steps),
        notes.of_batch(task, PAPER.batch, "views"),
        notes.of_seeds(task, plans, seeds, 1),
    )
    return list(filter(None, found))


@task(
    terms=TERMS,
    metric="delta_1",
    direction="maximize",
    unit="%",
    yoto={"init": 0.1, "decay": 20.0, "regularizer": "paper", "lr": 1.35e-4},
    incidental=INCIDENTAL,
    version=3,
    presets={"released": RELEASED},
    notes=paper_notes,
    name="unidepth-paper",
    evaluate=evaluation(PAPER, _paper),
    check_data=checker(PAPER, _paper),
    make_data={"hdf5": writer("hdf5"), "folder": writer("folders")},
)
@with_settings(PAPER)
def unidepth_paper(trial: Trial, settings: Settings) -> dict[str, float]:
    """UniDepth on ScanNet, Argoverse 2 and Waymo with the paper's numbers; depth, camera rays, feature invariance."""
    from trainonce.recipes.depth.training import train

    with user_errors():
        sets = _paper(trial.seed, settings)
    return train(trial, sets, settings)
