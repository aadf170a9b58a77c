"""The table of a comparison as text, the notes below it, and the whole answer that a terminal shows."""

from __future__ import annotations

import statistics
import textwrap
from typing import TYPE_CHECKING

from trainonce.report import headline
from trainonce.report.numbers import (
    amount,
    decimal_places,
    interval,
    mean_and_deviation,
    missing_seeds,
    number,
    spread_of,
    times,
)
from trainonce.study.plans import SINGLE
from trainonce.text import display_width

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from trainonce.study.summary import Outcome, Row, Summary

REFERENCE, OTHER_SEEDS = " *", " +"  # marks behind the names of plans
APART = 1.1  # ratios that differ over seeds by more than this factor are shown as a range


def text(summary: Summary) -> str:
    """Return what a study found as the command prints it: the table, the answer, and the evidence for it.

    >>> from trainonce.study import Summary
    >>> task = {"name": "toy", "terms": ["a", "b"], "metric": "score", "direction": "maximize", "select": "validation"}
    >>> task |= {"report": "test", "unit": "", "margin": None, "about": "", "settings": {}, "identity": "0"}
    >>> print(text(Summary({"task": task, "plans": []}, [])))
    plan  test score  difference [95 %]  beaten by  trainings
    <BLANKLINE>
    Nothing has a result. Equal weights, the paper's rule and a grid were not trained: add the plans
    uniform, yoto and grid.
    """
    answer = (headline.sentence(summary), headline.evidence(summary), headline.details(summary))
    filled = (textwrap.fill(part, 100, break_long_words=False) for part in answer if part)
    return "\n\n".join([to_text(summary), *filled])


def to_text(summary: Summary) -> str:
    """Return the table for a terminal: the columns that answer, aligned, and the notes."""
    rows = [row[:5] for row in cells(summary)]
    widths = [max(display_width(row[i]) for row in rows) for i in range(5)]
    lines = [
        "  ".join(
            [
                row[0] + " " * (widths[0] - display_width(row[0])),
                *(" " * (wide - display_width(cell)) + cell for cell, wide in zip(row[1:], widths[1:], strict=True)),
            ]
        )
        for row in rows
    ]
    return "\n".join(line.rstrip() for line in [*lines, *notes(summary)])


def cells(summary: Summary) -> list[list[str]]:
    """Return the rows of the comparison as text, best first, the head included."""
    task, decimals = summary.task, decimal_places(summary)
    metric = f"{task.metric}, {task.unit}" if task.unit else task.metric
    head = ["plan", f"{task.report} {metric}", "difference [95 %]", "beaten by", "trainings", "seconds"]
    rows = [[*head, f"{task.select} {metric}", "ratios"]]
    for row in (*summary.ranked, *summary.without_result):
        beaten = "" if row.beaten_by is None else f"{row.beaten_by} of {summary.reference_size}"
        rows.append(
            [
                row.plan + _mark(summary, row),
                mean_and_deviation(row.chosen, decimals) + missing_seeds(row.chosen),
                interval(row.difference, decimals),
                beaten,
                times(row.cost),
                f"{row.seconds:.1f}",
                number(row.chosen.select_mean, decimals) if row.chosen.select else "",
                ratios_cell(row.chosen),
            ]
        )
    return rows


def _mark(summary: Summary, row: Row) -> str:
    return (REFERENCE if row is summary.reference else "") + (OTHER_SEEDS if summary.has_other_seeds(row) else "")


def ratios_cell(outcome: Outcome) -> str:
    """Show the last ratios: their medians, or their ranges where they differ over the seeds."""
    found = [record.ratios for record in outcome.records.values() if record.coefficients]
    return " : ".join(_range(column) for column in zip(*found, strict=True))


def _range(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    if high > APART * low:
        return f"{low:.2g} to {high:.2g}"
    return f"{statistics.median(values):.3g}"


def name_ratios(ratios: Sequence[float], terms: Sequence[str]) -> str:
    """Name the ratios by their terms.

    >>> name_ratios((1.0, 0.25), ("ce", "invariance"))
    'ce 1, invariance 0.25'
    """
    return ", ".join(f"{term} {ratio:.4g}" for term, ratio in zip(terms, ratios, strict=True))


# Notes


def notes(summary: Summary) -> list[str]:
    """What stands below the table: the reference, the ratios that rules have found, and what a reader must know."""
    found = []
    if summary.reference is not None:
        best = "in each seed its best trial" if summary.reference.kind == "search" else "its best point"
        chosen = "" if summary.reference.kind == "search" else f", {summary.reference.chosen.label}"
        found.append(f"* the reference: {best} on {summary.task.select}{chosen}; differences are to it")
    found += [
        f"{row.plan} ends with the ratios {name_ratios(row.chosen.ratios, summary.task.terms)}"
        for row in summary.rows
        if row.kind == "rule" and row.chosen.ratios
    ]
    return [*found, *notices(summary)]


def notices(summary: Summary) -> list[str]:
    """What a reader of the table must know: plans without a row, other seeds, outliers, controls that are left out."""
    return [*not_yet(summary), *other_seeds(summary), *too_few_seeds(summary), *outliers(summary), *left_out(summary)]


def not_yet(summary: Summary) -> list[str]:
    """A sentence about plans that have no row yet, since none of their choices is complete."""
    names = [plan["name"] for plan in summary.plans if plan["name"] not in {row.plan for row in summary.rows}]
    return [f"No result yet: {', '.join(names)}."] if names else []


def other_seeds(summary: Summary) -> list[str]:
    """A sentence about plans that have other seeds than those they are ranked with."""
    anchor, rows = summary.anchor, [row for row in summary.ranked if summary.has_other_seeds(row)]
    if anchor is None or not rows:
        return []
    theirs = "; ".join(f"{row.plan} has {_seeds(row.seeds)}" for row in rows)
    text = f"+ other seeds than {anchor.plan}, which has {_seeds(anchor.seeds)}: {theirs}."
    return [f"{text} Plans are ranked by their difference to {anchor.plan} on the seeds that both have."]


def too_few_seeds(summary: Summary) -> list[str]:
    """A sentence for each plan that is not considered as the best of its kind."""
    return [
        f"{row.plan} has too few seeds in common with the others ({_seeds(row.chosen.report)}) to be the best "
        f"{'single training' if row.kind in SINGLE else 'search'}."
        for row in summary.not_chosen_from
    ]


def outliers(summary: Summary) -> list[str]:
    """A sentence for each plan with seeds that are far from the others, and so decide its mean."""
    widths = {id(o): half_width(o.report.values()) for row in summary.rows for o in row.outcomes if len(o.report) > 1}
    found = []
    for row in summary.ranked:
        others = [width for key, width in widths.items() if key != id(row.chosen)]
        far = far_seeds(row.chosen.report, others, summary.margin)
        if far is None:
            continue
        rest = [value for seed, value in row.chosen.report.items() if seed not in far]
        if rest:
            several, values = len(far) > 1, ", ".join(amount(row.chosen.report[seed]) for seed in far)
            found.append(
                f"{row.plan}: {_seeds(far)} {'are outliers' if several else 'is an outlier'} with {values}; the other "
                f"seeds have {spread_of(min(rest), max(rest))}. {'They decide' if several else 'It decides'} the mean "
                "and the standard deviation."
            )
        else:
            values = ", ".join(amount(value) for value in sorted(row.chosen.report.values()))
            found.append(f"{row.plan}: its seeds are far apart, with {values}. The mean stands for none of them.")
    return found


def left_out(summary: Summary) -> list[str]:
    """A sentence for each control that cannot be trained in some seeds, since the run that it needs has diverged."""
    found = [(row.plan, row.chosen.left_out) for row in summary.rows if row.chosen.left_out]
    return [
        f"{plan} is left out in {_seeds(seeds)}: the coefficients of the run{'s' * (len({*seeds.values()}) > 1)} "
        f"of {_seeds(seeds.values())} diverged."
        for plan, seeds in found
    ]


def _seeds(seeds: Iterable[int]) -> str:
    different = sorted(set(seeds))
    together = len(different) > 2 and different == list(range(different[0], different[-1] + 1))
    shown = f"{different[0]} to {different[-1]}" if together else ", ".join(map(str, different))
    return f"seed{'s' * (len(different) > 1)} {shown}"


# Seeds far from the others

FAR = 20  # times the usual width: in less than 1 % of plans with normally distributed results
FAR_ALONE = 200  # the same where there are not two other results to tell the usual width


def far_seeds(values: Mapping[int, float], other_widths: Sequence[float], margin: float) -> list[int] | None:
    """The seeds far from the median, which is near most of them; all where they are two halves far apart; else None.

    :param other_widths: The :func:`half_width` of other results of the study.
    :param margin: Differences up to this are small in any case.

    >>> far_seeds({0: 0.7, 1: 0.72, 2: 0.68, 3: 35000.0, 4: 40000.0}, [0.05, 0.04], 0.01)
    [3, 4]
    >>> far_seeds({0: 0.7, 1: 0.72, 2: 0.75}, [0.05, 0.04], 0.01)
    """
    if len(values) < 2:
        return None
    usual = max(statistics.median(other_widths) if other_widths else 0.0, margin)
    limit, own = FAR if len(other_widths) > 1 else FAR_ALONE, half_width(values.values())
    if len(values) % 2 == 0 and _are_apart(sorted(values.values()), limit, usual):
        return sorted(values)
    middle = statistics.median(values.values())
    far = [seed for seed, value in values.items() if abs(value - middle) > limit * max(own, usual)]
    return far or None


def _are_apart(ordered: Sequence[float], limit: float, usual: float) -> bool:
    """Whether the gap between the lower and the upper half is far wider than both, and than what is usual."""
    lower, upper = ordered[: len(ordered) // 2], ordered[len(ordered) // 2 :]
    widest = max(lower[-1] - lower[0], upper[-1] - upper[0], usual)
    return widest > 0 and upper[0] - lower[-1] > limit * widest


def half_width(values: Iterable[float]) -> float:
    """The width of the narrowest range that holds more than half of the values; outliers do not widen it.

    >>> half_width([1.0, 1.5, 2.25, 90.0, 80.0])
    1.25
    """
    ordered = sorted(values)
    half = len(ordered) // 2 + 1
    return min(high - low for low, high in zip(ordered, ordered[half - 1 :], strict=False))
