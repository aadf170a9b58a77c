"""The step of unidepth-paper at its true size: time, memory, share of the GPU's peak, and what a whole run would take.

    python benchmarks/depth_step.py [--steps 4] [--parts 4] [--shape 518 770] [--recompute] [--peak 989]

Frames of ScanNet's size lie on the device; every step cuts its 64 views anew, runs forward and backward in parts, clips
and steps as the recipe does, but for the schedule and the running average, which cost next to nothing. Every row is
measured in this one run, with learned weights beside the plain sum of the three losses. The share counts the products
and convolutions of the forward and backward pass once, so what is computed again to save memory does not count.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import time

import torch
from torch.utils.flop_counter import FlopCounterMode

import trainonce
from trainonce.recipes.depth import training
from trainonce.recipes.depth.data import batches
from trainonce.recipes.depth.data.frames import Frame
from trainonce.recipes.depth.generated import rooms
from trainonce.recipes.depth.losses import TERMS
from trainonce.recipes.depth.optimisation import build_optimizer, clip_gradients_
from trainonce.recipes.depth.tasks import PAPER

STEPS, RUNS = PAPER.steps, 9  # of one run; of the grid
WARM = 2
COLUMNS = ("s/step", "views/s", "GiB", "TFLOP/s", "share", "days/run", "days/grid")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--batch", type=int, default=PAPER.batch, help="views in a step (the paper's)")
    parser.add_argument("--parts", type=int, nargs="+", default=[4], help="into how many parts a step is split")
    parser.add_argument("--shape", type=int, nargs=2, default=(518, 770), help="height and width of a view")
    parser.add_argument("--encoder", default=PAPER.encoder)
    parser.add_argument("--recompute", action="store_true", help="also with activations computed again")
    parser.add_argument("--compile", action="store_true", help="also with torch.compile, which takes minutes to start")
    parser.add_argument("--peak", type=float, default=989.0, help="of the GPU, in TFLOP/s of bfloat16 products")
    asked = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    print(f"{name}, torch {torch.__version__}; {asked.batch} views of {asked.shape[0]}x{asked.shape[1]}")
    images, depths, cameras = rooms.frames(0, range(asked.batch // 2), size=(480, 640), device=device)
    frames = batches.Group(list(range(len(images))), Frame(images, depths, cameras), cameras.cpu())
    print(f"{'':<28}{'weights':<9}" + "".join(f"{column:>11}" for column in COLUMNS))
    variants = [
        {},
        *([{"recompute": True}] if asked.recompute else []),
        *([{"compile": True}] if asked.compile else []),
    ]
    for more in variants:
        for parts in asked.parts:
            given = {"encoder": asked.encoder, "shape": tuple(asked.shape), "batch": asked.batch, "parts": parts}
            settings = dataclasses.replace(PAPER, **given, **more)
            label = " ".join([f"{parts} parts", *more])
            try:
                for learned in (False, True):
                    measured(frames, settings, device, asked, learned, label)
            except torch.OutOfMemoryError:
                print(f"{label:<28}does not fit")
            gc.collect()


def measured(frames, settings, device: torch.device, asked, learned: bool, label: str) -> None:
    network = training.build_network(settings, device)
    steps = build_optimizer(network, settings)
    criterion = trainonce.CompositeLoss.as_printed(TERMS, "unidepth", lr=settings.lr).to(device)
    if learned:
        trainonce.attach(steps, criterion)
    objective = training.build_objective(network, settings, device)
    shape = batches.shape_of(settings, network.patch, 0, 0)
    synchronize = torch.cuda.synchronize if device.type == "cuda" else lambda: None

    def part_of(views) -> None:
        with training.autocast(settings, device):
            terms = objective(views.images, views.depths, views.cameras, views.flips)
        total = criterion(terms) if learned else sum(terms.values())
        (total / settings.parts).backward()

    def step(number: int) -> None:
        count = len(frames.members)
        chosen = [batches.Choice(number * count + i, "rooms", i) for i in range(count)]
        views = batches.make_batch(chosen, [frames], settings, shape, 0)
        steps.zero_grad()
        for part, _ in training.micro_batches(views, settings.parts):
            part_of(part)
        clip_gradients_(network, criterion, settings)
        steps.step()

    for number in range(WARM):
        step(number)
    synchronize()
    start = time.perf_counter()
    for number in range(asked.steps):
        step(WARM + number)
    synchronize()
    each = (time.perf_counter() - start) / asked.steps
    memory = f"{torch.cuda.max_memory_allocated() / 2**30:.1f}" if device.type == "cuda" else ""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    work = counted(settings, device, shape) * settings.batch
    days = each * STEPS / 86400
    cells = (
        f"{each:.2f}",
        f"{settings.batch / each:.1f}",
        memory,
        f"{work / each / 1e12:.0f}",
        f"{work / each / 1e12 / asked.peak:.0%}",
        f"{days:.1f}",
        f"{RUNS * days:.0f}",
    )
    print(f"{label:<28}{'learned' if learned else 'plain':<9}" + "".join(f"{cell:>11}" for cell in cells), flush=True)


def counted(settings, device: torch.device, shape: tuple[int, int]) -> float:
    """The operations of a view's forward and backward pass, by products and convolutions alone, without repetitions."""
    plain = dataclasses.replace(settings, recompute=False, compile=False)
    objective = training.build_objective(training.build_network(plain, device), plain, device)
    camera = torch.tensor([[shape[1], 0, shape[1] / 2], [0, shape[1], shape[0] / 2], [0, 0, 1.0]])
    views = (torch.zeros(2, 3, *shape), torch.ones(2, *shape), camera.expand(2, 3, 3), torch.zeros(2) > 1)
    with FlopCounterMode(display=False) as counter:
        with training.autocast(plain, device):
            terms = objective(*(part.to(device) for part in views))
        sum(terms.values()).backward()
    return counter.get_total_flops() / 2


if __name__ == "__main__":
    main()
