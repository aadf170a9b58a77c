"""The space of ratios: the fixed choices, and the paths of the rules over training."""

from __future__ import annotations

import itertools
import math
import statistics
from typing import TYPE_CHECKING

from trainonce.report.drawing import curves, labels, plans
from trainonce.report.drawing.style import MARKERS, NAME, NothingToDrawError
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


def ratios(coefficients: Sequence[float]) -> list[float]:
    """Return each auxiliary coefficient over the base's; infinity or 0 where the base has 0.

    They are rounded, so that equal ratios of a grid are equal.
    """
    base, *rest = coefficients
    return [float(f"{c / base:.6g}") if base else math.inf if c else 0.0 for c in rest]


def ratio_label(summary: Summary, number: int) -> str:
    """Return the axis of a term's ratio in words."""
    base, term = (shorten(summary.task.terms[i], NAME) for i in (0, number))
    return f"ratio of {term} to {base}"


def place_in_triangle(coefficients: Sequence[float]) -> tuple[float, float]:
    """Return the place of three coefficients in the triangle: the base on top, the auxiliary terms left and right."""
    base, _, right = (c / (math.fsum(coefficients) or 1.0) for c in coefficients)
    return right + base / 2, base * TOP


def fixed_choices(summary: Summary) -> list[tuple[Row, Outcome, list[float]]]:
    """Return every fixed choice of a set with a result: its row, its outcome, and its ratios."""
    every = [(row, o) for row in summary.rows if row.kind == "set" for o in row.outcomes]
    return [(row, o, ratios(o.rule.coefficients)) for row, o in every if o.report and o.rule and o.rule.is_fixed]


def paths(summary: Summary, row: Row) -> list[list[list[float]]]:
    """Return for each seed of a rule the coefficients over steps; without a history, only the last ones."""
    found = []
    for record in row.chosen.records.values():
        columns = curves.read_history(summary, record)
        steps = [columns[f"coefficient/{term}"].tolist() for term in summary.task.terms] if columns else []
        points = [list(point) for point in zip(*steps, strict=True) if all(map(math.isfinite, point))]
        points = list(itertools.dropwhile(lambda point: not all(point), points))  # a balance begins with the base alone
        found.append([*points, *([list(record.coefficients)] if record.coefficients else [])])
    return [path for path in found if path]


def last_places(row: Row) -> list[tuple[float, float]]:
    """Return where the last coefficients of each seed are in the triangle; of several at one place, one."""
    found = [record.coefficients for record in row.chosen.records.values() if record.coefficients]
    return list(dict.fromkeys(map(place_in_triangle, found)))


def last_ratios(outcome: Outcome) -> list[float]:
    """Return the last ratios over the seeds: their geometric means, 0 or infinite where that of a seed is."""
    found = [ratios(record.coefficients) for record in outcome.records.values() if record.coefficients]
    return [_middle(column) for column in zip(*found, strict=True)]


def _middle(values: Sequence[float]) -> float:
    odd = [v for v in values if v in (0, math.inf)]
    return odd[0] if odd else statistics.geometric_mean(values)


def ends(row: Row) -> list[tuple[list[float], float]]:
    """Return for each seed of a rule its last ratios and its result."""
    found = row.chosen.records.items()
    return [(ratios(record.coefficients), row.chosen.report[seed]) for seed, record in found if record.coefficients]


def strength(summary: Summary, values: Sequence[float]) -> list[float]:
    """Return how strongly each value is drawn, from 0 for the worst to 1; distant failures count as worst."""
    sign = summary.task.sign
    ordered = sorted(sign * v for v in values)
    high, middle = ordered[-1], ordered[len(ordered) // 2]
    low = max(ordered[0], high - 4 * (high - middle)) if high > middle else ordered[0]
    return [min(max((sign * v - low) / (high - low), 0.0), 1.0) if high > low else 1.0 for v in values]


def draw_rules(
    axes: Axes,
    summary: Summary,
    paths: Sequence[tuple[Row, Sequence[Sequence[tuple[float, float]]]]],
    taken: Sequence[labels.Box],
) -> None:
    """Draw the paths of each rule in its colour, with its name beside the last end, clear of what is ``taken``."""
    named, taken = [], list(taken)
    for row, of_row in paths:
        colour = plans.colour(summary, row)
        draw_paths(axes, of_row, colour)
        for path in of_row:
            places = [labels.to_points(axes, *point) for point in path]
            taken += [labels.Box(x - 2, y - 2, x + 2, y + 2) for x, y in places]
            taken += [labels.Box(x - 7, y - 7, x + 7, y + 7) for x, y in (places[0], places[-1])]
        named += [labels.Label(*path[-1], shorten(plans.label(row), NAME), colour, True) for path in of_row[-1:]]
    labels.place_beside(axes, named, taken)


def draw_paths(axes: Axes, paths: Sequence[Sequence[tuple[float, float]]], colour: str) -> None:
    """Draw one line per seed, from a ring at the start to a star at the end."""
    for path in paths:
        xs, ys = zip(*path, strict=True)
        axes.plot(xs, ys, color=colour, linewidth=1.6, zorder=3, gid="path")
        if len(path) > 1:
            axes.plot(xs[0], ys[0], "o", color=colour, markerfacecolor="none", markersize=7, zorder=4, gid="start")
        axes.plot(xs[-1], ys[-1], MARKERS["rule"], color=colour, markersize=13, zorder=5, gid="end")
