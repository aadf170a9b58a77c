"""The file of the records, one JSON object a line: reading what was appended since the last time."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, NamedTuple

from trainonce.study.record import OtherFormatError, Record

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class Position(NamedTuple):
    """The end of a complete line: how many bytes and lines lie before it, and the inode of the file."""

    offset: int = 0
    lines: int = 0
    inode: int = 0


START = Position()


class Found(NamedTuple):
    """The records between two positions, and the numbers of the lines there that cannot be read."""

    records: list[Record]
    start: Position
    end: Position
    damaged: list[int]


def read(path: Path, since: Position = START) -> Found:
    """The records behind a position, or all of them if the file is no longer the one that the position belongs to.

    A line without its end is still being written, or was torn when its writer was killed: it is left for later.
    """
    found = _parse(path, *_complete_lines(path, since))
    if found.damaged:  # a writer may have replaced a torn line while it was read, so a second look decides
        found = _parse(path, *_complete_lines(path, since))
    return found


def _complete_lines(path: Path, since: Position) -> tuple[list[bytes], Position, Position]:
    """The complete lines behind the position, where they start and where they end."""
    try:
        with path.open("rb", buffering=0) as file:
            inode, start = os.fstat(file.fileno()).st_ino, START
            if since.inode == inode and os.pread(file.fileno(), 1, since.offset - 1) == b"\n":
                start = since
            file.seek(start.offset)
            content = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return [], START, START
    *lines, rest = content.split(b"\n")
    if not lines:
        return [], start, start
    return lines, start, Position(start.offset + len(content) - len(rest), start.lines + len(lines), inode)


def _parse(path: Path, lines: Sequence[bytes], start: Position, end: Position) -> Found:
    records, damaged = [], []
    for number, line in enumerate(lines, start=start.lines + 1):
        try:
            records.append(Record.from_json(json.loads(line)))
        except OtherFormatError as error:
            raise ValueError(f"{path}: line {number} {error}") from None
        except (ValueError, KeyError, TypeError, AttributeError):
            damaged.append(number)
    return Found(records, start, end, damaged)


def end_of_lines(descriptor: int, block: int = 1 << 16) -> int:
    """Where the last complete line ends."""
    end = os.fstat(descriptor).st_size
    while end:
        start = max(0, end - block)
        newline = os.pread(descriptor, block, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0
