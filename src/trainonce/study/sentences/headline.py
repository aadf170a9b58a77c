"""The answer of a study in words: what one training gives, and whether a search gives more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainonce.study.outcomes import common_seeds
from trainonce.study.plans import SEARCHES, SINGLE
from trainonce.study.sentences.names import (
    base_name,
    count_seeds,
    metric_of,
    missing_seeds,
    missing_trainings,
    points_of,
    subject_of,
)
from trainonce.study.sentences.numbers import times
from trainonce.study.sentences.pair import Pair, case_of, value_of

if TYPE_CHECKING:
    from trainonce.study.summary import Row, Summary

NO_RULE = "There is no run of a rule: add the plan yoto or balance."
NO_GRID = "There is no grid to compare with: add the plan grid."


def sentence(summary: Summary) -> str:
    """The result of the comparison in a sentence or two, whichever way it went."""
    best, search = summary.best_single, summary.best_search
    if best is None:
        return _without_single(summary)
    found = _without_search(summary, best) if search is None else _against_search(summary, best, search)
    return " ".join([found, *filter(None, [_of_rule(summary, best)])])


def _without_single(summary: Summary) -> str:
    ours, search = summary.first_rule, summary.best_search
    if ours is None:
        return NO_RULE
    text = f"{subject_of(summary, ours)} has no result{missing_seeds(ours.chosen)}"
    if search is None:
        return f"{text}."
    return f"{text}; {points_of(summary, search)} has {value_of(summary, search)}{missing_trainings(search)}."


def _without_search(summary: Summary, best: Row) -> str:
    subject = subject_of(summary, best)
    several = sum(row.kind in SINGLE and bool(row.chosen.report) for row in summary.rows) > 1
    role = ", the best of the single trainings," if several else ""
    asked = [base_name(plan["name"]) for plan in summary.plans if plan["kind"] in SEARCHES]
    missing = f"The {asked[0]} has no result to compare with." if asked else NO_GRID
    return f"{subject}{role} {subject.have} {metric_of(summary)} {value_of(summary, best)}. {missing}"


#: The best single training against the best point of a search, by what the comparison says.
AGAINST_SEARCH = {
    "better": "{Best} {do} better than {points} {here}: {metric} {ours}, against {theirs}{where}.",
    "slightly better": "{Best} {do} a little better than {points} {here}: {metric} {ours}, against {theirs}{where}.",
    "not worse": "{Best} {do} as well as {points} {here}{so}: {metric} {ours}, against {theirs}{where}.",
    "slightly worse": "{Best}, the best single training, {be} a little worse than {points}: {metric} {ours}, against "
    "{theirs}{where}.",
    "worse": "Searching pays here: {points} has {theirs}, and {best}, the best single training, {metric} {ours}"
    "{where}.",
    "undecided": "{n} seeds cannot tell {best}, the best single training, from {points}: {metric} {ours}, against "
    "{theirs}{where}.",
    "diverged": "Some seeds diverged, so nothing is decided: {best} {have} {metric} {ours}, {points} {theirs}{where}.",
    "same": "{Best} {be} {points} {here}{so}: {metric} {theirs}{where}.",
    "tie": "{Best} {do} exactly as well as {points} in each of {n} seeds: {metric} {ours}, against {theirs}{where}.",
    "ahead": "{Best}, the best single training, {be} ahead of {points} by the same {gap} in each of {n} seeds, which "
    "says nothing of the spread: {metric} {ours}, against {theirs}{where}.",
    "behind": "{Best}, the best single training, {be} behind {points} by the same {gap} in each of {n} seeds, which "
    "says nothing of the spread: {metric} {ours}, against {theirs}{where}.",
    "one seed": "One seed decides nothing: {best} {have} {metric} {ours}, {points} {theirs}{where}.",
    "one same seed": "One seed decides nothing: {best} {be} {points}, with {metric} {theirs}{where}.",
    "no seed": "No seed is common to {best} ({metric} {ours}) and {points} ({theirs}), so nothing is decided.",
}


def _against_search(summary: Summary, best: Row, search: Row) -> str:
    subject, case = subject_of(summary, best), case_of(summary, best, search)
    pair, unfinished = Pair.of(summary, best, search), _unfinished(summary)
    complete = best.cost and not search.lacking and not best.lacking and "same" not in case
    cost = f" at {times(search.cost / best.cost)} times the cost" if complete else ""
    others = ", ".join(name for name in unfinished if name != search.plan)
    return AGAINST_SEARCH[case].format(
        Best=subject,
        best=subject.name,
        **subject._asdict(),
        points=points_of(summary, search),
        here=f"so far{f', without all of {others}' if others else ''}" if unfinished else "here",
        so="" if unfinished else ", so you need not search",
        metric=metric_of(summary),
        ours=pair.ours,
        theirs=f"{pair.theirs}{missing_trainings(search)}{cost}",
        where=f"{pair.apart}{pair.where}",
        gap=pair.gap,
        n=pair.n,
    )


def _unfinished(summary: Summary) -> list[str]:
    """The grids, random points and searches that lack trainings: a better choice may be among those."""
    lacking = {row.plan: row.lacking for row in summary.rows}
    return [p["name"] for p in summary.plans if p["kind"] in SEARCHES and lacking.get(p["name"], True)]


def _of_rule(summary: Summary, best: Row) -> str:
    """The first rule against the best single training; if it is the best, equal weights against it."""
    ours = summary.first_rule
    if ours is None:
        return NO_RULE
    uniform = next((row for row in summary.rows if row.plan == "uniform" and row.chosen.report), None)
    row = uniform if ours is best else ours
    if row is None:
        return ""
    subject = subject_of(summary, row)
    if not row.chosen.report:
        return f"{subject} {subject.have} no result{missing_seeds(row.chosen)}."
    pair, search = Pair.of(summary, row, best), summary.best_search
    known = common_seeds(best.chosen, search.chosen) if search else []
    if pair.common in ([], known or sorted(best.chosen.report)):  # the sentence before says what the other has
        where = f" on the same {count_seeds(pair.n)}" if pair.where and pair.n else ""
        value = f"{pair.ours}{where}{pair.apart}"
    else:
        value = f"{pair.ours}, against {pair.theirs}{pair.apart}{pair.where}"
    text = FOLLOWS[case_of(summary, row, best)]
    return text.format(Row=subject, **subject._asdict(), value=value, gap=pair.gap, n=pair.n)


#: What follows on the best single training, by what the comparison says.
FOLLOWS = {
    "better": "{Row} {do} better: {value}.",
    "slightly better": "{Row} {do} a little better: {value}.",
    "not worse": "{Row} {do} as well: {value}.",
    "slightly worse": "{Row} {be} a little worse: {value}.",
    "worse": "{Row} {be} worse: {value}.",
    "undecided": "{Row} {have} {value}, too close to call.",
    "diverged": "{Row} {have} {value}.",
    "same": "{Row} {do} as well: {value}.",
    "tie": "{Row} {do} exactly as well in each of {n} seeds: {value}.",
    "ahead": "{Row} {be} ahead by the same {gap} in each of {n} seeds: {value}.",
    "behind": "{Row} {be} behind by the same {gap} in each of {n} seeds: {value}.",
    "one seed": "{Row} {have} {value}.",
    "one same seed": "{Row} {have} {value}.",
    "no seed": "{Row} {have} {value}, on other seeds, which decides nothing.",
}
