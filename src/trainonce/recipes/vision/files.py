"""Files on disk or in a zip archive: where they are, listing them, decoding images.

Errors are one sentence: the file, the rule, what was found, what to do.
"""

from __future__ import annotations

import functools
import io
import os
import re
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from trainonce.extras import require

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


# Where files are


def data_root(given: str) -> str:
    """The folder of the data: as given, or from the environment variable ``TRAINONCE_DATA``."""
    root = given or os.environ.get("TRAINONCE_DATA", "")
    if not root:
        raise FileNotFoundError("This recipe reads data: give its folder with --data-root, or in TRAINONCE_DATA.")
    return root


class Place(NamedTuple):
    """A file on disk, or a member of a zip archive on disk."""

    path: str
    member: str = ""

    def __str__(self) -> str:
        return f"{self.path}/{self.member}" if self.member else self.path

    def read(self) -> bytes:
        if not self.member:
            return Path(self.path).read_bytes()
        return open_archive(self.path).read(self.member)


def open_archive(path: str) -> zipfile.ZipFile:
    """The open archive. Every process opens its own: a forked handle shares its position in the file."""
    return _open_archive(path, os.getpid())


@functools.lru_cache(maxsize=8)
def _open_archive(path: str, process: int) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except zipfile.BadZipFile as error:
        raise ValueError(f"{path} is not a whole zip archive ({error}). Download or copy it again.") from None


def list_files(folder: Path, suffix: str) -> dict[str, Place]:
    """The files below a folder with a suffix, by their relative path, sorted; hidden ones are left out."""
    found = {
        path.relative_to(folder).as_posix(): Place(str(path)) for path in _below(folder) if path.name.endswith(suffix)
    }
    return {name: found[name] for name in sorted(found) if not is_hidden(name)}


def _below(folder: Path) -> Iterator[Path]:
    """All files below a folder, also below links to folders, each folder once."""
    seen = set()
    for place, folders, names in os.walk(folder, followlinks=True):
        where = os.path.realpath(place)
        if where in seen:  # a link that leads back
            folders.clear()
            continue
        seen.add(where)
        yield from (Path(place, name) for name in names)


def is_hidden(name: str) -> bool:
    """Whether the file or a folder in its path is hidden or left behind by an operating system."""
    return any(part.startswith((".", "__MACOSX")) for part in name.split("/"))


def find_home(root: str | os.PathLike[str], names: Sequence[str], inside: str) -> Path:
    """The folder of a data set: ``root``, or the folder in it with one of the data set's names.

    :param inside: A sub-folder by which it is recognised.
    """
    root = Path(root)
    for folder in (root, *(root / name for name in names)):
        if _subfolder(folder, inside):
            return folder
    raise ValueError(f"{names[-1]} is expected in a folder with the sub-folder {inside!r}; {_instead(root, inside)}")


def find_subfolder(folder: Path, name: str) -> Path:
    """The sub-folder, also where an archive's own folder, such as ``gt_trainval``, is around it."""
    found = _subfolder(folder, name)
    if found is None:
        raise ValueError(f"{folder} must hold the sub-folder {name!r}; {_instead(folder, name)}")
    return found


def _subfolder(folder: Path, name: str) -> Path | None:
    around = sorted(folder.glob(f"{name}*/{name}")) if folder.is_dir() else []
    return next((path for path in (folder / name, *around) if path.is_dir()), None)


def _instead(folder: Path, name: str) -> str:
    """What the folder holds in place of a missing sub-folder, and how to fix it."""
    text = contents(folder)
    if not folder.is_dir():
        return text
    archives = sorted(path.name for path in folder.glob(f"{name}*.zip"))
    if archives:
        return f"{text} Unpack {archives[0]} there."
    above = next((path.parent for path in (folder, *folder.parents) if path.name == name), None)
    if above is not None:
        return f"{text} Name the folder above {name!r}: {above}."
    below = sorted(folder.glob(f"*/{name}"))
    return f"{text} Name {below[0].parent}." if below else text


def contents(folder: Path, most: int = 6) -> str:
    """What a folder holds, as a sentence."""
    if folder.is_file():
        return f"{folder} is a file."
    if not folder.is_dir():
        return f"there is no folder {folder}."
    names = sorted(path.name + "/" * path.is_dir() for path in folder.iterdir() if not is_hidden(path.name))
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{folder} holds {', '.join(names[:most])}{more}." if names else f"{folder} is empty."


# Images


def decode(place: Place, kind: str) -> Any:
    """The decoded Pillow image; an error names the file.

    :param kind: What to call the file in the error.
    """
    pillow = require("PIL.Image", "Pillow", "vision")
    try:
        image = pillow.open(io.BytesIO(place.read()))
        image.load()
    except MemoryError:
        raise
    except Exception as error:  # which ones a damaged file raises depends on its format
        reason = re.sub(r" <_io\.BytesIO.*?>", "", " ".join(str(error).split())) or type(error).__name__
        raise ValueError(f"The {kind} {place} cannot be read ({reason}). Copy or unpack it again.") from error
    return image


def pixels(image: Any) -> Tensor:
    """uint8, (height, width) or (height, width, channels)."""
    flat = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
    channels = len(image.getbands())
    return flat.view(image.height, image.width, *([channels] if channels > 1 else []))
