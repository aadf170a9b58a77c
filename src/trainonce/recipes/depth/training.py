"""The training of UniDepth under a trial's weights: from frames to metrics, resumable, on one or several devices."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import warnings
from typing import TYPE_CHECKING

import torch

from trainonce.recipes.depth import pictures
from trainonce.recipes.depth.data import batches
from trainonce.recipes.depth.data.check import check
from trainonce.recipes.depth.data.frames import CachedFrames, Frame, generate
from trainonce.recipes.depth.evaluate import mean_metrics, predict, stack_frames
from trainonce.recipes.depth.flat_parameters import FlatParameters
from trainonce.recipes.depth.model.attention import MLP, Block
from trainonce.recipes.depth.model.convolutional import CONVOLUTIONAL
from trainonce.recipes.depth.model.decoder import ConvBlock
from trainonce.recipes.depth.model.harmonics import Harmonics
from trainonce.recipes.depth.model.network import UniDepth
from trainonce.recipes.depth.model.vit import UNUSED, ViTBlock
from trainonce.recipes.depth.objective import Objective
from trainonce.recipes.depth.optimisation import EMA, build_optimizer, clip_gradients_, kinds, learning_rate_factor
from trainonce.recipes.vision.checks import check_in_first_process
from trainonce.recipes.vision.indices import evenly_spaced
from trainonce.recipes.vision.output import report_between, write_outputs
from trainonce.recipes.vision.parallel import synchronize_if, wrap_losses
from trainonce.recipes.vision.precision import allow_tf32_if_asked, autocast
from trainonce.recipes.vision.weights import load_weights
from trainonce.study import layout, torchrun, user_errors

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from torch import Tensor, nn

    from trainonce.recipes.depth.augmentation.views import Views
    from trainonce.recipes.depth.data.frames import EvaluationSet, Sets
    from trainonce.recipes.depth.settings import Settings
    from trainonce.study import Trial


def train(trial: Trial, sets: Sets, settings: Settings) -> dict[str, float]:
    """Train once and return the metrics of every set that is reported, by ``set/metric``."""
    device, process = trial.device, (torchrun.rank(), torchrun.world_size())
    sets = sets.limit(settings.limit)
    if trial.measures:
        settings = dataclasses.replace(settings, graphed=False)  # graphs cannot be run backward twice
    with user_errors():
        network = build_network(settings, device)
        objective = build_objective(network, settings, device)
        if settings.check:
            check_in_first_process(lambda: check(sets))
    _warn_of_rounding(settings, network.patch)
    criterion = trial.criterion()
    optimizer = build_optimizer(network, settings)
    trial.attach(optimizer)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: learning_rate_factor(step, settings))
    ema = EMA(network, settings)
    loop = trial.loop({"network": network, "schedule": schedule, "average": ema})
    validation = cache_first_frames(sets.validation, device)

    def train_step(step: int, views: Views) -> None:
        optimizer.zero_grad()
        for part, last in micro_batches(views, settings.parts):
            with synchronize_if(last, objective):
                with autocast(settings, device):
                    terms = objective(part.images, part.depths, part.cameras, part.flips)
                (criterion(terms) / settings.parts).backward()  # type: ignore[no-untyped-call]
        clip_gradients_(network, criterion, settings)
        optimizer.step()
        schedule.step()
        ema.step(step)

    def validate() -> dict[str, float]:
        with ema:
            found = mean_metrics(network, validation, settings, device, with_points=False)
        return {"delta_1": found["delta_1"]}

    feed = batches_from(sets, settings, network.patch, trial.seed, device, loop.start, process)
    for _, (step, views) in zip(loop, feed, strict=False):
        train_step(step, views)
        report_between(trial, settings, step, validate)
    if trial.paused:
        return {f"validation/{name}": value for name, value in validate().items()}
    with ema:
        results = {
            f"{name}/{metric}": value
            for name, examined in sets.evaluation_sets().items()
            for metric, value in mean_metrics(network, examined, settings, device).items()
        }
        folder = trial.dir / layout.PICTURES
        write_outputs(trial, settings, network, lambda: draw_pictures(folder, network, sets.test, settings, device))
    return results


def batches_from(
    sets: Sets,
    settings: Settings,
    patch: int,
    seed: int,
    device: torch.device,
    first: int,
    process: tuple[int, int] = (0, 1),
) -> Iterator[tuple[int, Views]]:
    """The views of the steps after the ``first`` ones, each with the number of its step, from 1.

    :param process: Rank and number of processes.
    """
    sizes = {name: len(frames) for name, frames in sets.training.items()}

    def order(steps: range) -> batches.SampleOrder:
        return batches.SampleOrder(sizes, settings.batch // 2, seed, steps, process)

    if not settings.resident:
        rest = order(range(first, settings.steps))
        stream = batches.StreamLoader(sets.training, settings, patch, device).batches(rest)
        for i, groups in enumerate(stream):
            shape = batches.shape_of(settings, patch, seed, rest.steps[i])
            yield rest.steps[i] + 1, batches.make_batch(rest[i], groups, settings, shape, seed)
        return
    with user_errors():
        cache = batches.DeviceCache(sets.training, settings, device)
    several = batches.steps_at_once(settings, patch, device)
    for start in range(first - first % several, settings.steps, several):
        steps = range(start, min(start + several, settings.steps))
        samples = order(steps)
        chosen = [each for i in range(len(steps)) for each in samples[i]]
        shape = batches.shape_of(settings, patch, seed, start)
        views = batches.make_batch(chosen, cache.groups(chosen), settings, shape, seed)
        for step, (part, _) in zip(steps, micro_batches(views, len(steps)), strict=True):
            if step >= first:
                yield step + 1, part


def cache_first_frames(examined: EvaluationSet, device: torch.device) -> EvaluationSet:
    """The set, with its first frames read or generated once and kept: validation is evaluated several times."""
    first = range(min(CACHED, len(examined.frames)))
    generated = generate(examined.frames, first, device)
    read = [] if generated is None else [Frame(*each) for each in zip(*generated, strict=True)]
    return dataclasses.replace(examined, frames=CachedFrames(examined.frames, CACHED, read))


CACHED = 256  # frames, at most


def new_network(settings: Settings) -> UniDepth:
    """The network with random weights."""
    return UniDepth(
        settings.encoder,
        settings.dim,
        settings.heads,
        settings.depths,
        kind=settings.attention,  # type: ignore[arg-type]
        recompute=settings.recompute,
        pretrained=bool(settings.weights),
    )


def build_network(settings: Settings, device: torch.device) -> UniDepth:
    """The network on its device, with pretrained weights if the settings name some."""
    network = new_network(settings)
    if settings.weights and settings.encoder in CONVOLUTIONAL:
        load_weights(network.encoder.network, settings.encoder, settings.weights)  # type: ignore[arg-type]
    elif settings.weights:
        load_weights(network.encoder, settings.encoder, settings.weights, unused=UNUSED)
        network.encoder.patch_embed.requires_grad_(False)
    if settings.network:
        load_weights(network, settings.encoder, settings.network, unused=())
    allow_tf32_if_asked(settings)
    network.to(device)
    if settings.graphed:
        named = kinds(network)
        network.flat = FlatParameters(network, named, frozenset(kind for kind in named if not kind.wide))
    return network


def build_objective(network: UniDepth, settings: Settings, device: torch.device) -> nn.Module:
    """The losses as one module: its blocks compiled, distributed or captured as a CUDA graph if the settings say so."""
    objective = Objective(
        network,
        camera=settings.camera,  # type: ignore[arg-type]
        crossed=settings.crossed,
        rounding=settings.rounding,  # type: ignore[arg-type]
    )
    objective.train()
    if settings.compile:
        compile_blocks(network, dynamic=not settings.shape)
    example = functools.partial(example_views, network.patch, settings, device)
    return wrap_losses(objective, settings, device, example)  # type: ignore[no-any-return]


def compile_blocks(network: UniDepth, *, dynamic: bool) -> None:
    """Compile each kind of block with torch.compile: once for all blocks of a kind, which starts sooner."""
    torch._dynamo.config.recompile_limit = max(64, torch._dynamo.config.recompile_limit)  # widths, training or not
    parts = {module.inner for module in network.modules() if isinstance(module, (Block, ConvBlock))}
    for module in network.modules():
        if isinstance(module, (ViTBlock, Block, ConvBlock, MLP, Harmonics)) and module not in parts:
            module.compile(dynamic=dynamic)


def _warn_of_rounding(settings: Settings, patch: int) -> None:
    """Warn if the shape of the views is not a multiple of the patch and is therefore rounded."""
    if settings.shape and (seen := batches.shape_of(settings, patch, 0, 0)) != settings.shape:
        asked = ",".join(map(str, settings.shape))
        text = f"Views are {seen[0]} pixels high and {seen[1]} wide: shape={asked} in whole patches of {patch}."
        warnings.warn(text, stacklevel=3)


def example_views(patch: int, settings: Settings, device: torch.device) -> tuple[Tensor, ...]:
    """Random inputs of the objective, of a step's shapes."""
    height, width = batches.shape_of(settings, patch, 0, 0)
    count = settings.batch
    lens = torch.tensor([[width, 0.0, width / 2], [0.0, width, height / 2], [0.0, 0.0, 1.0]])
    return (
        torch.randn(count, 3, height, width, device=device),
        torch.rand(count, height, width, device=device) + 1,
        lens.expand(count, 3, 3).contiguous().to(device),
        torch.zeros(count, dtype=torch.bool, device=device),
    )


def micro_batches(views: Views, count: int) -> Iterator[tuple[Views, bool]]:
    """A batch in equal micro-batches, each with whether it is the last; the two views of a frame stay together."""
    length = len(views.images) // count
    for i in range(count):
        yield type(views)(*(part[i * length : (i + 1) * length] for part in views)), i == count - 1


def draw_pictures(
    folder: Path, network: UniDepth, shown: EvaluationSet, settings: Settings, device: torch.device
) -> None:
    """Write some frames of a set with true depth, predicted depth and error; and one as a point cloud."""
    network.eval()
    frames = []
    for i in evenly_spaced(len(shown.frames), PICTURES):
        with contextlib.suppress(*batches.UNREADABLE):  # the evaluation has warned of it
            frames.append(shown.frames.frame(i))
    if not frames:
        raise ValueError("the frames that were chosen for them cannot be read")
    found = [predict(network, stack_frames([frame], device), settings) for frame in frames]
    rows = [(frame, depth[0].cpu(), camera[0].cpu()) for frame, (depth, camera) in zip(frames, found, strict=True)]
    pictures.write_panel(rows, folder / "depth.png")
    pictures.write_cloud(rows[0], folder / "points.png")


PICTURES = 4
