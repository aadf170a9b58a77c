"""The record of a trial, and how it is written as JSON and read back, also from older formats."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import torch

import trainonce
from trainonce.study.weightings import Final, Fixed, Halved, Learned, Replay, Weighting
from trainonce.study.weightings.peers import Peer

Status = Literal["done", "pruned", "diverged", "failed"]

#: Of records and manifests. It is raised when an older trainonce could not read what is written, or would misread it.
#: 2: keys leave out what has its default value; the presets are called ``paper`` and ``softplus``.
FORMAT = 2

#: Of what format 2 has no place for: a manifest that leaves out the points of large grids; points in gradient units.
NEWEST = 3

#: What format 1 called the presets.
FORMER_PRESETS = {"printed": "paper", "consistent": "softplus"}

#: In the record of a search's trial that failed before it had weights.
UNKNOWN = Fixed(())


class NewerFormatError(Exception):
    """Something was written by a newer trainonce; the text completes a sentence that begins with its place."""

    def __init__(self, found: int) -> None:
        super().__init__(
            f"was written by a newer trainonce (format {found}; this one reads up to {NEWEST}). Update trainonce to "
            "read it."
        )


def check_format(found: Any) -> None:
    """Raise if a record or a manifest is of a format that this trainonce does not know."""
    if found > NEWEST:
        raise NewerFormatError(found)


def format_of(points: Iterable[Mapping[str, Any]]) -> int:
    """The format in which these weightings can be written."""
    return NEWEST if any("units" in point or "units" in point.get("of", {}) for point in points) else FORMAT


@dataclasses.dataclass(frozen=True)
class Record:
    """What is known of a trial that ended.

    ``total`` is what the weights summed to before they were divided by it; some peers, and gradient units, have
    another than 1.
    ``answers``: what the rounds of halving found, as :class:`trainonce.halving.Answer` has it.
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
    total: float = 1.0
    seconds: float = 0.0
    fraction: float = 1.0
    ended: float = 0.0
    device: str = "cpu"
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    warnings: Sequence[str] = ()
    answers: Sequence[Mapping[str, Any]] = ()
    error: Mapping[str, str] | None = None

    def to_json(self) -> dict[str, Any]:
        left_out = {"weighting", *(() if self.answers else ("answers",))}
        plain = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in left_out}
        point = self.weighting.to_json()
        return {"format": format_of([point]), **plain, "point": point}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Record:
        """The record that a line of the store holds, of this format or an older one."""
        check_format(content["format"])
        known = {field.name: content[field.name] for field in dataclasses.fields(cls) if field.name in content}
        known["weighting"] = read_weighting(content["point"])
        known["reports"] = tuple((step, _numbers(values)) for step, values in content.get("reports", ()))
        known["metrics"] = _numbers(content.get("metrics", {}))
        known["weights"] = tuple(float(w) for w in content.get("weights", ()))
        known["total"] = float(content.get("total", 1.0))
        return cls(**known)


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items()}


def read_weighting(content: Mapping[str, Any]) -> Weighting:
    """The weighting that a record or a manifest holds under ``"point"``."""
    fields = {key: value for key, value in content.items() if key != "kind"}
    match content["kind"]:
        case "fixed":
            return Fixed(tuple(fields["weights"]))
        case "learned":
            return _read_learned(fields)
        case "halving":
            return Halved(**fields)
        case "replay":
            return Replay(_read_learned(fields["of"]))
        case "final":
            return Final(_read_learned(fields["of"]))
        case "peer":
            return Peer(**fields)
        case other:
            raise ValueError(f"unknown kind of weighting {other!r}")


def _read_learned(fields: Mapping[str, Any]) -> Learned:
    preset = fields.get("preset", Learned.preset)
    return Learned(**{**fields, "preset": FORMER_PRESETS.get(preset, preset)})


def versions() -> dict[str, str]:
    """The versions that a record names."""
    return {"trainonce": trainonce.__version__, "torch": str(torch.__version__)}


def as_json(value: Any) -> Any:
    """The value as JSON can hold it: numbers that are not finite become words, which any reader of JSON takes."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(k): as_json(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(v) for v in value]
    return value
