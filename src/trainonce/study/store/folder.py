"""The folder of a study: its records, its manifest, and the locks of those who work on it."""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainonce.study import layout
from trainonce.study.record import FORMAT, OtherFormatError, Record, as_json, check_format
from trainonce.study.store import curves, lines, locks, plans, workers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

#: The bytes of the claims that stand for something else than a trial; trials have the first 2 ** 60.
MANIFEST_BYTE, RECORDS_BYTE, WORKERS_BYTE, REPORT_BYTE = ((1 << 61) + i for i in range(4))


class DamagedStore(UserWarning):
    """A line of the store could not be read."""


class Store:
    """The folder of a study.

    :param path: Made if it is not there; one sentence if it cannot be.
    :param writable: Whether anything will be written; a folder that is only read may be read-only.
    """

    def __init__(self, path: str | os.PathLike[str], *, writable: bool = True) -> None:
        self.shown = Path(path)  # as given, for messages
        self.path = self.shown.absolute()  # the task may change the working directory
        self.trials, self.manifest, self.claims = (
            self.path / name for name in (layout.RECORDS, layout.MANIFEST, layout.CLAIMS)
        )
        self.joined = ""
        self._read: tuple[tuple[Record, ...], lines.Position] = (), lines.START
        if not writable:
            return
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.trials.open("ab").close()
            if not self.claims.exists():
                self.claims.open("ab").close()
        except OSError as error:
            raise OSError(
                f"The folder {self.shown} cannot be written: {error.strerror}. Choose another with --out."
            ) from None

    def folder(self, key: str) -> Path:
        """The folder of a trial."""
        return self.path / layout.TRIALS / key

    def log(self, key: str) -> Path:
        """What a trial printed."""
        return self.path / layout.LOGS / f"{key}.txt"

    # Records

    def read(self) -> dict[str, Record]:
        """The last record of every trial."""
        return {record.key: record for record in self.read_all()}

    def read_all(self) -> list[Record]:
        """All records in the order of their writing, also of failures that a later record of the trial replaces.

        Only what was written since the last call is read from the disk. A line that cannot be read is named in a
        warning, once; its trial runs again. A line in a newer format is an error.
        """
        known, position = self._read
        found = lines.read(self.trials, position)
        if found.start != position:  # the file was replaced
            known = ()
        self._read = (*known, *found.records), found.end
        if found.damaged:
            warnings.warn(
                f"{self.trials}: line {', '.join(map(str, found.damaged))} cannot be read. What it held is lost and "
                "its trial will run again; all other trials are kept.",
                DamagedStore,
                stacklevel=1,  # a fixed place: Python shows a warning once for each
            )
        return list(self._read[0])

    @property
    def position(self) -> lines.Position:
        """Where the records end that :meth:`read_all` has returned."""
        return self._read[1]

    def read_since(self, start: lines.Position) -> tuple[list[Record], lines.Position]:
        """The records behind a position, and where they end.

        If the file was replaced meanwhile, all its records count as new, but for failures: those may be old ones.
        """
        found = lines.read(self.trials, start)
        replaced = found.start != start
        return [record for record in found.records if not (replaced and record.status == "failed")], found.end

    def find(self, key: str, start: lines.Position) -> Record | None:
        """The last record of a trial among those behind a position."""
        records, _ = self.read_since(start)
        return {record.key: record for record in records}.get(key)

    def append(self, record: Record) -> None:
        """Add a record: wholly or not at all, and on the disk when this returns.

        Before it, the history of a trial that has ended is thinned for the figures: see :mod:`.curves`.
        """
        if record.status != "failed":
            curves.write(self.folder(record.key))
        line = json.dumps(as_json(record.to_json()), allow_nan=False).encode() + b"\n"
        try:
            with self._locked(RECORDS_BYTE), self.trials.open("r+b", buffering=0) as file:
                end = lines.end_of_lines(file.fileno())
                file.truncate(end)  # a writer was killed within its line
                file.seek(end)
                try:
                    written = 0
                    while written < len(line):
                        written += file.write(line[written:])
                    os.fsync(file.fileno())
                except OSError:
                    file.truncate(end)
                    raise
        except OSError as error:
            raise OSError(
                error.errno,
                f"The trial just finished could not be recorded in {self.trials}: {error.strerror}. It is lost and "
                "will run again; all earlier trials are kept",
            ) from None

    # Who runs what

    @contextlib.contextmanager
    def join(self, tell: Callable[[str], None]) -> Iterator[None]:
        """Be one of the workers of the study during the block: see :mod:`.workers`. ``joined`` names its file."""
        with workers.join(self.path / layout.WORKERS, lambda: self._locked(WORKERS_BYTE), tell) as self.joined:
            yield

    @contextlib.contextmanager
    def claim(self, key: str) -> Iterator[bool]:
        """Whether the trial may be run in this block. While it may, no other thread or process may run it."""
        with locks.lock(self.claims, int(key[:15], 16), wait=False) as mine:
            yield mine

    # The manifest

    def read_manifest(self) -> dict[str, Any] | None:
        """What the study is about, or None in a new store."""
        try:
            content = json.loads(self.manifest.read_bytes())
            check_format(content["format"])
            listed = {"plans": [plans.expand(plan) for plan in content["plans"]]} if "plans" in content else {}
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OtherFormatError as error:
            raise ValueError(f"{self.manifest} {error}") from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ValueError(
                f"{self.manifest} is damaged. Delete it and repeat the command that made the study; trials are kept."
            ) from None
        return dict(content) | listed

    def lock_manifest(self) -> contextlib.AbstractContextManager[bool]:
        """While it is read and written, no other thread or process changes it."""
        return self._locked(MANIFEST_BYTE)

    def lock_report(self) -> contextlib.AbstractContextManager[bool]:
        """While one worker writes the page, no other does."""
        return self._locked(REPORT_BYTE)

    def _locked(self, byte: int) -> contextlib.AbstractContextManager[bool]:
        return locks.lock(self.claims, byte, wait=True)

    def write_manifest(self, content: Mapping[str, Any]) -> None:
        """Replace the manifest in one move."""
        partial = self.manifest.with_suffix(f".part{os.getpid()}")
        short = [plans.shorten(plan) for plan in content.get("plans", ())]
        whole = {"format": FORMAT, **{k: v for k, v in content.items() if k != "format"}}
        try:
            partial.write_text(json.dumps(whole | {"plans": short}, indent=1) + "\n", encoding="utf-8")
            partial.replace(self.manifest)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise OSError(
                f"{self.manifest} cannot be written: {error.strerror}. Choose another folder with --out."
            ) from None
