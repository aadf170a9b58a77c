"""How far focal lengths are off in generated rooms, frame by frame: of a network that ``--set keep_model=True`` kept.

    python benchmarks/depth_focal.py out/rooms/trials/KEY/network.pt --frames 20000 [--tested 200] [--size 192 256]

Prints the mean and its standard error, and what a quarter, half, three quarters and 95 % of the frames stay below, for
frames that were trained on (as many as the test has), for those that choose, and for the test. With more than the 200
frames of the recipe's test the mean is surer: the others are rooms that were not trained on either.
"""

from __future__ import annotations

import argparse
import dataclasses

import torch

from trainonce.recipes.depth.data.frames import Frame
from trainonce.recipes.depth.evaluate import predict
from trainonce.recipes.depth.generated import rooms
from trainonce.recipes.depth.metrics import focal_error
from trainonce.recipes.depth.model.convolutional import CONVOLUTIONAL
from trainonce.recipes.depth.model.network import UniDepth
from trainonce.recipes.depth.tasks import ROOMS
from trainonce.recipes.vision.weights import load_weights

PARTS = (0.25, 0.5, 0.75, 0.95)
TOGETHER = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("network")
    parser.add_argument("--frames", type=int, required=True, help="the number that was trained on")
    parser.add_argument("--tested", type=int, default=200, help="how many frames the test has")
    parser.add_argument("--size", type=int, nargs=2, default=(192, 256))
    parser.add_argument("--encoder", default="lite0")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    shape = tuple(asked.size)
    settings = dataclasses.replace(ROOMS, encoder=asked.encoder, shape=shape, graphed=False)
    convolves = asked.encoder in CONVOLUTIONAL
    network = UniDepth(asked.encoder, settings.dim, settings.heads, settings.depths, pretrained=convolves)
    load_weights(network, asked.encoder, asked.network, unused=())
    network.to(device).eval()
    sets = rooms.load(asked.seed, shape, (asked.frames, 100, asked.tested))
    trained_on = next(iter(sets.training.values()))
    print(f"{'':<12}{'frames':>8}{'mean':>8}{'+-':>8}" + "".join(f"{part:>8.0%}" for part in PARTS))
    named = {"trained on": trained_on, "validation": sets.validation.frames, "test": sets.test.frames}
    for name, frames in named.items():
        count = min(len(frames), len(sets.test.frames))
        starts = range(0, count, TOGETHER)
        found = torch.cat([errors(network, frames, start, count, settings, device) for start in starts])
        parts = 100 * found.quantile(torch.tensor(PARTS))
        cells = (100 * found.mean(), 100 * found.std() / count**0.5, *parts)
        print(f"{name:<12}{count:>8}" + "".join(f"{cell:>7.2f}%" for cell in cells), flush=True)


def errors(network, frames, start: int, count: int, settings, device: torch.device) -> torch.Tensor:
    made = Frame(*frames.frames(range(start, min(start + TOGETHER, count)), device))
    _, cameras = predict(network, made, settings)
    return focal_error(cameras, made.camera).cpu()


if __name__ == "__main__":
    main()
