"""The checkpoint of a trial, written in one move and loaded back before it is relied on."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import pickle
import warnings
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import torch

from trainonce.study import layout

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """Where an interrupted trial goes on. ``random`` holds the random states of each process that trains it."""

    rule: Mapping[str, Any]
    steps: int  # of the optimizer
    iteration: int  # of the loop
    total: int  # its length
    reports: Sequence[tuple[int, Mapping[str, float]]]
    seconds: float
    state: Mapping[str, Any]
    random: Sequence[Mapping[str, Any]] = ()


def write_checkpoint(folder: Path, content: Checkpoint, *, check: bool) -> bool:
    """Replace the checkpoint in one move: a kill leaves the old one or the new one.

    :param check: Whether to load it back first. An entry that could not be loaded is an error, and the old one stays.
    :return: Whether it was written; a full disk is a warning.
    """
    beside = folder / f"{layout.CHECKPOINT}.part"
    try:
        torch.save({field.name: getattr(content, field.name) for field in dataclasses.fields(content)}, beside)
        if check:
            _load(beside)
        os.replace(beside, folder / layout.CHECKPOINT)
    except Exception as error:
        with contextlib.suppress(OSError):
            beside.unlink()
        if not isinstance(error, OSError) and (entry := _unloadable(content.state, "state")) is not None:
            raise _refusal(*entry) from None
        if not isinstance(error, (OSError, RuntimeError)):  # torch raises a RuntimeError for a full disk
            raise
        warnings.warn(
            f"A checkpoint could not be written to {folder}: {error}. The training goes on; interrupted now, it would "
            "start from the last one.",
            stacklevel=3,
        )
        return False
    return True


def read_checkpoint(folder: Path) -> Checkpoint | None:
    """The checkpoint in a trial's folder, if there is one that can be read."""
    path = folder / layout.CHECKPOINT
    if not path.is_file():
        return None
    try:
        return Checkpoint(**_load(path))
    except (OSError, RuntimeError, EOFError, LookupError, TypeError, ValueError, pickle.UnpicklingError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)  # an empty file has no text
        warnings.warn(f"The checkpoint {path} cannot be read, and the trial starts anew: {reason}", stacklevel=3)
        return None


def _load(file: Path | io.BytesIO) -> Any:
    return torch.load(file, map_location="cpu", weights_only=True)


# What can be kept


DICTS, LISTS = {dict, OrderedDict}, {list, tuple, set, frozenset}


def kinds(container: Any) -> set[type]:
    """The types of all keys and values within a plain dict, list, tuple or set, and those inside it, at any depth.

    >>> sorted(kind.__name__ for kind in kinds({"step": 3, "losses": [0.5, (None, 0.25)]}))
    ['NoneType', 'float', 'int', 'str']
    """
    plain = DICTS | LISTS
    contents = [*container, *container.values()] if type(container) in DICTS else container
    found = {*map(type, contents)}
    inner = [content for content in contents if type(content) in plain] if found & plain else []
    return (found - plain).union(*map(kinds, inner))


def _entries(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The same keys and values, each with its path."""
    if type(value) in DICTS:
        for key, content in value.items():
            yield f"the key {key!r} of {path}", key
            yield from _entries(content, f'{path}["{key}"]' if isinstance(key, str) else f"{path}[{key!r}]")
    elif type(value) in LISTS:
        for index, content in enumerate(value):
            yield from _entries(content, f"{path}[{index}]")
    else:
        yield path, value


def _unloadable(state: Mapping[str, Any], name: str) -> tuple[str, Any] | None:
    """The first entry that torch does not load from a file with ``weights_only``, and its path."""
    for path, value in _entries(state, name):
        if type(value) in (torch.Tensor, torch.nn.Parameter):
            continue
        try:
            file = io.BytesIO()
            torch.save(value, file)
            file.seek(0)
            _load(file)
        except Exception:
            return path, value
    return None


def _refusal(path: str, value: Any) -> TypeError:
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    instead = "its tolist()" if hasattr(value, "tolist") else "what it consists of"
    return TypeError(
        f"trial.loop cannot keep {path}, of type {name}, because a checkpoint holds tensors, numbers, text, and dicts "
        f"and lists of them: let its state_dict return {instead}."
    )


# What it has cost


def write_spent(folder: Path, fraction: float, seconds: float) -> None:
    """Note what a trial has cost that no record counts yet: a checkpoint that cannot be used must not hide it."""
    beside = folder / f"{layout.SPENT}.part"
    with contextlib.suppress(OSError):  # a full disk, of which the checkpoint has warned
        beside.write_text(json.dumps({"fraction": fraction, "seconds": seconds}), encoding="utf-8")
        os.replace(beside, folder / layout.SPENT)


def read_spent(folder: Path) -> tuple[float, float]:
    """What a trial has cost that no record counts: a part of a full training, and seconds."""
    try:
        content = json.loads((folder / layout.SPENT).read_bytes())
        return float(content["fraction"]), float(content["seconds"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0.0, 0.0
