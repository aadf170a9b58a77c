"""The record of a trial, and how it is written as JSON and read back."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch

import trainonce
from trainonce.study.rules import Rule, ratios_of, read_rule

Status = Literal["done", "paused", "diverged", "failed"]

#: Of records and manifests. It is raised when an older trainonce could not read what is written, or would misread it.
FORMAT = 4

#: In the record of a search's trial that failed before it had weights.
UNKNOWN = Rule("FixedLoss", {"weights": []})


class OtherFormatError(Exception):
    """Something was written by another trainonce; the text completes a sentence that begins with its place."""

    def __init__(self, found: int) -> None:
        which, fix = ("a newer", "Update it") if found > FORMAT else ("an older", "Compare in a new folder")
        super().__init__(f"was written by {which} trainonce (format {found}; this one reads format {FORMAT}). {fix}.")


def check_format(found: Any) -> None:
    """Raise if a record or a manifest is of another format than this trainonce reads."""
    if found != FORMAT:
        raise OtherFormatError(found)


@dataclasses.dataclass(frozen=True)
class Record:
    """What is known of a trial that ended.

    ``coefficients`` are what multiplied each raw loss at the end, base first.
    ``paused``: it can go on; its metrics are those after the part ``until`` of the training.
    ``diverged``: it ended with a metric that is not finite, which counts as its result. ``failed``: it raised, or its
    process died; it will be run again.
    """

    key: str
    task: str
    rule: Rule
    seed: int
    status: Status
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)
    reports: Sequence[tuple[int, Mapping[str, float]]] = ()
    coefficients: Sequence[float] = ()
    seconds: float = 0.0
    fraction: float = 1.0
    until: float = 1.0
    ended: float = 0.0
    device: str = "cpu"
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    warnings: Sequence[str] = ()
    error: Mapping[str, str] | None = None

    @property
    def ratios(self) -> tuple[float, ...]:
        """The coefficients relative to the base's, which is 1; infinite or 0 where the base has 0."""
        return ratios_of(self.coefficients)

    def to_json(self) -> dict[str, Any]:
        plain = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "rule"}
        return {"format": FORMAT, **plain, "rule": self.rule.to_json()}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Record:
        """Read the record that a line of the store holds."""
        check_format(content["format"])
        known = {field.name: content[field.name] for field in dataclasses.fields(cls) if field.name in content}
        known["rule"] = read_rule(content["rule"])
        if known["status"] == "pruned":  # by a search of an earlier version
            known |= {"status": "paused", "until": known["fraction"]}
        known["reports"] = tuple((step, _numbers(values)) for step, values in content.get("reports", ()))
        known["metrics"] = _numbers(content.get("metrics", {}))
        known["coefficients"] = tuple(float(c) for c in content.get("coefficients", ()))
        return cls(**known)


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items()}


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
