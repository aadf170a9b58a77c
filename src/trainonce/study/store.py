"""The store of a study: a folder with one line per finished trial, written so that no crash spoils what is there.

::

    trials.jsonl     one line per trial that ended, appended and synced to disk
    study.json       the task and the plans, for the report
    claims           empty; byte ranges of it are locked by the processes that are running a trial
    trials/KEY/      a trial's own folder: history.jsonl, what the task saves
    logs/KEY.txt     what it printed

A trial is known by its key, a hash of the task's source and settings, the point and the seed. A lock is the operating
system's and ends with its process, so a killed run leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from trainonce.study.weightings import Final, Fixed, Learned, Replay, Weighting
from trainonce.study.weightings.peers import Peer

try:
    import fcntl
except ImportError:  # pragma: no cover
    raise ImportError(
        "A study locks its folder with fcntl, which this system lacks: use Linux, macOS or WSL."
    ) from None

Status = Literal["done", "pruned", "diverged", "failed"]
FORMAT = 1
MANIFEST = 1 << 61  # the byte of the claims that stands for the manifest; trials have the first 2 ** 60


class DamagedStore(UserWarning):
    """A line of the store could not be read."""


@dataclasses.dataclass(frozen=True)
class Record:
    """What is known of a trial that ended.

    ``diverged``: it ended with a metric that is not finite, which counts as its result. ``failed``: it raised, or its
    process died; it will be run again.
    """

    key: str
    task: str
    weighting: Weighting
    seed: int
    status: Status
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)
    reports: Sequence[tuple[int, Mapping[str, float]]] = ()
    weights: Sequence[float] = ()
    seconds: float = 0.0
    fraction: float = 1.0
    ended: float = 0.0
    device: str = "cpu"
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    warnings: Sequence[str] = ()
    error: Mapping[str, str] | None = None

    def to_json(self) -> dict[str, Any]:
        plain = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "weighting"}
        return {"format": FORMAT, **plain, "point": self.weighting.to_json()}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Record:
        known = {field.name: content[field.name] for field in dataclasses.fields(cls) if field.name in content}
        known["weighting"] = read_weighting(content["point"])
        known["reports"] = tuple((step, _numbers(values)) for step, values in content.get("reports", ()))
        known["metrics"] = _numbers(content.get("metrics", {}))
        known["weights"] = tuple(float(w) for w in content.get("weights", ()))
        return cls(**known)


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items()}


def read_weighting(content: Mapping[str, Any]) -> Weighting:
    """The point that a record or a manifest holds."""
    fields = {key: value for key, value in content.items() if key != "kind"}
    match content["kind"]:
        case "fixed":
            return Fixed(tuple(fields["weights"]))
        case "learned":
            return Learned(**fields)
        case "replay":
            return Replay(Learned(**fields["of"]))
        case "final":
            return Final(Learned(**fields["of"]))
        case "peer":
            return Peer(**fields)
        case other:
            raise ValueError(f"unknown kind of point {other!r}")


class Store:
    """The folder of a study.

    :param path: Made if it is not there; one sentence if it cannot be.
    :param writable: Whether anything will be written; a folder that is only read may be read-only.
    """

    def __init__(self, path: str | os.PathLike[str], *, writable: bool = True) -> None:
        self.shown = Path(path)  # as it was given, for messages
        self.path = self.shown.absolute()  # the task may change the working directory
        self.trials, self.manifest, self.claims = (
            self.path / name for name in ("trials.jsonl", "study.json", "claims")
        )
        if not writable:
            return
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with self.trials.open("ab"), self.claims.open("ab"):
                pass
        except OSError as error:
            raise OSError(
                f"The folder {self.shown} cannot be written: {error.strerror}. Choose another with --out."
            ) from None

    def folder(self, key: str) -> Path:
        """The folder of a trial."""
        return self.path / "trials" / key

    def log(self, key: str) -> Path:
        """What a trial printed."""
        return self.path / "logs" / f"{key}.txt"

    # Records

    def read(self) -> dict[str, Record]:
        """The last record of every trial."""
        return {record.key: record for record in self.read_all()}

    def read_all(self) -> list[Record]:
        """All records in the order of their writing, also of failures that a later record of the trial replaces.

        A line that cannot be read is named in a warning; its trial runs again.
        """
        found, bad = [], []
        content = self.trials.read_bytes() if self.trials.exists() else b""
        *lines, _ = content.split(b"\n")  # behind the last newline: nothing, or a line being written
        for number, line in enumerate(lines, start=1):
            try:
                record = Record.from_json(json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError):
                bad.append(number)
                continue
            found.append(record)
        if bad:
            warnings.warn(
                f"{self.trials}: line {', '.join(map(str, bad))} cannot be read. What it held is lost and its trial "
                "will run again; all other trials are kept.",
                DamagedStore,
                stacklevel=2,
            )
        return found

    def append(self, record: Record) -> None:
        """Add a record: wholly or not at all, and on the disk when this returns."""
        line = json.dumps(_speakable(record.to_json()), allow_nan=False).encode() + b"\n"
        try:
            with self.trials.open("r+b", buffering=0) as file, _locked(file.fileno()):
                end = _end_of_lines(file.fileno())
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
    def claim(self, key: str) -> Iterator[bool]:
        """Whether this process may run the trial. While it may, no other process may."""
        offset = int(key[:15], 16)
        with self.claims.open("r+b", buffering=0) as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, offset)
            except OSError:
                yield False
                return
            yield True

    # The manifest

    def read_manifest(self) -> dict[str, Any] | None:
        """What the study is about, or None in a new store."""
        try:
            content = json.loads(self.manifest.read_bytes())
            if content["format"] > FORMAT:
                raise ValueError(f"{self.manifest} was written by a newer trainonce. Update trainonce to read it.")
        except FileNotFoundError:
            return None
        except (json.JSONDecodeError, KeyError, TypeError):
            raise ValueError(
                f"{self.manifest} is damaged. Delete it and repeat the command that made the study; trials are kept."
            ) from None
        return dict(content)

    @contextlib.contextmanager
    def changing_manifest(self) -> Iterator[None]:
        """While it is read and written, no other process changes it."""
        with self.claims.open("r+b", buffering=0) as file:
            fcntl.lockf(file, fcntl.LOCK_EX, 1, MANIFEST)
            yield

    def write_manifest(self, content: Mapping[str, Any]) -> None:
        """Replace the manifest in one move."""
        partial = self.manifest.with_suffix(f".part{os.getpid()}")
        try:
            partial.write_text(json.dumps({"format": FORMAT, **content}, indent=1) + "\n", encoding="utf-8")
            partial.replace(self.manifest)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise OSError(
                f"{self.manifest} cannot be written: {error.strerror}. Choose another folder with --out."
            ) from None


@contextlib.contextmanager
def _locked(descriptor: int) -> Iterator[None]:
    fcntl.lockf(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.lockf(descriptor, fcntl.LOCK_UN)


def _end_of_lines(descriptor: int, block: int = 1 << 16) -> int:
    """Where the last complete line ends."""
    end = os.fstat(descriptor).st_size
    while end:
        start = max(0, end - block)
        newline = os.pread(descriptor, end - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


def _speakable(value: Any) -> Any:
    """JSON has no NaN; the words keep the file readable by any reader."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(k): _speakable(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_speakable(v) for v in value]
    return value
