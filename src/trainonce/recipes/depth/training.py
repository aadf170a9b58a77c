"""The training of UniDepth under a trial's weights: from frames to metrics, resumable, on one or several devices."""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from trainonce.recipes.depth import pictures
from trainonce.recipes.depth.data import batches
from trainonce.recipes.depth.data.check import check
from trainonce.recipes.depth.data.frames import CachedFrames, Frame, generate
from trainonce.recipes.depth.evaluate import scored, seen, stacked
from trainonce.recipes.depth.flat_parameters import Flat
from trainonce.recipes.depth.model.attention import MLP, Block
from trainonce.recipes.depth.model.convolutional import CONVOLUTIONAL
from trainonce.recipes.depth.model.decoder import ConvBlock
from trainonce.recipes.depth.model.harmonics import Harmonics
from trainonce.recipes.depth.model.network import UniDepth
from trainonce.recipes.depth.model.vit import UNUSED, ViTBlock
from trainonce.recipes.depth.objective import Objective
from trainonce.recipes.depth.optimisation import Average, clipped, kinds, optimizer, rate
from trainonce.recipes.segmentation.data.scenes import evenly_spaced
from trainonce.recipes.segmentation.model.deeplab import load_weights
from trainonce.recipes.vision import training
from trainonce.study import torchrun, user_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainonce.recipes.depth.augmentation.views import Views
    from trainonce.recipes.depth.data.frames import EvaluationSet, Sets
    from trainonce.recipes.depth.settings import Settings
    from trainonce.study import Trial


def train(trial: Trial, sets: Sets, settings: Settings) -> dict[str, float] | None:
    """Train once and return the metrics of every set that is reported, by ``set/metric``."""
    device, place = trial.device, (torchrun.rank(), torchrun.world_size())
    sets = sets.limit(settings.limit)
    with user_errors():
        network = built(settings, device)
        objective = wrapped(network, settings, device)
        if settings.check:
            training.checked(lambda: check(sets))
    _told_of_rounding(settings, network.patch)
    saved = trial.restore()
    criterion = trial.criterion()
    steps = optimizer(network, settings)
    trial.attach(steps)
    schedule = torch.optim.lr_scheduler.LambdaLR(steps, lambda step: rate(step, settings))
    average = Average(network, settings)
    kept: dict[str, Any] = {
        "network": network,
        "criterion": criterion,
        "optimizer": steps,
        "schedule": schedule,
        "average": average,
    }
    if saved is not None:
        for name, part in kept.items():
            part.load_state_dict(saved[name])
    validation = remembered(sets.validation, device)
    first = 0 if saved is None else saved["step"]
    every = max(1, settings.steps // settings.evaluations) if settings.evaluations else settings.steps + 1
    for step, views in fed(sets, settings, network.patch, trial.seed, device, first, place):
        steps.zero_grad()
        for part, last in _parts(views, settings.parts):
            with contextlib.nullcontext() if last else _unsynced(objective):
                with autocast(settings, device):
                    terms = objective(part.images, part.depths, part.cameras, part.flips)
                (criterion(terms) / settings.parts).backward()  # type: ignore[no-untyped-call]
        clipped(network, criterion, settings)
        steps.step()
        schedule.step()
        average.step(step)
        if step % every == 0 and step < settings.steps:
            with average:
                found = scored(network, validation, settings, device, all_of_it=False)
            trial.report(step, delta_1=found["delta_1"])
            if trial.should_prune():
                return None
        if settings.keep_every and step % settings.keep_every == 0 and step < settings.steps:
            trial.save({"step": step, **{name: part.state_dict() for name, part in kept.items()}})
    with average:
        results = {
            f"{name}/{metric}": value
            for name, examined in sets.evaluation_sets().items()
            for metric, value in scored(network, examined, settings, device).items()
        }
        if torchrun.is_first():
            writers = {"No pictures were": lambda: keep_pictures(trial, network, sets, settings)}
            if settings.keep_model:
                writers = {"The network was not": lambda: training.save_network(trial, network)} | writers
            training.written(writers)
    return results


def fed(
    sets: Sets,
    settings: Settings,
    patch: int,
    seed: int,
    device: torch.device,
    first: int,
    place: tuple[int, int] = (0, 1),
) -> Iterator[tuple[int, Views]]:
    """The views of the steps after the first ones, each with the number of its step, from 1."""
    sizes = {name: len(frames) for name, frames in sets.training.items()}

    def order(steps: range) -> batches.Order:
        return batches.Order(sizes, settings.batch // 2, seed, steps, place)

    if not settings.resident:
        rest = order(range(first, settings.steps))
        stream = batches.Stream(sets.training, settings, device).batches(rest)
        for i, groups in enumerate(stream):
            shape = batches.shape_of(settings, patch, seed, rest.steps[i])
            yield rest.steps[i] + 1, batches.prepared(rest[i], groups, settings, shape, seed)
        return
    with user_errors():
        resident = batches.Resident(sets.training, settings, device)
    several = batches.together(settings, patch, device)
    for start in range(first - first % several, settings.steps, several):
        steps = range(start, min(start + several, settings.steps))
        wanted = order(steps)
        chosen = [each for i in range(len(steps)) for each in wanted[i]]
        shape = batches.shape_of(settings, patch, seed, start)
        made = batches.prepared(chosen, resident.groups(chosen), settings, shape, seed)
        for step, (part, _) in zip(steps, _parts(made, len(steps)), strict=True):
            if step >= first:
                yield step + 1, part


# Parts of it


def remembered(examined: EvaluationSet, device: torch.device) -> EvaluationSet:
    """A set that is looked at again and again, its first frames read or made once."""
    first = range(min(REMEMBERED, len(examined.frames)))
    generated = generate(examined.frames, first, device)
    read = [] if generated is None else [Frame(*each) for each in zip(*generated, strict=True)]
    return dataclasses.replace(examined, frames=CachedFrames(examined.frames, REMEMBERED, read))


REMEMBERED = 256  # frames, at most


def built(settings: Settings, device: torch.device) -> UniDepth:
    """The network on its device, with pretrained weights where there are some."""
    network = UniDepth(
        settings.encoder,
        settings.dim,
        settings.heads,
        settings.depths,
        kind=settings.attention,  # type: ignore[arg-type]
        recompute=settings.recompute,
        pretrained=bool(settings.weights),
    )
    if settings.weights and settings.encoder in CONVOLUTIONAL:
        load_weights(network.encoder.network, settings.encoder, settings.weights)  # type: ignore[arg-type]
    elif settings.weights:
        load_weights(network.encoder, settings.encoder, settings.weights, unused=UNUSED)
        network.encoder.patch_embed.requires_grad_(False)
    if settings.network:
        load_weights(network, settings.encoder, settings.network, unused=())
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = settings.precision == "tf32"
    network.to(device)
    if settings.graphed:
        named = kinds(network)
        network.flat = Flat(network, named, frozenset(kind for kind in named if not kind.wide))
    return network


def wrapped(network: UniDepth, settings: Settings, device: torch.device) -> nn.Module:
    """The objective, its blocks compiled, and spread over the processes, where that is asked for."""
    objective: Any = Objective(network, crossed=settings.crossed, rounding=settings.rounding)  # type: ignore[arg-type]
    objective.train()
    if settings.compile:
        compile_blocks(network, dynamic=not settings.shape)
    if torchrun.world_size() > 1:
        objective = DistributedDataParallel(objective, device_ids=[device.index] if device.type == "cuda" else None)
    elif settings.graphed and device.type == "cuda":
        objective = graphed(objective, network.patch, settings, device)
    return objective  # type: ignore[no-any-return]


def compile_blocks(network: UniDepth, *, dynamic: bool) -> None:
    """Let torch.compile fuse the small steps of each kind of module: once for all of a kind, which starts sooner."""
    torch._dynamo.config.recompile_limit = max(64, torch._dynamo.config.recompile_limit)  # widths, training or not
    parts = {module.inner for module in network.modules() if isinstance(module, (Block, ConvBlock))}
    for module in network.modules():
        if isinstance(module, (ViTBlock, Block, ConvBlock, MLP, Harmonics)) and module not in parts:
            module.compile(dynamic=dynamic)


def _told_of_rounding(settings: Settings, patch: int) -> None:
    """A network sees whole patches: a shape of other sizes becomes the nearest."""
    if settings.shape and (seen := batches.shape_of(settings, patch, 0, 0)) != settings.shape:
        asked = ",".join(map(str, settings.shape))
        text = f"Views are {seen[0]} pixels high and {seen[1]} wide: shape={asked} in whole patches of {patch}."
        warnings.warn(text, stacklevel=3)


def graphed(objective: Objective, patch: int, settings: Settings, device: torch.device) -> Any:
    """The objective, recorded."""
    height, width = batches.shape_of(settings, patch, 0, 0)
    count = settings.batch
    lens = torch.tensor([[width, 0.0, width / 2], [0.0, width, height / 2], [0.0, 0.0, 1.0]])
    example = (
        torch.randn(count, 3, height, width, device=device),
        torch.rand(count, height, width, device=device) + 1,
        lens.expand(count, 3, 3).contiguous().to(device),
        torch.zeros(count, dtype=torch.bool, device=device),
    )
    with autocast(settings, device):
        return training.recorded(objective, example)


def autocast(settings: Settings, device: torch.device) -> torch.autocast:
    """Graphs cannot keep the weights that autocast has converted from one call to the next."""
    wanted = settings.precision == "bfloat16"
    return torch.autocast(device.type, torch.bfloat16, enabled=wanted, cache_enabled=not settings.graphed)


def _parts(views: Views, count: int) -> Iterator[tuple[Views, bool]]:
    """A step's views in equal parts, each with whether it is the last; the two views of a frame stay together."""
    length = len(views.images) // count
    for i in range(count):
        yield type(views)(*(part[i * length : (i + 1) * length] for part in views)), i == count - 1


def _unsynced(objective: nn.Module) -> contextlib.AbstractContextManager[None]:
    """Several parts make one step: only the last averages over the processes."""
    return objective.no_sync() if isinstance(objective, DistributedDataParallel) else contextlib.nullcontext()


def keep_pictures(trial: Trial, network: UniDepth, sets: Sets, settings: Settings) -> None:
    """Some frames of the test set with their depth, the network's, and its error; and one as a cloud of points."""
    network.eval()
    frames = []
    for i in evenly_spaced(len(sets.test.frames), PICTURES):
        with contextlib.suppress(OSError, ValueError, KeyError):  # it has been warned of, when it was left out
            frames.append(sets.test.frames.frame(i))
    if not frames:
        raise ValueError("the frames that were chosen for them cannot be read")
    found = [seen(network, stacked([frame], trial.device), settings) for frame in frames]
    rows = [(frame, depth[0].cpu(), camera[0].cpu()) for frame, (depth, camera) in zip(frames, found, strict=True)]
    pictures.panel(rows, trial.dir / "pictures" / "depth.png")
    pictures.cloud(rows[0], trial.dir / "pictures" / "points.png")


PICTURES = 4
