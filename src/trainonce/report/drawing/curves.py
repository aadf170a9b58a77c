"""Curves from the histories of trials: averaged over neighbouring steps and over the seeds, with the seeds' range."""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from trainonce.report.drawing.log_axis import LogScale
from trainonce.study import layout
from trainonce.study.store import curves as thinned

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainonce.study.record import Record
    from trainonce.study.store.curves import Columns
    from trainonce.study.summary import Outcome, Summary

KEPT = 1024  # thinned histories, so that the figures of a plan read them once; each has some 40 kB

#: A trial's folder, and when its history and the thinned copy were written, with their sizes: they are read once.
States = tuple[Path, tuple[int, int], tuple[int, int]]


class Curve(NamedTuple):
    """A quantity over steps: its mean over the seeds, and the lowest and the highest of them."""

    steps: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]
    seeds: int


def read_history(summary: Summary, record: Record) -> Columns | None:
    """Return the columns of a trial's history, each value the mean of some steps; None where there is none."""
    return None if summary.path is None else _read(_states(summary, record))


@functools.lru_cache(maxsize=KEPT)
def _read(states: States) -> Columns | None:
    return thinned.read(states[0])


def _states(summary: Summary, record: Record) -> States:
    assert summary.path is not None
    folder = Path(summary.path) / layout.TRIALS / record.key
    return folder, _state(folder / layout.HISTORY), _state(folder / layout.CURVES)


def _state(path: Path) -> tuple[int, int]:
    """Return what changes with a file."""
    try:
        found = path.stat()
    except OSError:
        return 0, -1
    return found.st_mtime_ns, found.st_size


def read_histories(summary: Summary, outcome: Outcome) -> list[Columns]:
    """Return the histories of an outcome, one for each seed that has one."""
    found = [read_history(summary, record) for _, record in sorted(outcome.records.items())]
    return [columns for columns in found if columns is not None]


def moved(summary: Summary, outcome: Outcome, columns: str) -> bool:
    """Return whether a column of that beginning is anywhere not 0."""
    runs = read_histories(summary, outcome)
    return any(bool(v.nan_to_num().any()) for run in runs for name, v in run.items() if name.startswith(columns))


def loss_curve(summary: Summary, outcome: Outcome, term: str) -> Curve | None:
    """Return one term's loss over steps. The histories of an outcome are read once for all terms."""
    records = sorted(outcome.records.items())
    states = tuple(_states(summary, record) for _, record in records) if summary.path is not None else ()
    return _loss_curves(states, summary.task.terms)[term] if states else None


@functools.lru_cache(maxsize=KEPT // 4)
def _loss_curves(states: tuple[States, ...], terms: tuple[str, ...]) -> dict[str, Curve | None]:
    """Return the losses of some trials: four lists of at most 250 numbers for each term."""
    runs = [columns for state in states if (columns := thinned.read(state[0])) is not None]
    return {term: curve(runs, f"loss/{term}") for term in terms}


def curve(runs: Sequence[Mapping[str, Tensor]], column: str) -> Curve | None:
    """Return a column over steps, up to the last step that all seeds reached."""
    runs = [run for run in runs if column in run]
    if not runs:
        return None
    steps = min((run["step"] for run in runs), key=lambda steps: float(steps[-1]))
    return aggregate([_interpolate(run["step"], run[column], steps) for run in runs], steps.tolist())


def ratios(runs: Sequence[Columns], terms: Sequence[str]) -> list[Columns]:
    """Return ``ratio/x`` of each auxiliary term: the coefficient over the base's, infinite or 0 where that is 0.

    Before the first that is above 0, as in a balance that has measured nothing yet, they are NaN.
    """
    base, *rest = [f"coefficient/{term}" for term in terms]
    known = [run for run in runs if base in run]
    found = []
    for run in known:
        of_run = {name: _from_first(torch.where(run[name] == 0, 0.0, run[name] / run[base])) for name in rest}
        found.append({"step": run["step"]} | {name.replace("coefficient", "ratio", 1): v for name, v in of_run.items()})
    return found


def _from_first(values: Tensor) -> Tensor:
    started = (values > 0).cumsum(0) > 0
    return torch.where(started, values, math.nan) if started.any() else values


def log_curves(runs: Sequence[Columns], columns: Mapping[str, str]) -> tuple[dict[str, Curve], LogScale]:
    """Return columns over steps in places on a logarithmic axis, and that axis; 0 and infinity have their own.

    :param columns: For each name of a curve its column.
    """
    scale = LogScale(v for run in runs for column in columns.values() if column in run for v in run[column].tolist())
    placed = [
        run | {column: _place(run[column], scale) for column in columns.values() if column in run} for run in runs
    ]
    found = {name: curve(placed, column) for name, column in columns.items()}
    return {name: line for name, line in found.items() if line is not None}, scale


def _place(values: Tensor, scale: LogScale) -> Tensor:
    return torch.tensor([scale(value) for value in values.tolist()], dtype=torch.float64)


def aggregate(values: Sequence[Tensor], steps: Sequence[float]) -> Curve:
    """Return the curve of several seeds' values, one tensor for each."""
    rows = torch.stack(list(values))
    filled = rows.isfinite()
    low = torch.where(filled, rows, math.inf).amin(0)
    high = torch.where(filled, rows, -math.inf).amax(0)
    mean = rows.nanmean(0)
    any_seed = filled.any(0)
    low, high = torch.where(any_seed, low, math.nan), torch.where(any_seed, high, math.nan)
    return Curve(list(steps), mean.tolist(), low.tolist(), high.tolist(), len(rows))


def report_curve(summary: Summary, outcome: Outcome) -> Curve | None:
    """Return the selecting metric as the trials reported it during training, at the steps that all seeds reported."""
    metric = summary.task.metric
    runs = [{step: values[metric] for step, values in r.reports if metric in values} for r in outcome.records.values()]
    runs = [run for run in runs if run]
    steps = sorted(set.intersection(*map(set, runs))) if runs else []
    if len(steps) < 2:
        return None
    values = [torch.tensor([run[step] for step in steps], dtype=torch.float64) for run in runs]
    return aggregate(values, [float(step) for step in steps])


def _interpolate(steps: Tensor, values: Tensor, wanted: Tensor) -> Tensor:
    """Return the values at other steps, interpolated linearly, also across NaN; NaN before and after all."""
    known = values.isfinite()
    if known.all() and steps.equal(wanted):
        return values
    steps, values, from_start = steps[known], values[known], bool(known[0])
    if not len(steps):
        return torch.full_like(wanted, math.nan)
    right = torch.searchsorted(steps, wanted).clamp(min(1, len(steps) - 1), len(steps) - 1)
    left = (right - 1).clamp(0)
    span = steps[right] - steps[left]
    part = torch.where(span > 0, (wanted - steps[left]) / span, 0.0).clamp(0, 1)
    found = values[left] * (1 - part) + values[right] * part
    inside = (wanted <= steps[-1]) & (from_start | (wanted >= steps[0]))
    return torch.where(inside, found, math.nan)
