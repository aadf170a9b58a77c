"""The space of weights: the fixed choices, and the paths of learned weights over training."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from trainonce.report.drawing import curves
from trainonce.report.drawing.style import COLOURS, MARKERS, NAME, NothingToDrawError
from trainonce.study.weightings import Fixed
from trainonce.text import shorten

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from trainonce.study.summary import Outcome, Row, Summary


TOP = math.sqrt(3) / 2  # the height of a triangle with sides of 1


def require_auxiliary(summary: Summary, wanted: int, least: bool = False) -> None:
    """Raise unless the task has the wanted number of auxiliary terms, or with ``least`` at least that many."""
    count = len(summary.task.terms) - 1
    if count != wanted and not (least and count >= wanted):
        raise NothingToDrawError(
            f"This figure needs {wanted}{' or more' if least else ''} auxiliary terms; the task has {count}."
        )


def ratios(weights: Sequence[float]) -> list[float]:
    """Each auxiliary weight over the base weight."""
    base, *rest = weights
    return [
        float(f"{w / base:.6g}") if base else math.inf if w else 0.0 for w in rest
    ]  # rounded, so that equal ratios of a grid are equal


def ratio_label(summary: Summary, number: int) -> str:
    """The axis of the ratio of a term's weight to the base weight, in words."""
    base, term = (shorten(summary.task.terms[i], NAME - 2) for i in (0, number))
    return f"weight of {term} / weight of {base}"


def place_in_triangle(weights: Sequence[float]) -> tuple[float, float]:
    """The place of three weights that sum to 1 in the triangle: the base on top, the auxiliary terms left and right."""
    base, _, right = weights
    return right + base / 2, base * TOP


def fixed_choices(summary: Summary) -> list[tuple[Row, Outcome, list[float]]]:
    """Every fixed choice of weights with a result: its row, its outcome, and its ratios to the base."""
    rows = [row for row in summary.rows if row.kind in ("set", "fixed")]
    found = [
        (row, o, ratios(o.weighting.weights)) for row in rows for o in row.outcomes if isinstance(o.weighting, Fixed)
    ]
    return [(row, o, place) for row, o, place in found if o.report]


def paths(summary: Summary) -> list[list[list[float]]]:
    """For each seed of the learned weights, the weights over steps; without a history, only the last weights."""
    row, terms = summary.one_shot, summary.task.terms
    if row is None:
        return []
    found = []
    for record in row.chosen.records.values():
        columns = curves.read_history(summary, record)
        steps = [columns[f"weight/{term}"].tolist() for term in terms] if columns else []
        points = [list(point) for point in zip(*steps, strict=True)]
        found.append([*points, *([list(record.weights)] if record.weights else [])])
    return [path for path in found if path]


def strength(summary: Summary, values: Sequence[float]) -> list[float]:
    """How strongly each value is drawn, from 0 for the worst to 1 for the best; distant failures count as worst."""
    sign = summary.task.sign
    ordered = sorted(sign * v for v in values)
    high, middle = ordered[-1], ordered[len(ordered) // 2]
    low = max(ordered[0], high - 4 * (high - middle)) if high > middle else ordered[0]
    return [min(max((sign * v - low) / (high - low), 0.0), 1.0) if high > low else 1.0 for v in values]


def draw_paths(axes: Axes, paths: Sequence[Sequence[tuple[float, float]]]) -> None:
    """Draw one line per seed, from a ring at the start to a star at the end."""
    colour = COLOURS["learned"]
    for path in paths:
        xs, ys = zip(*path, strict=True)
        axes.plot(xs, ys, color=colour, linewidth=1.6, zorder=3, gid="path")
        if len(path) > 1:
            axes.plot(xs[0], ys[0], "o", color=colour, markerfacecolor="none", markersize=7, zorder=4, gid="start")
        axes.plot(xs[-1], ys[-1], MARKERS["learned"], color=colour, markersize=13, zorder=5, gid="end")
