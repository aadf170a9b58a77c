"""A trial's history as figures draw it: the means of successive steps, in a small file beside it.

It is written when the trial has ended. A figure of very many trials reads these files, in a hundredth of the time that
the histories take; a history without one, of an earlier version, is read itself. The history keeps every step, which a
replay needs.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
from array import array
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from trainonce.history import History
from trainonce.study import layout

if TYPE_CHECKING:
    from pathlib import Path

POINTS = 250  # of a curve, at most
FORMAT = 2  # 1 had other columns
HEAD = "trainonce_curves"

#: The columns of a :class:`~trainonce.History`, thinned; ``rows`` says how many rows each value is the mean of.
Columns = dict[str, Tensor]


def read(folder: Path) -> Columns | None:
    """The thinned history in a trial's folder; None where there is none, or it has no rows.

    The file counts if it was made from the history as it is, or if the history is gone.
    """
    path = folder / layout.HISTORY
    try:
        size = path.stat().st_size
    except OSError:
        size = None
    found = _read(folder / layout.CURVES, size)
    if found is None and size is not None:
        with contextlib.suppress(OSError, ValueError):
            found = thin(History.load(path))
    return found


def write(folder: Path) -> None:
    """Thin the history in a trial's folder. What fails is left to :func:`read`: nothing is lost without the file."""
    path, partial = folder / layout.HISTORY, folder / f"{layout.CURVES}.part{os.getpid()}"
    try:
        size = path.stat().st_size
        columns = thin(History.load(path))
        if columns is None:
            return
        partial.write_bytes(_encode(columns, size))
        partial.replace(folder / layout.CURVES)
    except (OSError, ValueError):
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def thin(history: History) -> Columns | None:
    """The columns of a history, each value the mean of some successive steps; None where it has no rows."""
    columns = history.tensors()
    count = len(columns["step"])
    if not count:
        return None
    table = torch.stack([column.double() for column in columns.values()])
    table = torch.where(table.isfinite(), table, math.nan)
    width = math.ceil(count / POINTS)
    blocks = functional.pad(table, (0, -count % width), value=math.nan).reshape(len(table), -1, width)
    return dict(zip(columns, blocks.nanmean(2), strict=True)) | {"rows": (~blocks[0].isnan()).sum(1).double()}


def _encode(columns: Columns, size: int) -> bytes:
    """A line of JSON, with the size of the history; then the columns one after the other as little-endian doubles."""
    head = {HEAD: FORMAT, "history": size, "points": len(columns["step"]), "columns": list(columns)}
    values = array("d", torch.cat(list(columns.values())).tolist())
    if sys.byteorder == "big":
        values.byteswap()
    return json.dumps(head).encode() + b"\n" + values.tobytes()


def _read(path: Path, size: int | None) -> Columns | None:
    """What the file holds, unless it was made from a history of another size, or cannot be read."""
    try:
        line, _, content = path.read_bytes().partition(b"\n")
        head = json.loads(line)
        names, points = head["columns"], head["points"]
        if head[HEAD] != FORMAT or size not in (None, head["history"]) or len(content) != 8 * points * len(names):
            return None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    values = array("d", content)
    if sys.byteorder == "big":
        values.byteswap()
    return dict(zip(names, torch.frombuffer(values, dtype=torch.float64).reshape(len(names), points), strict=True))
