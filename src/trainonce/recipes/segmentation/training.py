"""The training of CISS-source under a trial's weights: from scenes to metrics, resumable, on one or several devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import trainonce
from trainonce.recipes.segmentation import metrics
from trainonce.recipes.segmentation.data import batches
from trainonce.recipes.segmentation.data.check import check
from trainonce.recipes.segmentation.data.scenes import evenly_spaced
from trainonce.recipes.segmentation.data.stylise import stylise
from trainonce.recipes.segmentation.evaluate import Examined, counted, predicted
from trainonce.recipes.segmentation.losses import Losses
from trainonce.recipes.segmentation.model.deeplab import DeepLab, load_encoder
from trainonce.recipes.vision import panels, training
from trainonce.study import torchrun, user_errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch.optim import Optimizer

    from trainonce.recipes.segmentation.data.scenes import Domains
    from trainonce.recipes.segmentation.settings import Settings
    from trainonce.study import Trial


def train(trial: Trial, domains: Domains, settings: Settings) -> dict[str, float] | None:
    """Train once and return the mean intersection over union on every set that is reported, in percent."""
    device, place = trial.device, (torchrun.rank(), torchrun.world_size())
    domains = domains.limit(settings.limit)
    with user_errors():
        network = built(len(domains.classes), settings, device)
        losses = wrapped(network, settings, device)
        if settings.check:
            looked_at(domains, settings)
    saved = trial.restore()
    criterion = trial.criterion()
    optimizer = made(network, settings)
    trial.attach(optimizer)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate(step, settings))
    kept: dict[str, Any] = {"network": network, "criterion": criterion, "optimizer": optimizer, "schedule": schedule}
    if saved is not None:
        for name, part in kept.items():
            part.load_state_dict(saved[name])
    examined = {
        name: Examined(scenes, settings, device, place)
        for name, scenes in domains.sets().items()
        if name not in ("source", "style")
    }

    def score(name: str) -> Tensor:
        return counted(network, examined[name], len(domains.classes), settings, device)

    first = 0 if saved is None else saved["step"]
    every = max(1, settings.steps // settings.evaluations) if settings.evaluations else settings.steps + 1
    for step, batch in fed(domains, settings, trial.seed, device, first, place):
        optimizer.zero_grad()
        with autocast(settings, device):
            terms = losses(*batch)
        criterion(terms).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        if step % every == 0 and step < settings.steps:
            trial.report(step, miou=metrics.mean_iou(score("validation")))
            if trial.should_prune():
                return None
        if settings.keep_every and step % settings.keep_every == 0 and step < settings.steps:
            trial.save({"step": step, **{name: part.state_dict() for name, part in kept.items()}})
    found = {name: score(name) for name in examined}
    if torchrun.is_first():
        writers = {"No pictures were": lambda: pictures(trial, network, domains, settings)}
        if settings.keep_model:
            writers = {"The network was not": lambda: training.save_network(trial, network)} | writers
        training.written(writers)
    return as_metrics(found, domains.classes.names)


def fed(
    domains: Domains, settings: Settings, seed: int, device: torch.device, first: int, place: tuple[int, int]
) -> Iterator[tuple[int, batches.Batch]]:
    """The batches of the steps after the first ones, each with the number of its step, from 1."""
    source = (batches.Resident if settings.resident else batches.Stream)(domains, settings, device)
    counts = (len(domains.source), len(domains.style))
    order = batches.Order(*counts, settings.batch, settings.flip, seed, range(first, settings.steps), place)
    for step, chosen, whole in zip(order.steps, order, source.wholes(order), strict=True):
        batch = batches.prepared(whole, chosen, settings.crop, settings.bandwidth)
        if not settings.channels_last:
            batch = batches.Batch(batch.images.contiguous(), batch.stylised.contiguous(), batch.labels)
        yield step + 1, batch


# Parts of it


def looked_at(domains: Domains, settings: Settings) -> None:
    """Check all scenes, of one size where they are stacked."""
    same = settings.resident or (settings.batch > 1 and not settings.frame)
    training.checked(lambda: check(domains, settings.frame or settings.crop, same_size=same))


def built(classes: int, settings: Settings, device: torch.device) -> DeepLab:
    """The network on its device, with pretrained weights where there are some."""
    network = DeepLab(
        classes,
        settings.backbone,
        style=settings.style,
        batch_norm=settings.batch_norm,  # type: ignore[arg-type]
    )
    if settings.weights:
        load_encoder(network, settings.weights)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = settings.precision == "tf32"
    layout = torch.channels_last if settings.channels_last else torch.contiguous_format
    return network.to(device, memory_format=layout)  # type: ignore[call-overload, no-any-return]


def made(network: DeepLab, settings: Settings) -> Optimizer:
    """The optimizer: the encoder's parameters, and the head's with their own learning rate."""
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


def rate(step: int, settings: Settings) -> float:
    """The learning rate at a step, relative to that of the start."""
    risen = min(1.0, (step + 1) / settings.warmup) if settings.warmup else 1.0
    return risen if settings.schedule == "constant" else risen * (1 - min(step, settings.steps) / settings.steps) ** 0.9


def wrapped(network: DeepLab, settings: Settings, device: torch.device) -> nn.Module:
    """The losses as a module, compiled and spread over the processes where that is asked for."""
    layers = [name.strip() for name in settings.layers.split(",") if name.strip()]
    losses: Any = Losses(network, layers, settings.distance, settings.over, settings.align_corners)  # type: ignore[arg-type]
    losses.train()
    if settings.compile:
        losses = torch.compile(losses, dynamic=False)
    if torchrun.world_size() > 1:
        losses = DistributedDataParallel(losses, device_ids=[device.index] if device.type == "cuda" else None)
    elif settings.graphed and device.type == "cuda":
        losses = graphed(losses, settings, device)
    return losses  # type: ignore[no-any-return]


def graphed(losses: Losses, settings: Settings, device: torch.device) -> Any:
    """The losses, recorded."""
    buffers = {name: buffer.clone() for name, buffer in losses.named_buffers()}
    pieces = [torch.rand(settings.batch, *settings.crop, 3, device=device).permute(0, 3, 1, 2) for _ in range(2)]
    labels = torch.zeros(settings.batch, *settings.crop, dtype=torch.long, device=device)
    with autocast(settings, device):
        recorded = training.recorded(losses, (*pieces, labels))
    for name, buffer in losses.named_buffers():
        buffer.copy_(buffers[name])  # recording has run the network, on nothing
    return recorded


def autocast(settings: Settings, device: torch.device) -> torch.autocast:
    """Graphs cannot keep the weights that autocast has converted from one call to the next."""
    wanted = settings.precision == "bfloat16"
    return torch.autocast(device.type, torch.bfloat16, enabled=wanted, cache_enabled=not settings.graphed)


def as_metrics(found: Mapping[str, Tensor], classes: tuple[str, ...]) -> dict[str, float]:
    """The mean of each set, and of the test set also each class."""
    each = {f"{name}/miou": metrics.mean_iou(counts) for name, counts in found.items()}
    values = (100 * metrics.iou_per_class(found["test"])).tolist()
    return each | {f"test/iou {name}": value for name, value in zip(classes, values, strict=True)}


def pictures(trial: Trial, network: DeepLab, domains: Domains, settings: Settings) -> None:
    """Two panels: some scenes of the test set, and source scenes with the stylised copies, which the network sees."""
    network.eval()

    def seen(image: Tensor) -> Tensor:
        return predicted(network, image[None].to(trial.device), image.shape[-2:], settings)[0].cpu()

    tests = [(domains.test.image(i), domains.test.label(i)) for i in evenly_spaced(len(domains.test), PICTURES)]
    rows = [(image, label, seen(image)) for image, label in tests]
    folder = trial.dir / "pictures"
    panels.panel(rows, domains.classes, folder / "test.png", ("image", "truth", "prediction"))
    copies = []
    for i, j in zip(*(evenly_spaced(len(s), PICTURES) for s in (domains.source, domains.style)), strict=False):
        cut = [batches.middle(scene, settings.frame) for scene in (domains.source.image(i), domains.style.image(j))]
        copy = stylise(cut[0][None].float(), cut[1][None].float(), settings.bandwidth)[0].clamp(0, 255)
        copies.append((cut[0], copy, batches.middle(domains.source.label(i), settings.frame), seen(copy)))
    panels.panel(copies, domains.classes, folder / "source.png", ("image", "stylised", "truth", "its prediction"))


PICTURES = 4
