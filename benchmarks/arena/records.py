"""The arena's file of records: one line of JSON a training, with which a stopped command goes on."""

from __future__ import annotations

import json
import lzma
import math
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.arena.rules import RULES
from benchmarks.arena.rules.base import complete

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from benchmarks.arena.rules import Point
    from benchmarks.arena.stack import Result, Stack
    from benchmarks.arena.variant import Variant

Record = dict[str, Any]
KEPT = 6  # points of the weights' trajectory, beside the last


def key(record: Record) -> tuple[str, ...]:
    """What a training is: task, variant, rule with settings, seed."""
    settings = json.dumps(record["settings"], sort_keys=True)
    return (record["task"], record["variant"], record["rule"], settings, str(record["seed"]))


def head(task: str, variant: Variant, point: Point, seed: int) -> Record:
    """The part of a record that is known before the training."""
    settings = _written(point) if point.rule in RULES else point.settings
    return {"task": task, "variant": str(variant), "rule": point.rule, "settings": settings, "seed": seed}


def _written(point: Point) -> Record:
    """All settings but those that are switched off, so that a record stays true when a default changes."""
    rule = RULES[point.rule]
    settings = complete(rule.defaults, point.settings, point.rule)
    return {name: value for name, value in settings.items() if rule.off.get(name, ...) != value}


def of_stack(stack: Stack, result: Result, variant: Variant) -> list[Record]:
    """The records of all trainings of a stack."""
    count = len(stack.seeds) * len(stack.points)
    return [
        {
            **head(stack.task.name, variant, point, seed),
            "cost": 1,
            **outcome(result, s, p),
            "seconds": _short(result.seconds / count),
            **machine(stack.device),
        }
        for s, seed in enumerate(stack.seeds)
        for p, point in enumerate(stack.points)
    ]


def outcome(result: Result, s: int, p: int) -> Record:
    """What a training of a stack gave: its scores, its weights and, where they moved, their path."""
    weights = result.weights[s, p]
    found: Record = {
        "curve": [_short(value) for value in result.curve[s, p].tolist()],
        "validation": _short(result.curve[s, p, -1].item(), 6),
        "test": _short(result.test[s, p].item(), 6),
        "weights": [_short(value) for value in weights[-1].tolist()],
        "diverged": not bool(result.finite[s, p]),
    }
    if (weights - weights[-1]).abs().max() > 0:
        found["path"] = [[_short(v, 3) for v in row] for row in _thin(weights[:, 1:].tolist())]
    return found


def machine(device: torch.device) -> dict[str, str]:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    return {"torch": torch.__version__.partition("+")[0], "device": name}


def read(path: Path) -> list[Record]:
    """All whole lines; one that was cut off when a command was stopped is left out."""
    if not path.exists():
        return []
    found = []
    text = lzma.decompress(path.read_bytes()).decode() if path.suffix == ".xz" else path.read_text(encoding="utf-8")
    for line in text.splitlines():
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return found


def append(path: Path, records: Iterable[Record]) -> None:
    """Add lines; a line that was cut off before is ended first, so that it spoils no other."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(record, separators=(",", ":"), allow_nan=False) + "\n" for record in records)
    cut_off = path.exists() and not path.read_bytes().endswith(b"\n") and path.stat().st_size
    with path.open("a", encoding="utf-8") as file:
        file.write(("\n" if cut_off else "") + text)


def _thin(rows: list[Any]) -> list[Any]:
    """Of the weights at all moments but the last at most so many, more of them early, where weights move."""
    places = {int((len(rows) - 1) * (i / KEPT) ** 1.5) for i in range(KEPT)}
    return [rows[i] for i in sorted(places)]


def _short(value: float, digits: int = 4) -> float | None:
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None
