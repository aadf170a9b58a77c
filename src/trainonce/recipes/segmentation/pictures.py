"""Panels of scenes: one row each, with truth and prediction beside the image, and a legend of the classes."""

from __future__ import annotations

import io
import itertools
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainonce.extras import require
from trainonce.recipes.segmentation.data.scenes import IGNORE, Classes
from trainonce.recipes.vision.encode import write_file
from trainonce.recipes.vision.panels import DPI, EDGE, GAP, HEAD, LIMIT, SMALL, fit_tile

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

TITLES = ("image", "stylised", "truth", "prediction")
BLACK = (0, 0, 0)  # of what counts for nothing
LINE, ENTRY = 22, 118  # pixels of the legend: a line's height; a class's width


def colour_labels(label: Tensor, classes: Classes) -> Tensor:
    """The label in the colours of its classes, uint8 (3, height, width); what is none of them is black.

    >>> two = Classes(("a", "b"), ((10, 20, 30), (40, 50, 60)))
    >>> colour_labels(torch.tensor([[0, 1, 255]], dtype=torch.uint8), two)[:, 0].T.tolist()
    [[10, 20, 30], [40, 50, 60], [0, 0, 0]]
    """
    table = torch.tensor([*classes.colours, BLACK], dtype=torch.uint8)
    return table[label.cpu().long().clamp(max=len(classes))].permute(2, 0, 1)


def write_panel(rows: Sequence[Sequence[Tensor]], classes: Classes, path: Path, titles: Sequence[str] = TITLES) -> None:
    """Write one PNG, or replace it in one move: a row a scene, the titles above, the classes that occur below.

    Without scenes nothing is written.

    :param rows: For each scene an image and its stylised version, RGB from 0 to 255, the truth and the prediction.
    """
    if not rows:
        return
    labels = torch.cat([label.cpu().flatten() for *_, truth, seen in rows for label in (truth, seen)])
    found = torch.bincount(labels.long()).nonzero().flatten().tolist()
    pictures = [
        [fit_tile(image, smooth=True) for image in images]
        + [fit_tile(colour_labels(label, classes), smooth=False) for label in (truth, seen)]
        for *images, truth, seen in rows
    ]
    named = [(classes.names[i], classes.colours[i]) for i in found if i < len(classes)]
    named += [("ignored", BLACK)] if IGNORE in found else []
    widths = [max(tile.shape[2] for tile in column) + GAP for column in zip(*pictures, strict=True)]
    starts = [0, *itertools.accumulate(widths)]
    for bits in (8, 6, 5, 4):  # photographs make large files: rather coarser colours than a smaller picture
        mosaic = _mosaic(pictures, starts, bits)
        content = _png(_draw(mosaic, named, list(zip(starts, titles, strict=False))))
        if len(content) <= LIMIT:
            break
    write_file(path, content)


def _mosaic(pictures: Sequence[Sequence[Tensor]], starts: Sequence[int], bits: int) -> Tensor:
    """All tiles on white, the columns at their starts; photographs with so many bits a colour."""
    high = [max(tile.shape[1] for tile in row) for row in pictures]
    canvas = torch.full((3, sum(high) + GAP * (len(high) - 1), starts[-1] - GAP), 255, dtype=torch.uint8)
    step, top = 1 << (8 - bits), 0
    for row, height in zip(pictures, high, strict=True):
        for i, tile in enumerate(row):
            shown = tile if i >= len(row) - 2 else tile // step * step + step // 2
            canvas[:, top : top + tile.shape[1], starts[i] : starts[i] + tile.shape[2]] = shown
        top += height + GAP
    return canvas


def _draw(mosaic: Tensor, named: Sequence[tuple[str, tuple[int, int, int]]], titles: Sequence[tuple[int, str]]) -> Any:
    """The figure, pixel by pixel: the mosaic, each title above its column, the legend below."""
    matplotlib = require("matplotlib.figure", "matplotlib", "study")
    patches = require("matplotlib.patches", "matplotlib", "study")
    _, height, width = mosaic.shape
    columns = max(1, min(len(named), width // ENTRY))
    below = LINE * -(-len(named) // columns) + EDGE
    full = (width + 2 * EDGE, height + HEAD + below + EDGE)
    figure = matplotlib.Figure(figsize=(full[0] / DPI, full[1] / DPI), dpi=DPI, facecolor="white")
    figure.figimage(mosaic.permute(1, 2, 0).numpy(), EDGE, below)
    for start, title in titles:
        at = ((EDGE + start) / full[0], (below + height + 6) / full[1])
        figure.text(*at, title, fontsize=SMALL + 1, va="bottom")
    for i, (name, colour) in enumerate(named):
        line, column = divmod(i, columns)
        left, low = EDGE + column * width / columns, below - EDGE / 2 - (line + 1) * LINE + 5
        corner, size = (left / full[0], low / full[1]), (14 / full[0], 12 / full[1])
        tone = tuple(level / 255 for level in colour)
        figure.add_artist(patches.Rectangle(corner, *size, color=tone, linewidth=0, transform=figure.transFigure))
        figure.text((left + 20) / full[0], (low + 1) / full[1], name, fontsize=SMALL, va="bottom")
    return figure


def _png(figure: Any) -> bytes:
    target = io.BytesIO()
    figure.savefig(target, format="png", dpi=DPI, metadata={"Software": None})
    return target.getvalue()
