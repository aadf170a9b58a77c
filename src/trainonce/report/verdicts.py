"""Two plans on the seeds that both have: what the comparison says, in words, and their values as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainonce.report.numbers import (
    count_seeds,
    decimal_places,
    decimals_for,
    mean_and_deviation,
    missing_seeds,
)
from trainonce.study.outcomes import common_seeds

if TYPE_CHECKING:
    from trainonce.study.summary import Row, Summary

#: What a comparison can say, from the least to the most for the first plan, and how; some depends on the numbers, too.
PHRASES = {
    "no seed": "have no seed in common with it",
    "one seed": "",
    "diverged": "",
    "worse": "are worse",
    "slightly worse": "are a little worse",
    "undecided": "",
    "tie": "do exactly as well in every seed",
    "not worse": "do as well",
    "slightly better": "do a little better",
    "better": "do better",
}
SAID = tuple(PHRASES)
SINGULAR = {"do": "does", "are": "is", "have": "has", "look": "looks"}


def case_of(summary: Summary, one: Row, other: Row) -> str:
    """Return what a comparison says, one of :data:`SAID`: a verdict, or why there is none."""
    found, said = summary.compare(one, other), summary.verdict(one, other)
    if found is None or found.seeds < 2:
        return "no seed" if found is None else "one seed"
    return "tie" if said == "not worse" and not found.has_spread and not is_same(one, other) else said


def phrase(summary: Summary, one: Row, other: Row) -> str:
    """Return what several plans like the first do beside the second, as words that begin with a verb."""
    case, found = case_of(summary, one, other), summary.compare(one, other)
    if is_same(one, other):
        return "are that point"
    if found is None or PHRASES[case]:
        return PHRASES[case]
    if case != "undecided":
        return f"are {'ahead' if found.mean > 0 else 'behind' if found.mean < 0 else 'level'}"
    if found.has_spread and abs(found.mean) <= summary.margin:
        return "are too close to call"
    return "look better" if found.mean > 0 else "look worse"


def is_same(one: Row, other: Row) -> bool:
    """Whether two plans chose the same weights, and so share their trials."""
    return one.chosen.rule is not None and one.chosen.rule == other.chosen.rule


def value(summary: Summary, row: Row, unit: str = "") -> str:
    """Return a plan's mean result and its deviation, and the seeds that are missing."""
    return mean_and_deviation(row.chosen, decimal_places(summary)) + unit + missing_seeds(row.chosen)


def value_beside(summary: Summary, one: Row, other: Row) -> str:
    """Return the first plan's value; where their seeds differ, both values on those that both have."""
    common, missing = common_seeds(one.chosen, other.chosen), missing_seeds(one.chosen)
    text = mean_and_deviation(one.chosen, decimal_places(summary))
    if common and one.chosen.report.keys() != other.chosen.report.keys():
        shown = [row.chosen.on(common) for row in (one, other)]
        ours, theirs = (mean_and_deviation(o, decimals_for(shown)) for o in shown)
        text = f"{ours} against {theirs} on the {count_seeds(len(common))} that both have"
    return f"{text}{f', {missing[2:-1]}' if missing else ''}"
