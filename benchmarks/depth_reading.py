"""What reading the frames of unidepth-paper costs: core-seconds a step, and so the cores that trainings need.

    python benchmarks/depth_reading.py [--steps 4] [--seconds 1.19] [--trainings 8]

Writes made-up frames of the three data sets' sizes, with a camera's noise, to HDF5 files in a temporary folder, images
as JPEG and as PNG. A reader reads the steps of a training as it does beside a GPU: decoding, the check that both views
have known depth, stacking, sending. Its core-seconds count, and those of the process that receives, whatever else runs
on the machine. ``--seconds`` is the time of a step on the GPU, by depth_step.py.
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import resource
import tempfile
from pathlib import Path

import h5py
import numpy
import torch
from PIL import Image

from trainonce.recipes.depth.data import batches
from trainonce.recipes.depth.data.readers.frame_files import LIDAR, MILLIMETRES, FrameFiles
from trainonce.recipes.depth.data.readers.hdf5_nodes import Node
from trainonce.recipes.depth.generated import rooms
from trainonce.recipes.depth.tasks import PAPER

PATCH = 14
LIDAR_PART = 0.03  # of the pixels that have a depth
NOISE = 4.0  # grey levels: the standard deviation of a camera's, without which files are unusually small
#: The kind of scene, height and width, and how depth is stored.
SETS = {
    "scannet": ("room", (480, 640), MILLIMETRES),
    "argoverse2": ("street", (1550, 2048), LIDAR),
    "waymo": ("street", (1280, 1920), LIDAR),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=4, help="that are read")
    parser.add_argument("--frames", type=int, default=3, help="of each data set")
    parser.add_argument("--seconds", type=float, default=1.19, help="of a step on the GPU")
    parser.add_argument("--trainings", type=int, default=8, help="side by side")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{PAPER.batch // 2} frames a step, {asked.trainings} trainings, {asked.seconds} s a step")
    columns = ("bytes a pixel", "core-s a step", "MiB a step", "cores for all")
    print(f"{'images':<8}" + "".join(f"{column:>15}" for column in columns))
    with tempfile.TemporaryDirectory() as folder:
        for ending in ("jpeg", "png"):
            sets = {name: written(Path(folder, f"{name}-{ending}.hdf5"), name, ending, asked.frames) for name in SETS}
            seconds, size = read_steps(sets, asked.steps)
            cores = asked.trainings * seconds / asked.seconds
            cells = (f"{bytes_a_pixel(sets):.2f}", f"{seconds:.2f}", f"{size:.0f}", f"{cores:.1f}")
            print(f"{ending:<8}" + "".join(f"{cell:>15}" for cell in cells), flush=True)


def written(path: Path, name: str, ending: str, count: int) -> FrameFiles:
    """Frames of a data set in an HDF5 file."""
    kind, size, depth_format = SETS[name]
    images, depths, cameras = rooms.frames(0, range(count), kind, size)
    images = (images + NOISE * torch.randn(images.shape)).round().clamp(0, 255).to(torch.uint8)
    if depth_format is LIDAR:
        depths = depths * (torch.rand(depths.shape, generator=torch.Generator().manual_seed(0)) < LIDAR_PART)
    with h5py.File(path, "w") as file:
        for i in range(count):
            colours = Image.fromarray(images[i].permute(1, 2, 0).contiguous().numpy())
            metres = Image.fromarray((depths[i] * depth_format.scale).round().numpy().astype(numpy.uint16))
            file[f"image/{i}"] = encoded(colours, ending, **({"quality": 95} if ending == "jpeg" else {}))
            file[f"depth/{i}"] = encoded(metres, "png")
    places = [tuple(Node(str(path), f"{what}/{i}") for i in range(count)) for what in ("image", "depth")]
    return FrameFiles(*places, cameras, depth_format)


def encoded(image: Image.Image, ending: str, **options) -> numpy.ndarray:
    buffer = io.BytesIO()
    image.save(buffer, ending, **options)
    return numpy.frombuffer(buffer.getvalue(), dtype=numpy.uint8)


def bytes_a_pixel(sets: dict[str, FrameFiles]) -> float:
    """How large the files of the images are, the mean of the data sets."""
    each = [len(frames.images[0].read()) / frames.frame(0).depth.numel() for frames in sets.values()]
    return sum(each) / len(each)


def read_steps(sets: dict[str, FrameFiles], steps: int) -> tuple[float, float]:
    """Core-seconds of a step, and its size in MiB."""
    settings = dataclasses.replace(PAPER, readers=1)
    order = batches.SampleOrder({name: len(each) for name, each in sets.items()}, PAPER.batch // 2, 0, range(steps))
    loader = batches.StreamLoader(sets, settings, PATCH, torch.device("cpu"))
    before, size = core_seconds(), 0
    for groups in loader.batches(order):
        size += sum(part.nbytes for group in groups for part in group.frames)
    return (core_seconds() - before) / steps, size / steps / 2**20


def core_seconds() -> float:
    """What this process and those it started, which have ended, have used."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


if __name__ == "__main__":
    main()
