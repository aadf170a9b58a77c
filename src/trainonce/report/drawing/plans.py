"""How figures show plans: their names, their roles, and the range of the metric."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from trainonce.report import numbers
from trainonce.report.drawing import edges, style
from trainonce.text import shorten

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainonce.study.summary import Outcome, Row, Summary

NO_RESULT = "No plan that can be compared has a complete trial yet."


def base_name(plan: str) -> str:
    """Return a plan's name without its settings.

    >>> base_name("tpe(trials=5)")
    'tpe'
    """
    return plan.partition("(")[0]


def label(row: Row, among: Sequence[Row] = ()) -> str:
    """Return a plan's name in a figure: sets and searches go without their settings, which the table lists.

    :param among: The rows of the figure; settings stay where two of them would have the same name.

    >>> from types import SimpleNamespace as Row
    >>> label(Row(plan="tpe(trials=5)", kind="search")), label(Row(plan="my_rules.py:GradNorm(alpha=1)", kind="rule"))
    ('tpe', 'GradNorm(alpha=1)')
    >>> label(Row(plan="replay(of=my_rules.py:GradNorm)", kind="control"))
    'replay(of=GradNorm)'
    >>> grids = [Row(plan="grid", kind="set"), Row(plan="grid(0.1,1)", kind="set")]
    >>> [label(row, grids) for row in grids]
    ['best of grid', 'best of grid(0.1,1)']
    """
    if row.kind in ("set", "search"):
        name = base_name(row.plan)
        if sum(base_name(other.plan) == name for other in among) > 1:
            name = shorten(row.plan, 22)
        return f"best of {name}" if row.kind == "set" else name
    return shorten(re.sub(r"[\w.-]+\.py:", "", row.plan), 30)


def rules(summary: Summary) -> list[Row]:
    """Return the plans that train once under a rule, in the order of the study."""
    return [row for row in summary.rows if row.kind == "rule"]


def trained(summary: Summary) -> list[Row]:
    """Return those whose rule trains exponents."""
    return [row for row in rules(summary) if row.chosen.rule is not None and row.chosen.rule.trains]


def legend(summary: Summary) -> str:
    """Return what the colours of the rules stand for, in words."""
    found: dict[str, list[str]] = {}
    for row in rules(summary):
        found.setdefault(style.RULES[colour(summary, row)], []).append(base_name(label(row)))
    return ", ".join(f"{word}: {' and '.join(names)}" for word, names in found.items())


def colour(summary: Summary, row: Row) -> str:
    """Return a plan's colour: that of its role, and for each rule of a study one of its own."""
    if row.kind == "rule":
        number = [one.plan for one in rules(summary)].index(row.plan)
        return list(style.RULES)[number % len(style.RULES)]
    return style.COLOURS[role(summary, row)]


def seed_notes(counts: Sequence[int], others: Sequence[bool] = ()) -> list[str]:
    """Return what follows each plan's name: how many seeds where plans differ in that, or that it has others.

    >>> seed_notes([2, 1]), seed_notes([2, 2], [False, True])
    ([', 2 seeds', ', 1 seed'], ['', ', other seeds'])
    """
    if len(set(counts)) > 1:
        return [f", {count} seed{'s' * (count != 1)}" for count in counts]
    return [", other seeds" * other for other in others or [False] * len(counts)]


def role(summary: Summary, row: Row) -> str:
    """Return the key of a plan's colour and marker."""
    return "reference" if row is summary.reference else row.kind


def result(summary: Summary, outcome: Outcome) -> str:
    """Return the mean of an outcome and its deviation, to be read under the pointer."""
    return style.typeset(numbers.mean_and_deviation(outcome, numbers.decimal_places(summary)))


def metric_label(summary: Summary) -> str:
    """Return the reported metric in words: which split, the unit, which way is better."""
    task = summary.task
    unit = f", {shorten(task.unit, 8)}" if task.unit else ""
    way = "higher is better ↑" if task.sign > 0 else "lower is better ↓"
    return f"{shorten(task.report, 12)} {shorten(task.metric, style.NAME)}{unit} ({way})"


def metric_range(summary: Summary, rows: Sequence[Row]) -> tuple[float, float]:
    """Return the range of the metric to show: one far off would hide the differences between the others."""
    half = rows[: max(2, math.ceil(len(rows) / 2))]
    known = [row for row in (*rules(summary), summary.reference) if row is not None and row.chosen.report]
    core = [*half, *known]
    ends = [row.chosen.mean + side * row.chosen.standard_deviation for row in core for side in (-1, 1)]
    usual = edges.usual_range([*ends, *(value for row in core for value in row.chosen.report.values())])
    ends = [end for end in ends if usual[0] <= end <= usual[1]] or list(usual)
    reach = 1.6 * (max(ends) - min(ends)) or 0.1 * abs(ends[0]) or 1.0
    low, high = min(ends) - reach, max(ends) + reach
    near = [row for row in rows if low <= row.chosen.mean <= high]
    shown = [row.chosen.mean + side * row.chosen.standard_deviation for row in near for side in (-1, 1)]
    return style.widen([min(max(value, low), high) for value in [*shown, *ends]])


def expected_best(summary: Summary) -> list[tuple[float, float]]:
    """Return the cost and the mean result of trying k points of the reference's plan in random order.

    For each k, or with many points for about 250 of them. The best of k points is the one that the selecting split
    prefers.
    """
    reference = summary.reference
    if reference is None or reference.kind != "set" or not all(o.report for o in reference.outcomes):
        return []
    ordered = sorted(reference.outcomes, key=lambda o: -summary.task.sign * o.select_mean)
    n, means = len(ordered), [o.mean for o in ordered]
    return [(reference.cost * k / n, mean_of_best(means, k)) for k in _spread(n)]


def mean_of_best(ordered: Sequence[float], k: int) -> float:
    """Return the expected first of k values, drawn without replacement from values in an order of preference.

    Of n values the i-th is the first of k with probability C(n - i, k - 1) / C(n, k): k / n for the first, and each
    next one is (n - i - k + 1) / (n - i) of the one before.

    >>> mean_of_best([3.0, 2.0, 1.0], 1), mean_of_best([3.0, 2.0, 1.0], 3)
    (2.0, 3.0)
    """
    n = len(ordered)
    probability, parts = k / n, []
    for i, value in enumerate(ordered[: n - k + 1], start=1):
        parts.append(probability * value)
        probability *= (n - i - k + 1) / (n - i) if i < n else 0.0
    return math.fsum(parts)


def _spread(n: int, most: int = 250) -> list[int]:
    """Return the numbers from 1 to n, or if they are too many to draw, some of them, evenly on a logarithmic axis."""
    if n <= most:
        return list(range(1, n + 1))
    return sorted({round(n ** (i / (most - 1))) for i in range(most)})
