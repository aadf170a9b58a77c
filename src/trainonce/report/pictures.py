"""Pictures that trials saved: PNG files in ``trial.dir / "pictures"``, embedded in the page.

The page shows those of the first rule and of the reference, for a seed that both have. It names a file that cannot
be shown. Nothing outside a trial's own folder is read.
"""

from __future__ import annotations

import base64
import zlib
from typing import TYPE_CHECKING, NamedTuple

from trainonce.report import markup, numbers
from trainonce.report.drawing import plans
from trainonce.study import layout

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from trainonce.study.record import Record
    from trainonce.study.store import Store
    from trainonce.study.summary import Row, Summary

FOLDER = layout.PICTURES
SHOWN = 4  # pictures of a trial
LIMIT = 2_000_000  # bytes of a file
AREA = 50_000_000  # pixels; a browser needs four bytes for each
SIGNATURE = b"\x89PNG\r\n\x1a\n"


class UnusableError(ValueError):
    """A picture cannot be shown; the message says why."""


class Picture(NamedTuple):
    """A file's content, and its size in pixels."""

    content: bytes
    width: int
    height: int


class Album(NamedTuple):
    """The pictures of a trial by name, and a note on each that cannot be shown."""

    pictures: Mapping[str, Picture]
    notes: Sequence[str]


def section(summary: Summary, store: Store) -> str:
    """Return the pictures with their captions; empty if no trial saved any."""
    rows = [row for row in (*plans.rules(summary)[:1], summary.reference) if row is not None]
    chosen = [
        (row, record, found) for row, (record, found) in zip(rows, choose_trials(rows, store), strict=True) if record
    ]
    names = sorted({name for _, _, found in chosen for name in found.pictures})
    shown = [
        _figure(name, found.pictures[name], _title(summary, row, record))
        for name in names
        for row, record, found in chosen
        if name in found.pictures
    ]
    notes = [f"{row.plan}, seed {record.seed}: {note}." for row, record, found in chosen for note in found.notes]
    grid = f'<div class="figures">{"".join(shown)}</div>' if shown else ""
    return grid + markup.paragraph(" ".join(notes), "quiet")


def choose_trials(rows: Sequence[Row], store: Store) -> list[tuple[Record | None, Album]]:
    """Return for each row the trial to show: of the lowest seed that all have, or else of the lowest that it has.

    Very many seeds may have pictures, so no more of them are read than it takes to find it.
    """
    folders = [
        {s: folder for s, r in sorted(row.chosen.records.items()) if list_pictures(folder := store.folder(r.key))}
        for row in rows
    ]
    first = [next((s for s, folder in of_row.items() if read_album(folder).pictures), None) for of_row in folders]
    having = [of_row for of_row, seed in zip(folders, first, strict=True) if seed is not None]
    shared = sorted(set.intersection(*map(set, having))) if having else []
    common = next((s for s in shared if all(read_album(of_row[s]).pictures for of_row in having)), None)
    shown: list[tuple[Record | None, Album]] = []
    for row, of_row, own in zip(rows, folders, first, strict=True):
        seed = min(of_row, default=None) if own is None else own if common is None else common
        shown.append((None, Album({}, ())) if seed is None else (row.chosen.records[seed], read_album(of_row[seed])))
    return shown


def list_pictures(folder: Path) -> list[Path]:
    """Return the files in a trial's folder that should be pictures; none of them is read."""
    try:
        return sorted(p for p in (folder / FOLDER).iterdir() if p.suffix == ".png" and not p.name.startswith("."))
    except OSError:
        return []


def read_album(folder: Path) -> Album:
    """Return the pictures in a trial's folder."""
    paths = list_pictures(folder)
    pictures, notes = {}, []
    for path in paths[:SHOWN]:
        name = path.stem.encode("utf-8", "replace").decode()  # a file name need not be valid UTF-8
        try:
            pictures[name] = read_picture(path, folder)
        except UnusableError as error:
            notes.append(f"{name} is left out, {error}")
    if len(paths) > SHOWN:
        notes.append(f"{len(paths) - SHOWN} more not shown")
    return Album(pictures, notes)


def read_picture(path: Path, folder: Path) -> Picture:
    """Return a PNG file within the folder."""
    try:
        if not path.resolve(strict=True).is_relative_to(folder.resolve(strict=True)):
            raise UnusableError("it leads out of the trial's folder")
        if not path.is_file():
            raise UnusableError("it is not a file")
        with path.open("rb") as file:
            content = file.read(LIMIT + 1)
    except (OSError, RuntimeError):  # RuntimeError: links in a circle
        raise UnusableError("it cannot be read") from None
    if len(content) > LIMIT:
        raise UnusableError(f"it has more than {LIMIT // 1_000_000} MB")
    width, height = png_size(content)
    if width * height > AREA:
        raise UnusableError(f"it has {width} x {height} pixels")
    return Picture(content, width, height)


def png_size(content: bytes) -> tuple[int, int]:
    """Width and height of a complete PNG file.

    >>> png_size(b"GIF89a")
    Traceback (most recent call last):
    trainonce.report.pictures.UnusableError: it is not a PNG file
    """
    if not content.startswith(SIGNATURE):
        raise UnusableError("it is not a PNG file")
    at, kinds = len(SIGNATURE), []
    while at + 12 <= len(content):
        end = at + 8 + int.from_bytes(content[at : at + 4])
        if zlib.crc32(content[at + 4 : end]) != int.from_bytes(content[end : end + 4]):
            break
        kinds.append(content[at + 4 : at + 8])
        at = end + 4
        if kinds[-1] == b"IEND":
            break
    width, height = int.from_bytes(content[16:20]), int.from_bytes(content[20:24])
    if kinds[:1] != [b"IHDR"] or kinds[-1] != b"IEND" or b"IDAT" not in kinds or not width * height:
        raise UnusableError("it is damaged")
    return width, height


def _title(summary: Summary, row: Row, record: Record) -> str:
    task, plan = summary.task, row.plan if row is not summary.reference else f"best of {row.plan}"
    value = numbers.number(record.metrics[task.report_key], numbers.decimal_places(summary))
    unit = f" {task.unit}" if task.unit else ""
    return f"{plan}, {record.rule.label}, seed {record.seed}: {task.report} {task.metric} {value}{unit}"


def _figure(name: str, picture: Picture, title: str) -> str:
    source = f"data:image/png;base64,{base64.b64encode(picture.content).decode()}"
    size, caption = f'width="{picture.width}" height="{picture.height}"', markup.escape(f"{name}: {title}")
    image = f'<img src="{source}" {size} loading="lazy" alt="{caption}">'
    return f'<figure class="picture">{image}<figcaption>{caption}</figcaption></figure>'
