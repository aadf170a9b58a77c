"""Images as the bytes of PNG and JPEG files, written in one move; and names for the files of predictions."""

from __future__ import annotations

import io
import os
import re
from os.path import commonpath
from typing import TYPE_CHECKING, Any

import torch

from trainonce.extras import require

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import Tensor


def encode(pixels: Tensor, ending: str = ".png") -> bytes:
    """Return the bytes of an image file.

    :param pixels: uint8, (height, width) or (height, width, 3); other types of whole numbers become 16 bits.
    :param ending: ``.png``, or ``.jpg`` of quality 95.
    """
    image: Any = require("PIL.Image", "Pillow", "vision")
    plain = pixels.detach().cpu().contiguous()
    mode = "RGB" if plain.ndim == 3 else "L"
    if plain.dtype != torch.uint8:
        mode, plain = "I;16", plain.to(torch.uint16)
    made = image.frombytes(mode, (plain.shape[1], plain.shape[0]), plain.numpy().tobytes())
    buffer = io.BytesIO()
    made.save(buffer, "PNG" if ending == ".png" else "JPEG", quality=95, compress_level=1)  # four times as fast
    return buffer.getvalue()


def write_file(path: Path, content: bytes | str) -> None:
    """Write a file and the folders above it in one move: a kill or a full disk leaves the old one, or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.part{os.getpid()}")
    try:
        beside.write_bytes(content.encode() if isinstance(content, str) else content)
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def file_names(items: Sequence[str], ending: str = ".png") -> list[str]:
    """Return a path for the prediction of each item of a set: its own name or, where these repeat, its path.

    >>> file_names(["/data/a/1.jpg", "/data/a/2.jpg"])
    ['1.png', '2.png']
    >>> file_names(["/data/x.hdf5:/a/1.png", "/data/x.hdf5:/b/1.png", "/data/x.hdf5:/b/2.png"])
    ['a/1.png', 'b/1.png', 'b/2.png']
    """
    paths = [re.sub(r"[/:\\]+", "/", item).strip("/").replace(" ", "_") for item in items]
    short = [path.rpartition("/")[2] for path in paths]
    if len(set(short)) < len(short):
        above = commonpath([path.rpartition("/")[0] for path in paths])
        short = [path.removeprefix(above).strip("/") for path in paths]
    return [f"{re.sub(r'[.](png|jpe?g)$', '', name)}{ending}" for name in short]
