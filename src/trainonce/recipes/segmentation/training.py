"""The training of CISS-source under a trial's weights: from scenes to metrics, resumable, on one or several devices."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

import trainonce
from trainonce.recipes.segmentation import metrics, pictures
from trainonce.recipes.segmentation.data import batches
from trainonce.recipes.segmentation.data.check import check
from trainonce.recipes.segmentation.data.stylise import stylise
from trainonce.recipes.segmentation.evaluate import EvaluationLoader, confusion_matrix, predict
from trainonce.recipes.segmentation.losses import Losses
from trainonce.recipes.segmentation.model.deeplab import DeepLab, load_encoder
from trainonce.recipes.vision.checks import check_in_first_process
from trainonce.recipes.vision.indices import evenly_spaced
from trainonce.recipes.vision.output import report_between, write_outputs
from trainonce.recipes.vision.parallel import wrap_losses
from trainonce.recipes.vision.precision import allow_tf32_if_asked, autocast
from trainonce.study import layout, torchrun, user_errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from torch.optim import Optimizer

    from trainonce.recipes.segmentation.data.scenes import Domains
    from trainonce.recipes.segmentation.settings import Settings
    from trainonce.study import Trial


def train(trial: Trial, domains: Domains, settings: Settings) -> dict[str, float]:
    """Train once and return the mean intersection over union on every set that is reported, in percent."""
    device, process = trial.device, (torchrun.rank(), torchrun.world_size())
    domains = domains.limit(settings.limit)
    if trial.measures:
        settings = dataclasses.replace(settings, graphed=False)  # graphs cannot be run backward twice
    with user_errors():
        network = build_network(len(domains.classes), settings, device)
        losses = build_losses(network, settings, device)
        if settings.check:
            check_in_first_process(lambda: check_scenes(domains, settings))
    criterion = trial.criterion()
    optimizer = build_optimizer(network, settings)
    trial.attach(optimizer)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: learning_rate_factor(step, settings))
    loop = trial.loop({"network": network, "schedule": schedule})
    sets = {
        name: EvaluationLoader(scenes, settings, device, process) for name, scenes in domains.evaluation_sets().items()
    }

    def confusion(name: str) -> Tensor:
        return confusion_matrix(network, sets[name], len(domains.classes), settings, device)

    def train_step(batch: batches.Batch) -> None:
        optimizer.zero_grad()
        with autocast(settings, device):
            terms = losses(*batch)
        criterion(terms).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()

    def validate() -> dict[str, float]:
        return {"miou": metrics.mean_iou(confusion("validation"))}

    feed = batches_from(domains, settings, trial.seed, device, loop.start, process)
    for _, (step, batch) in zip(loop, feed, strict=False):
        train_step(batch)
        report_between(trial, settings, step, validate)
    if trial.paused:
        return {f"validation/{name}": value for name, value in validate().items()}
    found = {name: confusion(name) for name in sets}
    folder = trial.dir / layout.PICTURES
    write_outputs(trial, settings, network, lambda: draw_pictures(folder, network, domains, settings, device))
    return as_metrics(found, domains.classes.names)


def batches_from(
    domains: Domains, settings: Settings, seed: int, device: torch.device, first: int, process: tuple[int, int]
) -> Iterator[tuple[int, batches.Batch]]:
    """The batches of the steps after the ``first`` ones, each with the number of its step, from 1.

    :param process: Rank and number of processes.
    """
    source = (batches.DeviceCache if settings.resident else batches.StreamLoader)(domains, settings, device)
    counts = (len(domains.source), len(domains.style))
    order = batches.SampleOrder(*counts, settings.batch, settings.flip, seed, range(first, settings.steps), process)
    for step, samples, whole in zip(order.steps, order, source.batches(order), strict=True):
        batch = batches.make_batch(whole, samples, settings.crop, settings.bandwidth)
        if not settings.channels_last:
            batch = batches.Batch(batch.images.contiguous(), batch.stylised.contiguous(), batch.labels)
        yield step + 1, batch


def check_scenes(domains: Domains, settings: Settings, **how: Any) -> dict[str, str]:
    """Read all scenes and raise one error if something is wrong; those that are stacked must have one size.

    :param how: Passed on to :func:`~trainonce.recipes.segmentation.data.check.check`, whose result is returned.
    """
    same = settings.resident or (settings.batch > 1 and not settings.frame)
    return check(domains, settings.frame or settings.crop, same_size=same, **how)


def build_network(classes: int, settings: Settings, device: torch.device) -> DeepLab:
    """The network on its device, with pretrained weights if the settings name some."""
    network = DeepLab(
        classes,
        settings.backbone,
        style=settings.style,
        batch_norm=settings.batch_norm,  # type: ignore[arg-type]
    )
    if settings.weights:
        load_encoder(network, settings.weights)
    allow_tf32_if_asked(settings)
    memory_format = torch.channels_last if settings.channels_last else torch.contiguous_format
    return network.to(device, memory_format=memory_format)  # type: ignore[call-overload, no-any-return]


def build_losses(network: DeepLab, settings: Settings, device: torch.device) -> nn.Module:
    """The losses as one module: compiled, distributed or captured as a CUDA graph if the settings ask for it."""
    layers = [name.strip() for name in settings.layers.split(",") if name.strip()]
    losses: Any = Losses(network, layers, settings.distance, settings.over, settings.align_corners)  # type: ignore[arg-type]
    losses.train()
    if settings.compile:
        losses = torch.compile(losses, dynamic=False)
    return wrap_losses(losses, settings, device, lambda: example_batch(settings, device))  # type: ignore[no-any-return]


def example_batch(settings: Settings, device: torch.device) -> batches.Batch:
    """A random batch of a step's shapes."""
    images, stylised = (
        torch.rand(settings.batch, *settings.crop, 3, device=device).permute(0, 3, 1, 2) for _ in range(2)
    )
    return batches.Batch(images, stylised, torch.zeros(settings.batch, *settings.crop, dtype=torch.long, device=device))


def build_optimizer(network: DeepLab, settings: Settings) -> Optimizer:
    """The optimizer: one group for the encoder, and one for the head with its own learning rate."""
    encoder = [p for p in network.encoder.parameters() if p.requires_grad]
    groups = [
        {"params": encoder, "lr": settings.lr},
        {"params": list(network.head.parameters()), "lr": settings.lr * settings.head_lr},
    ]
    if settings.optimizer == "adamw":
        betas = (settings.momentum, 0.999)
        return torch.optim.AdamW(groups, lr=settings.lr, betas=betas, weight_decay=settings.weight_decay)
    kind = trainonce.SGDW if settings.optimizer == "sgdw" else torch.optim.SGD
    return kind(groups, lr=settings.lr, momentum=settings.momentum, weight_decay=settings.weight_decay)


def learning_rate_factor(step: int, settings: Settings) -> float:
    """The learning rate at a step, as a multiple of ``lr``."""
    warm = min(1.0, (step + 1) / settings.warmup) if settings.warmup else 1.0
    return warm if settings.schedule == "constant" else warm * (1 - min(step, settings.steps) / settings.steps) ** 0.9


def as_metrics(found: Mapping[str, Tensor], classes: tuple[str, ...]) -> dict[str, float]:
    """The mean of each set, and of the test set also each class."""
    each = {f"{name}/miou": metrics.mean_iou(counts) for name, counts in found.items()}
    values = (100 * metrics.iou_per_class(found["test"])).tolist()
    return each | {f"test/iou {name}": value for name, value in zip(classes, values, strict=True)}


def draw_pictures(
    folder: Path,
    network: DeepLab,
    domains: Domains,
    settings: Settings,
    device: torch.device,
    names: Sequence[str] = ("test",),
) -> None:
    """Write panels: some scenes of each of the named sets, and source scenes with their stylised copies."""
    network.eval()

    def classes_in(image: Tensor) -> Tensor:
        return predict(network, image[None].to(device), image.shape[-2:], settings)[0].cpu()

    for name in names:
        shown = domains.evaluation_sets()[name]
        tests = [(shown.image(i), shown.label(i)) for i in evenly_spaced(len(shown), PICTURES)]
        rows = [(image, label, classes_in(image)) for image, label in tests]
        pictures.write_panel(rows, domains.classes, folder / f"{name}.png", ("image", "truth", "prediction"))
    copies = []
    for i, j in zip(*(evenly_spaced(len(s), PICTURES) for s in (domains.source, domains.style)), strict=False):
        scenes = (domains.source.image(i), domains.style.image(j))
        image, style = (batches.crop_centre(scene, settings.frame) for scene in scenes)
        copy = stylise(image[None].float(), style[None].float(), settings.bandwidth)[0].clamp(0, 255)
        label = batches.crop_centre(domains.source.label(i), settings.frame)
        copies.append((image, copy, label, classes_in(copy)))
    titles = ("image", "stylised", "truth", "its prediction")
    pictures.write_panel(copies, domains.classes, folder / "source.png", titles)


PICTURES = 4
