"""The table of a comparison as text, and the notes below it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainonce.study.plans import SINGLE
from trainonce.study.sentences.branches import branches
from trainonce.study.sentences.names import goes_back, is_in_units, missing_seeds
from trainonce.study.sentences.numbers import (
    amount,
    decimal_places,
    interval,
    mean_and_deviation,
    number,
    spread_of,
    times,
)
from trainonce.study.sentences.outliers import far_seeds, half_width
from trainonce.text import display_width

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trainonce.study.summary import Outcome, Row, Summary

REFERENCE, OTHER_SEEDS = " *", " +"  # marks behind the names of plans
APART = 0.05  # weights that differ more over seeds are shown as a range


def text_table(summary: Summary) -> str:
    """The table for a terminal: the columns that answer, aligned."""
    rows = [row[:5] for row in table(summary)]
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


def table(summary: Summary) -> list[list[str]]:
    """The rows of the comparison as text, best first, the head included."""
    task, decimals = summary.task, decimal_places(summary)
    metric = f"{task.metric}, {task.unit}" if task.unit else task.metric
    head = ["plan", f"{task.report} {metric}", "difference [95 %]", "beaten by", "trainings", "seconds"]
    rows = [[*head, f"{task.select} {metric}", "weights"]]
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
                weights_cell(row.chosen),
            ]
        )
    return rows


def _mark(summary: Summary, row: Row) -> str:
    return (REFERENCE if row is summary.reference else "") + (OTHER_SEEDS if summary.has_other_seeds(row) else "")


def weights_cell(outcome: Outcome) -> str:
    """The last weights: their means, or their range where they differ over the seeds, and their sum if it is not 1."""
    found = [record.weights for record in outcome.records.values() if record.weights]
    columns = list(zip(*found, strict=True))
    text = " : ".join(_range(column) for column in columns)
    totals = [record.total for record in outcome.records.values() if record.weights]
    return text if not totals or all(total == 1 for total in totals) else f"{text} (sum {_range(totals)})"


def _range(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:.2f} to {high:.2f}" if high - low > APART else f"{sum(values) / len(values):.2f}"


def weights_line(weights: Sequence[float], terms: Sequence[str]) -> str:
    return f"weights: {name_weights(weights, terms)}"


def name_weights(weights: Sequence[float], terms: Sequence[str]) -> str:
    """The weights by the names of their terms."""
    return ", ".join(f"{term} {weight:.4g}" for term, weight in zip(terms, weights, strict=True))


# Notes


def notes(summary: Summary) -> list[str]:
    """What stands below the table: the reference, the learned weights, and what a reader must know."""
    found, ours = [], summary.one_shot
    if summary.reference is not None:
        chosen = summary.reference.chosen
        found.append(f"* the reference: its best point on {summary.task.select}, {chosen.label}; differences are to it")
    if ours is not None and ours.chosen.weights:
        what = "weights of the raw losses, found in gradient units" if is_in_units(ours) else "learned weights"
        what += f" by {ours.plan}" if goes_back(ours) else ""
        found.append(f"{what}: {name_weights(ours.chosen.weights, summary.task.terms)}")
    return [*found, *notices(summary)]


def notices(summary: Summary) -> list[str]:
    """What a reader of the table must know: other seeds, outliers, what halving chose, controls that are left out."""
    seeds = [*other_seeds(summary), *too_few_seeds(summary), *outliers(summary)]
    return [*seeds, *branches(summary), *left_out(summary)]


def other_seeds(summary: Summary) -> list[str]:
    """A sentence about plans that have other seeds than those they are ranked with."""
    anchor, rows = summary.anchor, [row for row in summary.ranked if summary.has_other_seeds(row)]
    if anchor is None or not rows:
        return []
    theirs = "; ".join(f"{row.plan} has {_seeds(row.seeds)}" for row in rows)
    text = f"+ other seeds than {anchor.plan}, which has {_seeds(anchor.seeds)}: {theirs}."
    return [f"{text} Plans are ranked by their difference to {anchor.plan} on the seeds that both have."]


def too_few_seeds(summary: Summary) -> list[str]:
    """A sentence for each plan that the headline does not consider."""
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
        f"{plan} is left out in {_seeds(seeds)}: the weights of the one-shot run{'s' * (len({*seeds.values()}) > 1)} "
        f"of {_seeds(seeds.values())} diverged."
        for plan, seeds in found
    ]


def _seeds(seeds: Iterable[int]) -> str:
    different = sorted(set(seeds))
    together = len(different) > 2 and different == list(range(different[0], different[-1] + 1))
    shown = f"{different[0]} to {different[-1]}" if together else ", ".join(map(str, different))
    return f"seed{'s' * (len(different) > 1)} {shown}"


def warning_kind(warning: str) -> str:
    """The kind that a recorded warning begins with, as in ``"Settled: the weights ..."``; nothing if it has none.

    >>> warning_kind("Settled: at 0.1 of the steps"), warning_kind("The weights were not finite: some loss was not.")
    ('Settled', '')
    """
    first = warning.partition(" ")[0]
    return first.removesuffix(":") if first.endswith(":") else ""
