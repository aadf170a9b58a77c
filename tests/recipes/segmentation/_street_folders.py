"""Single scenes on disk, as small as a test needs them."""

from __future__ import annotations

import torch

from trainonce.recipes.segmentation.data.label_files import Files, class_table
from trainonce.recipes.segmentation.data.made_up import save
from trainonce.recipes.vision.files import Place


def one_scene(tmp_path, image, label, **kwargs):
    """A single scene in files."""
    save(tmp_path / "image.png", image)
    save(tmp_path / "label.png", label)
    values = kwargs.pop("values", class_table({0: 0, 1: 1}))
    return Files((Place(str(tmp_path / "image.png")),), (Place(str(tmp_path / "label.png")),), values, **kwargs)


def grey(height=4, width=6, value=0):
    return torch.full((height, width), value, dtype=torch.uint8)


def rgb(height=4, width=6, value=0):
    return torch.full((height, width, 3), value, dtype=torch.uint8)
