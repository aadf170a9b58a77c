"""A kept network: its metrics, pictures of its predictions, and the predictions as files."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from torch.utils.data import Dataset

from trainonce.recipes.segmentation.data.label_files import Files
from trainonce.recipes.segmentation.data.scenes import origin
from trainonce.recipes.segmentation.evaluate import EvaluationLoader, confusion_matrix, predict
from trainonce.recipes.segmentation.training import as_metrics, build_network, draw_pictures
from trainonce.recipes.vision.encode import encode, file_names, write_file
from trainonce.recipes.vision.loading import data_loader
from trainonce.recipes.vision.weights import load_weights

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from torch import Tensor

    from trainonce.recipes.segmentation.data.scenes import Domains, Scenes
    from trainonce.recipes.segmentation.model.deeplab import DeepLab
    from trainonce.recipes.segmentation.settings import Settings
    from trainonce.study import KeptTrial


def evaluate(
    kept: KeptTrial, domains: Domains, settings: Settings, exported: Mapping[str, Scenes] | None = None
) -> dict[str, float]:
    """Return the metrics of a kept network as its training did, and write what is asked for.

    :param exported: The sets whose predictions are written as files; None: all that are reported on.
    """
    domains = domains.limit(settings.limit)
    network = build_network(len(domains.classes), dataclasses.replace(settings, weights=""), kept.device)
    load_weights(network, f"a network of {settings.backbone}", str(kept.network), unused=())
    network.eval()
    sets = domains.evaluation_sets()
    found = {}
    for name, scenes in sets.items():
        loader = EvaluationLoader(scenes, settings, kept.device)
        batches = _watched(loader, len(scenes), name, kept)
        found[name] = confusion_matrix(network, batches, len(domains.classes), settings, kept.device)
    if kept.pictures is not None:
        draw_pictures(kept.pictures, network, domains, settings, kept.device, list(sets))
    if kept.export is not None:
        for name, scenes in (exported or sets).items():
            export(network, scenes, settings, kept, kept.export / name)
    return as_metrics(found, domains.classes.names)


def export(network: DeepLab, scenes: Scenes, settings: Settings, kept: KeptTrial, folder: Path) -> None:
    """Write a PNG for each scene, named as its image and of its size as stored: the class of each pixel, from 0."""
    names = file_names([scenes.name(i) for i in range(len(scenes))])
    loader = data_loader(_Images(scenes), settings, kept.device)
    for done, (name, (image, size)) in enumerate(zip(names, loader, strict=True), 1):
        found = predict(network, image[None].to(kept.device), size, settings)[0]
        write_file(folder / name, encode(found))
        kept.progress(done, len(scenes), f"predictions, {folder.name}")


class _Images(Dataset[Any]):
    """The images of scenes, each with its height and width as stored."""

    def __init__(self, scenes: Scenes) -> None:
        self._scenes = scenes

    def __len__(self) -> int:
        return len(self._scenes)

    def __getitem__(self, index: int) -> tuple[Tensor, tuple[int, int]]:
        image, (whole, at) = self._scenes.image(index), origin(self._scenes, index)
        resized = isinstance(whole, Files) and whole.size is not None
        stored = dataclasses.replace(whole, size=None).image(at) if resized else image  # type: ignore[type-var]
        return image, (stored.shape[-2], stored.shape[-1])


def _watched(loader: EvaluationLoader, total: int, name: str, kept: KeptTrial) -> Iterator[tuple[Tensor, Tensor]]:
    done = 0
    for images, labels in loader:
        yield images, labels
        done += len(images)
        kept.progress(done, total, name)
