"""A summary in words: the sentence with the result, and the table."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

from trainonce.study.intervals import smallest_p
from trainonce.text import display_width

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trainonce.study.intervals import Interval
    from trainonce.study.summary import Outcome, Row, Summary


NO_GRID = "There is no grid to compare with: add the plan grid."


def decimal_places(summary: Summary) -> int:
    """How many decimals the metric deserves: two digits of the usual spread over seeds."""
    spreads = [row.chosen.standard_deviation for row in summary.ranked if row.chosen.standard_deviation > 0]
    size = statistics.median(spreads) if spreads else max((abs(r.chosen.mean) for r in summary.ranked), default=1) / 10
    return max(0, 1 - math.floor(math.log10(size))) if size > 0 else 1


def number(value: float, decimals: int) -> str:
    """A number with so many decimals, or three digits of it where those would be a row of zeros.

    >>> number(12.345, 1), number(0.0000312, 7)
    ('12.3', '3.12e-05')
    """
    return f"{value:.{decimals}f}" if decimals <= 5 else f"{value:.3g}"


def mean_and_deviation(outcome: Outcome, decimals: int) -> str:
    """The mean and, with several seeds, the standard deviation."""
    if not outcome.report:
        return "no result"
    text = number(outcome.mean, decimals)
    return text if len(outcome.report) == 1 else f"{text} +- {number(outcome.standard_deviation, decimals)}"


def with_sign(value: float, decimals: int) -> str:
    text = number(abs(value), decimals)
    return f"{'-' if value < 0 and float(text) else '+'}{text}"


def interval(found: Interval | None, decimals: int) -> str:
    """A paired difference with its interval."""
    if found is None:
        return ""
    mean = with_sign(found.mean, decimals)
    if found.seeds < 2:
        return mean
    return f"{mean} [{with_sign(found.low, decimals)}, {with_sign(found.high, decimals)}]"


def times(cost: float) -> str:
    return f"{cost:.0f}" if abs(cost - round(cost)) < 0.05 else f"{cost:.1f}"


def sentence(summary: Summary) -> str:
    """The result of the comparison in one sentence, whichever way it went."""
    task, ours, reference, decimals = summary.task, summary.one_shot, summary.reference, decimal_places(summary)
    unit = f" {task.unit}" if task.unit else ""
    if ours is None:
        return "There is no run with learned weights: add the plan one-shot."
    if ours.chosen.report:
        result = f"{mean_and_deviation(ours.chosen, decimals)}{unit}"
        text = f"One run with learned weights: {result} {task.report} {task.metric}"
    else:
        text = "One run with learned weights has no result"
    text += missing_seeds(ours.chosen)
    if reference is None:
        asked = any(plan["kind"] == "set" for plan in summary.plans)
        return f"{text}. The grid has no result to compare with." if asked else f"{text}. {NO_GRID}"
    n = summary.reference_size
    result = f"{mean_and_deviation(reference.chosen, decimals)}{unit}{missing_seeds(reference.chosen)}"
    text += f"; best of {n} {_kind(reference)} points (chosen on {task.select}): {result}"
    if reference.lacking:
        text += f" ({reference.lacking} of its {sum(reference.counts.values())} trainings are missing)"
    elif ours.cost and not ours.lacking:
        text += f" at {times(reference.cost / ours.cost)} times the cost"
    if ours.beaten_by is None:
        return f"{text}."
    same = ours.chosen.ended == reference.chosen.ended
    where = task.report if same else f"{task.report}, on the seeds that both have,"
    return f"{text}; {ours.beaten_by} of the {n} points did better on {where} than the learned weights."


def search_cost(summary: Summary) -> str:
    """How long a search of the reference's points would take to do better than one run, in trainings."""
    ours = summary.one_shot
    expected = summary.expected_trainings(ours) if ours is not None else None
    if expected is None:
        return ""
    return (
        f"Trying the {summary.reference_size} points in random order, it takes {expected:.1f} trainings on average to "
        "find one that does better than the one run with learned weights."
    )


def _kind(reference: Row) -> str:
    return "grid" if reference.plan.startswith("grid") else "random"


def missing_seeds(outcome: Outcome) -> str:
    """Which seeds have no result, in brackets; nothing where all have."""
    parts = [f"diverged in {outcome.diverged} of {outcome.wanted} seeds"] if outcome.diverged else []
    parts += [f"{len(outcome.left_out)} of {outcome.wanted} seeds left out"] if outcome.left_out else []
    missing = outcome.wanted - len(outcome.report) - outcome.diverged - len(outcome.left_out)
    parts += [f"{missing} of {outcome.wanted} seeds missing"] if missing else []
    return f" ({', '.join(parts)})" if parts else ""


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
    return f"seed{'s' * (len(different) > 1)} {', '.join(map(str, different))}"


def evidence(summary: Summary) -> str:
    """How much the seeds allow to say about the difference between one run and the best grid point."""
    ours, task, decimals = summary.one_shot, summary.task, decimal_places(summary)
    if ours is None or ours.difference is None:
        return ""
    unit = f" {task.unit}" if task.unit else ""
    margin, found = f"{number(summary.margin, decimals)}{unit}", ours.difference
    assert summary.reference is not None
    best = f"the best {_kind(summary.reference)} point"
    if found.seeds < 2:
        return "One seed says nothing about the spread: use --seeds 5 or more before relying on the difference."
    if summary.verdict(ours) == "diverged":
        return "Where seeds have diverged, the difference on the others decides nothing."
    verdict = {
        "better": f"better than {best}",
        "not worse": f"not worse than {best} by more than the margin of {margin}",
        "worse": f"worse than {best} by more than the margin of {margin}",
        "undecided": f"undecided: the interval reaches beyond the margin of {margin}",
    }[summary.verdict(ours)]
    p = smallest_p(found.seeds)
    if found.low == found.high:
        difference = f"{with_sign(found.mean, decimals)}{unit}"
        return f"All seeds differ by exactly {difference}: without any spread nothing more follows."
    caution = f" (with {found.seeds} seeds an exact paired test cannot go below p = {p:.3g})" if p > 0.05 else ""
    return (
        f"Difference on the same seeds, positive where learned weights are better: {interval(found, decimals)}{unit} "
        f"(95 % interval), {verdict}{caution}."
    )


def weights_line(weights: Sequence[float], terms: Sequence[str]) -> str:
    return "weights: " + ", ".join(f"{term} {weight:.4g}" for term, weight in zip(terms, weights, strict=True))


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
    notes = []
    if summary.reference is not None:
        chosen = summary.reference.chosen
        notes.append(f"* the reference: its best point on {summary.task.select}, {chosen.label}; differences are to it")
    if summary.one_shot is not None and summary.one_shot.chosen.weights:
        notes.append("learned " + weights_line(summary.one_shot.chosen.weights, summary.task.terms))
    return "\n".join(line.rstrip() for line in [*lines, *notes, *left_out(summary)])


def table(summary: Summary) -> list[list[str]]:
    """The rows of the comparison as text, best first, the head included."""
    task, decimals = summary.task, decimal_places(summary)
    metric = f"{task.metric}, {task.unit}" if task.unit else task.metric
    head = ["plan", f"{task.report} {metric}", "difference [95 %]", "beaten by", "trainings", "seconds"]
    rows = [[*head, f"{task.select} {metric}", "weights"]]
    for row in (*summary.ranked, *summary.without_result):
        mark = " *" if row is summary.reference else ""
        beaten = "" if row.beaten_by is None else f"{row.beaten_by} of {summary.reference_size}"
        rows.append(
            [
                row.plan + mark,
                mean_and_deviation(row.chosen, decimals) + missing_seeds(row.chosen),
                interval(row.difference, decimals),
                beaten,
                times(row.cost),
                f"{row.seconds:.1f}",
                number(row.chosen.select_mean, decimals) if row.chosen.select else "",
                " : ".join(f"{w:.2f}" for w in row.chosen.weights),
            ]
        )
    return rows


def warning_kind(warning: str) -> str:
    """The kind that a recorded warning begins with, as in ``"Settled: the weights ..."``; nothing if it has none.

    >>> warning_kind("Settled: at 0.1 of the steps"), warning_kind("The weights were not finite: some loss was not.")
    ('Settled', '')
    """
    first = warning.partition(" ")[0]
    return first.removesuffix(":") if first.endswith(":") else ""
