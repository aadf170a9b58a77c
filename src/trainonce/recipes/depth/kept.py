"""A kept network: its metrics, pictures of its predictions, and the predictions as files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import torch

from trainonce.recipes.depth.evaluate import mean_metrics
from trainonce.recipes.depth.training import draw_pictures, new_network
from trainonce.recipes.vision.encode import encode, file_names, write_file
from trainonce.recipes.vision.precision import allow_tf32_if_asked
from trainonce.recipes.vision.weights import load_weights

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import Tensor

    from trainonce.recipes.depth.data.frames import EvaluationSet, Sets
    from trainonce.recipes.depth.settings import Settings
    from trainonce.study import KeptTrial

#: Steps of a metre in an exported depth image, of 16 bits: millimetres where nothing counts beyond 65 m, else as KITTI.
FINE, COARSE = 1000, 256
LAST = 65535


def evaluate(kept: KeptTrial, sets: Sets, settings: Settings) -> dict[str, float]:
    """Return the metrics of a kept network as its training did, and write what is asked for."""
    sets = sets.limit(settings.limit)
    network = new_network(settings)
    load_weights(network, f"a network of {settings.encoder}", str(kept.network), unused=())
    allow_tf32_if_asked(settings)
    network.to(kept.device).eval()
    results: dict[str, float] = {}
    for name, examined in sets.evaluation_sets().items():
        out = _Export(kept, name, examined)
        found = mean_metrics(network, examined, settings, kept.device, seen=out.add)
        results |= {f"{name}/{metric}": value for metric, value in found.items()}
        out.finish()
        if kept.pictures is not None:
            draw_pictures(kept.pictures / name, network, examined, settings, kept.device)
    return results


class _Export:
    """The predictions for a set as files, where they are asked for: PNG images of depth, and cameras as JSON."""

    def __init__(self, kept: KeptTrial, name: str, examined: EvaluationSet) -> None:
        self._kept, self._name, frames = kept, name, examined.frames
        self._folder: Path | None = kept.export / name if kept.export is not None else None
        self._names = file_names([frames.name(i) for i in range(len(frames))])
        self._scale = FINE if examined.range.farthest * FINE <= LAST else COARSE
        self._cameras: dict[str, list[list[float]]] = {}
        self._done = 0

    def add(self, indices: Sequence[int], depths: Tensor, cameras: Tensor) -> None:
        self._done += len(indices)
        self._kept.progress(self._done, len(self._names), self._name)
        if self._folder is None:
            return
        stored = (depths.cpu() * self._scale).round().clamp(1, LAST).to(torch.int32)
        for index, depth, camera in zip(indices, stored, cameras.cpu().tolist(), strict=True):
            write_file(self._folder / self._names[index], encode(depth))
            self._cameras[self._names[index]] = camera

    def finish(self) -> None:
        if self._folder is not None:
            content = {"depth_scale": self._scale, "cameras": self._cameras}
            write_file(self._folder / "cameras.json", json.dumps(content))
