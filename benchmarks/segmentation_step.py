"""The step of ciss-paper at its true size: time, memory, idle share of the GPU, and what a whole run would take.

    python benchmarks/segmentation_step.py [--steps 100] [--readers 4] [--compile]

Draws a few scenes of Cityscapes' and ACDC's sizes, writes them as PNG files in their folders' layouts to a temporary
place, and trains on them exactly as the recipe does: read, decode, stylise, cut, two passes, backward, step. Every
row is measured in this one run, with learned weights beside the plain sum of the two losses. What the readers have
read ahead is used up before the steps that are timed. The GPU's idle share is what its kernels, watched in some more
steps, leave of the time of an unwatched one.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import tempfile
import time
from pathlib import Path

import torch
from PIL import Image

import trainonce
from trainonce.recipes.segmentation import training
from trainonce.recipes.segmentation.data import acdc, cityscapes
from trainonce.recipes.segmentation.data.scenes import Domains
from trainonce.recipes.segmentation.generated.streets import scene
from trainonce.recipes.segmentation.losses import TERMS
from trainonce.recipes.segmentation.tasks import PAPER
from trainonce.recipes.vision.loading import PREFETCHED

TRAIN_IDS = torch.tensor(
    [10, 2, 0, 1, 8, 13, 11], dtype=torch.uint8
)  # of sky, building, road, pavement, tree, car, person
STEPS, RUNS = PAPER.steps, 13 * 3  # of one run; of the grid with its seeds
WARM, WATCHED = 8, 8
PRECISIONS = ("float32", "tf32", "bfloat16")
COLUMNS = ("ms/step", "images/s", "GPU idle", "GiB", "h/run", "h/grid")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100, help="that are timed")
    parser.add_argument("--readers", type=int, default=PAPER.readers)
    parser.add_argument("--scenes", type=int, default=6)
    parser.add_argument("--crop", type=int, nargs=2, default=PAPER.crop, help="height and width (the paper's)")
    parser.add_argument("--precision", nargs="+", choices=PRECISIONS, default=PRECISIONS, metavar="NAME")
    parser.add_argument("--compile", action="store_true", help="also with torch.compile, which takes minutes to start")
    asked = parser.parse_args()
    if asked.steps < 1:
        parser.error("--steps must be at least 1")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    print(f"{name}, torch {torch.__version__}; crops {asked.crop[0]}x{asked.crop[1]}, {asked.readers} readers")
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        domains = drawn(Path(folder), asked.scenes)
        reading = time.perf_counter()
        for i in range(asked.scenes):
            domains.source.image(i), domains.source.label(i), domains.style.image(i)
        each = (time.perf_counter() - reading) / asked.scenes
        print(
            f"scenes drawn in {reading - started:.0f} s; one process reads a source scene and a style in {each:.3f} s"
        )
        print(f"{'precision':<22}{'weights':<10}" + "".join(f"{name:>10}" for name in COLUMNS))
        base = dataclasses.replace(PAPER, crop=tuple(asked.crop), readers=asked.readers)
        base = dataclasses.replace(base, steps=warm(base) + asked.steps + WATCHED)
        rows = [(precision, {}) for precision in asked.precision]
        rows += [("bfloat16", {"graphed": True})] if "bfloat16" in asked.precision else []
        rows += [("bfloat16", {"compile": True})] if asked.compile else []
        for precision, more in rows if device.type == "cuda" else rows[:1]:
            settings = dataclasses.replace(base, precision=precision, **more)
            for learned in (False, True):
                measured(domains, settings, device, learned, " ".join([precision, *more]))


def warm(settings) -> int:
    """How many steps come before those that are timed."""
    return WARM + PREFETCHED * settings.readers


def drawn(folder: Path, count: int) -> Domains:
    """Scenes in the two folders' layouts, read back through the recipe's loaders."""
    for i in range(count):
        place = folder / "cityscapes"
        save(place, f"leftImg8bit/train/a/a_{i:06}_000000_leftImg8bit.png", scene(0, i, "day", (1024, 2048))[0])
        label = TRAIN_IDS[scene(0, i, "day", (1024, 2048))[1].long()]
        save(place, f"gtFine/train/a/a_{i:06}_000000_gtFine_labelTrainIds.png", label)
        image = scene(1, i, "night", (1080, 1920))[0]
        save(folder / "acdc", f"rgb_anon/night/train/GOPR0001/GOPR0001_frame_{i:06}_rgb_anon.png", image)
    style = acdc.load(folder / "acdc", "train", labelled=False)
    source = cityscapes.load(folder / "cityscapes", "train")
    return Domains(cityscapes.CLASSES, source, style, source, source)


def save(root: Path, name: str, picture: torch.Tensor) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray((picture.permute(1, 2, 0) if picture.ndim == 3 else picture).numpy()).save(path)


def measured(domains: Domains, settings, device: torch.device, learned: bool, label: str) -> None:
    network = training.build_network(len(domains.classes), settings, device)
    optimizer = training.build_optimizer(network, settings)
    rule = trainonce.CompositeLoss(TERMS, init=0.1, decay=0.05, regularizer="softplus", lr=settings.lr)
    criterion = rule.to(device)
    if learned:
        trainonce.attach(optimizer, criterion)
    losses = training.build_losses(network, settings, device)
    synchronize = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True)
    begin, end = warm(settings), settings.steps - WATCHED
    for step, batch in training.batches_from(domains, settings, 0, device, 0, (0, 1)):
        optimizer.zero_grad()
        with training.autocast(settings, device):
            terms = losses(*batch)
        (criterion(terms) if learned else terms["ce"] + terms["invariance"]).backward()
        optimizer.step()
        if step == begin:
            synchronize()
            start = time.perf_counter()
        elif step == end:
            synchronize()
            each = (time.perf_counter() - start) / (end - begin)
            if device.type == "cuda":
                profiler.start()
    synchronize()
    idle, memory = "", ""
    if device.type == "cuda":
        profiler.stop()
        # Copies run beside kernels and count too, so the share is a lower end.
        busy = sum(event.self_device_time_total for event in profiler.key_averages()) / 1e6 / WATCHED
        idle, memory = f"{max(0.0, 1 - busy / each):.0%}", f"{torch.cuda.max_memory_allocated() / 2**30:.1f}"
        torch.cuda.reset_peak_memory_stats()
    del network, optimizer, losses, criterion, terms, batch
    gc.collect()  # a model and its optimizer hold each other, and the next row's memory with them
    hours = each * STEPS / 3600
    cells = (
        f"{1000 * each:.1f}",
        f"{2 * settings.batch / each:.1f}",
        idle,
        memory,
        f"{hours:.1f}",
        f"{RUNS * hours:.0f}",
    )
    print(f"{label:<22}{'learned' if learned else 'plain':<10}" + "".join(f"{cell:>10}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
