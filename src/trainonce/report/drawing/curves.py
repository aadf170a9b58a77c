"""Curves from the histories of trials: averaged over neighbouring steps and over the seeds, with the seeds' range."""

from __future__ import annotations

import bisect
import functools
import math
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch

from trainonce.history import History
from trainonce.study.weightings import HISTORY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from trainonce.study.store import Record
    from trainonce.study.summary import Outcome, Summary

POINTS = 250  # of a curve, at most

Columns = dict[str, list[float]]


class Curve(NamedTuple):
    """A quantity over steps: its mean over the seeds, and the lowest and the highest of them."""

    steps: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]
    seeds: int


def read_history(summary: Summary, record: Record) -> Columns | None:
    """The columns of a trial's history, each value the mean of some successive steps; None where there is none."""
    if summary.path is None:
        return None
    path = Path(summary.path) / "trials" / record.key / HISTORY
    try:
        state = path.stat()
        return _load(path, state.st_mtime_ns, state.st_size)
    except (OSError, ValueError):
        return None


@functools.lru_cache(maxsize=4096)
def _load(path: Path, changed: int, size: int) -> Columns | None:
    columns = History.load(path).columns()
    steps = torch.tensor(columns.pop("step"), dtype=torch.float64)
    if not len(steps):
        return None
    names = ["step", *columns]
    table = torch.stack([steps, *(torch.tensor(c, dtype=torch.float64) for c in columns.values())])
    table = torch.where(table.isfinite(), table, math.nan)
    part = math.ceil(table.shape[1] / POINTS)
    thin = torch.stack([block.nanmean(1) for block in torch.split(table, part, 1)], 1)
    return dict(zip(names, thin.tolist(), strict=True))


def read_histories(summary: Summary, outcome: Outcome) -> list[Columns]:
    """The histories of an outcome, one for each seed that has one."""
    found = [read_history(summary, record) for _, record in sorted(outcome.records.items())]
    return [columns for columns in found if columns is not None]


def curve(runs: Sequence[Mapping[str, list[float]]], column: str) -> Curve | None:
    """A column over steps, up to the last step that all seeds reached."""
    runs = [run for run in runs if column in run]
    if not runs:
        return None
    shortest = min(runs, key=lambda run: run["step"][-1])
    steps = shortest["step"]
    return aggregate([_interpolate(run["step"], run[column], steps) for run in runs], steps)


def aggregate(values: Iterable[Sequence[float]], steps: Sequence[float]) -> Curve:
    """The curve of several seeds' values, one sequence for each."""
    rows = torch.tensor(list(values), dtype=torch.float64).reshape(-1, len(steps))
    filled = rows.isfinite()
    low = torch.where(filled, rows, math.inf).amin(0)
    high = torch.where(filled, rows, -math.inf).amax(0)
    mean = rows.nanmean(0)
    any_seed = filled.any(0)
    low, high = torch.where(any_seed, low, math.nan), torch.where(any_seed, high, math.nan)
    return Curve(list(steps), mean.tolist(), low.tolist(), high.tolist(), len(rows))


def report_curve(summary: Summary, outcome: Outcome) -> Curve | None:
    """The selecting metric as the trials reported it during training, at the steps that all seeds reported."""
    metric = summary.task.metric
    runs = [{step: values[metric] for step, values in r.reports if metric in values} for r in outcome.records.values()]
    runs = [run for run in runs if run]
    steps = sorted(set.intersection(*map(set, runs))) if runs else []
    return (
        aggregate([[run[step] for step in steps] for run in runs], [float(s) for s in steps])
        if len(steps) > 1
        else None
    )


def _interpolate(steps: Sequence[float], values: Sequence[float], wanted: Sequence[float]) -> list[float]:
    """The values at other steps, by linear interpolation."""
    if steps == wanted:
        return list(values)
    found = []
    for step in wanted:
        right = min(max(bisect.bisect_left(steps, step), 1), len(steps) - 1) if len(steps) > 1 else 0
        left = max(right - 1, 0)
        span = steps[right] - steps[left]
        part = min(max((step - steps[left]) / span, 0.0), 1.0) if span else 0.0
        found.append(values[left] * (1 - part) + values[right] * part)
    return found
