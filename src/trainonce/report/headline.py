"""The answer of a study in words: whether a search pays, what one training gives instead, and how sure that is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainonce.report.numbers import (
    amount,
    count_seeds,
    decimal_places,
    interval,
    mean_and_deviation,
    number,
    times,
    unit_of,
)
from trainonce.report.verdicts import SAID, SINGULAR, case_of, is_same, phrase, value, value_beside
from trainonce.study.intervals import smallest_p
from trainonce.study.plans import PLANS, SEARCHES
from trainonce.study.rules import read_rule
from trainonce.study.summary import keys_of
from trainonce.study.trial_rows import message
from trainonce.text import shorten

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainonce.study.rules import Rule
    from trainonce.study.summary import Row, Summary

HARDLY = "The weights hardly matter here"
#: The verdict where one comparison decides: the best that is said of a single training beside a search.
VERDICTS = {
    "no seed": "No seed is common, so nothing is decided",
    "one seed": "One seed decides nothing",
    "diverged": "Undecided, as seeds have diverged",
    "worse": "A search pays here",
    "slightly worse": "A search pays a little here",
}
#: The plans that the headline speaks of, and what it calls them.
NAMES = {"uniform": "equal weights", "own": "your own weights", "yoto": "the paper's rule", "grid": "a grid"}


def sentence(summary: Summary) -> str:
    """Return the verdict, the reference with its cost, what single trainings do beside it, and what is missing."""
    rows, reference, unit = stated(summary), summary.reference, unit_of(summary)
    metric = f"{summary.task.report} {summary.task.metric}"
    if reference is not None:
        lacking, asked = reference.lacking, sum(reference.counts.values())
        left = f" ({lacking} of its {asked} trainings {'is' if lacking == 1 else 'are'} missing)" if lacking else ""
        has = f"has {metric} {value(summary, reference, unit)}{left or f' at {times(reference.cost)} times the cost'}"
        found = [f"{verdict(summary, rows)}: {name_of(summary, reference)} {has}", _beside(summary, rows, reference)]
    elif rows:
        values = [f"{value(summary, row, unit)} with {name_of(summary, row)}" for row in rows]
        found = [f"No search to compare with: {metric} is {listed(values)}"]
    else:
        found = ["Nothing has a result"]
    found += [_missing(summary, rows), _edge(summary)]
    return " ".join(f"{text[0].upper()}{text[1:]}." for text in found if text)


def stated(summary: Summary) -> list[Row]:
    """Return what the headline states, in its order: equal weights, the user's own, the paper's rule.

    The preferred single training follows if the comparison says more for it than for all of these.
    """
    papers = [row for row in summary.rows if _role(row.kind, row.plan, row.chosen.rule) == "yoto"]
    usual = [row for row in papers if "(" not in row.plan and row.chosen.report]
    own = next((row for row in summary.rows if row.plan == "own" and row.chosen.report), None)
    best, reference = summary.best_single, summary.reference
    rows: list[Row] = []
    for row in (summary.equal_weights, own, summary.preferred(usual or papers)):
        rows += [row] if row and not any(is_same(row, other) for other in rows) else []
    if best is None or any(is_same(best, row) for row in rows):
        return rows
    worth = [SAID.index(case_of(summary, row, reference)) if reference else 0 for row in (best, *rows)]
    return [*rows, best] if reference is None or worth[0] > max(worth[1:], default=-1) else rows


def verdict(summary: Summary, rows: Sequence[Row]) -> str:
    """Return what the study says of searching: one training must hold its own beside every search."""

    def worth(pair: tuple[Row, Row]) -> int:
        return SAID.index(case_of(summary, *pair))

    searches = [row for row in (summary.reference, *_ahead(summary)) if row]
    if not rows:
        return "No single training to compare with"
    pair = min((max(((row, search) for row in rows), key=worth) for search in searches), key=worth)
    case, found = case_of(summary, *pair), summary.compare(*pair)
    if found is None or case in VERDICTS:
        return VERDICTS[case]
    if summary.unfinished and case != "undecided":
        return f"Undecided until {listed(summary.unfinished)} {'are' if len(summary.unfinished) > 1 else 'is'} complete"
    if _hardly_matter(summary, rows):
        return HARDLY
    if case not in ("undecided", "tie"):
        return "You need not search here"
    few = "Two seeds are too few to tell" if found.seeds == 2 else f"Undecided with {found.seeds} seeds"
    return few if found.has_spread else "Undecided, as the seeds show no spread"


def _hardly_matter(summary: Summary, rows: Sequence[Row]) -> bool:
    """Return whether equal weights and all rules are not worse than the reference, and it not worse than they."""
    known, every = summary.equal_weights and _other_rules(summary, ()), [*rows, *_other_rules(summary, rows)]
    pairs = [pair for row in every if (r := summary.reference) for pair in ((row, r), (r, row))]
    return bool(known) and not _ahead(summary) and all(summary.verdict(*pair) == "not worse" for pair in pairs)


def _other_rules(summary: Summary, rows: Sequence[Row]) -> list[Row]:
    """Return every rule that has a result, of those that are not among some rows."""
    rules = [row for row in summary.rows if row.kind in ("rule", "peer") and row.chosen.report]
    return [rule for rule in rules if not any(is_same(rule, row) for row in rows)]


def _ahead(summary: Summary) -> list[Row]:
    """Return the search that the selecting split prefers if it does better than the reference."""
    best, reference = summary.best_search, summary.reference
    return [best] if best and reference and "better" in case_of(summary, best, reference) else []


# The other sentences


def _beside(summary: Summary, rows: Sequence[Row], reference: Row) -> str:
    """Return what some rows do beside the reference; those with the same verdict share a clause."""
    clauses: dict[str, list[tuple[Row, str]]] = {}
    for row in (*rows, *_ahead(summary)):
        cost = f" at {times(row.cost)} times the cost" if row.kind in SEARCHES else ""
        shown = "" if is_same(row, reference) else f" ({value_beside(summary, row, reference)}{cost})"
        text = f"{name_of(summary, row)}{shown}".replace(f"({row.plan}) (", f"({row.plan}, ")
        clauses.setdefault(phrase(summary, row, reference), []).append((row, text))
    found = []
    for said, group in clauses.items():
        verb, rest = said.split(" ", 1)
        plural = len(group) > 1 or (group[0][0].kind == "fixed" and group[0][0].plan != "base")
        found.append(f"{listed([text for _, text in group])} {verb if plural else SINGULAR[verb]} {rest}")
    if rows and verdict(summary, rows) == HARDLY:
        found[-1] += _spread(summary, rows, reference)
    return "; ".join(found)


def _spread(summary: Summary, rows: Sequence[Row], reference: Row) -> str:
    """Return how far apart results are that are as good as each other, and what the worst point of the set has."""
    others, decimals = _other_rules(summary, rows), decimal_places(summary)
    apart = max(abs(found.mean) for row in (*rows, *others) if (found := summary.compare(row, reference)))
    shown = number(apart, decimals) if float(number(apart, decimals)) else amount(apart)
    text = ", and so does every other rule" if others else ""
    text += f", all within {shown}{unit_of(summary)} of it" if apart else ""
    worst = min((o for o in reference.outcomes if o.report), key=lambda o: summary.task.sign * o.mean)
    far = reference.kind == "set" and abs(worst.mean - reference.chosen.mean) > summary.margin
    return f"{text}; the worst point has {mean_and_deviation(worst, decimals)}" if far else text


def _edge(summary: Summary) -> str:
    """Return where the best point of a grid has the largest or the smallest ratio of a term that was tried."""
    best = summary.reference
    if best is None or base_name(best.plan) != "grid" or best.chosen.rule is None:
        return ""
    chosen, *points = (
        [float(f"{r:.6g}") for r in o.rule.ratios] for o in (best.chosen, *best.outcomes) if o.rule and o.ended
    )
    found = []
    for term, ratio, tried in zip(summary.task.terms[1:], chosen, zip(*points, strict=True), strict=True):
        side = "largest" if ratio == max(tried) else "smallest" if 0 < ratio == min(tried) else ""
        found += [f"{term} = {ratio:g} (the {side} tried)"] if side and len(set(tried)) > 1 else []
    return f"the best point has {listed(found)}: a wider grid may do better" if found else ""


def _role(kind: str, plan: str, rule: Rule | None) -> str:
    """Return the plan of :data:`NAMES` that a plan counts as: every search is a grid, the paper's rule yoto."""
    return "grid" if kind in SEARCHES else "yoto" if kind == "rule" and rule and rule.trains else plan


def _missing(summary: Summary, rows: Sequence[Row]) -> str:
    """Return what has no result, and why, and what to add."""
    known = {_role(row.kind, row.plan, row.chosen.rule) for row in rows}
    ended = {row.plan for row in summary.rows if row.chosen.report}
    without: dict[str, list[str]] = {}
    for plan in sorted(summary.plans, key=lambda plan: str(plan["name"])):
        role = _role(plan["kind"], plan["name"], read_rule(plan["rules"][0]) if plan["rules"] else None)
        if plan["name"] not in ended and role in {*NAMES} - known:
            name, why = _without_result(summary, plan, NAMES[role])
            without.setdefault(why, []).append(name)
        known |= {role} if role != "grid" else set()
    said = [(listed(names), why.replace("has", "have", 1) if names[1:] else why) for why, names in without.items()]
    found = [" ".join(pair) for pair in said]
    known |= {"grid"} if any(plan["kind"] in SEARCHES for plan in summary.plans) else set()
    if not rows and summary.reference is None and summary.plans:
        return "; ".join(found)
    if add := [role for role in ("uniform", "yoto", "grid") if role not in known]:
        names, were = listed([NAMES[role] for role in add]), "were" if len(add) > 1 or "uniform" in add else "was"
        found.append(f"{names} {were} not trained: add the plan{'s' * (len(add) > 1)} {listed(add)}")
    return "; ".join(found)


def _without_result(summary: Summary, plan: Mapping[str, Any], name: str) -> tuple[str, str]:
    """Return what has no result, and why: its trainings have failed or diverged, or have not ended."""
    last = [trial.record for trial in summary.trials if trial.last and plan["name"] in trial.plans]
    errors = {" ".join((message(record.error) or "").split()) for record in last if record.status == "failed"}
    cause = f": {shorten(error.rstrip('.'), 160)}" if len(errors) == 1 and (error := errors.pop()) else ""
    ends = sorted({record.status for record in last} & {"failed", "diverged"}, reverse=True)
    if sum(record.status in ends for record in last) < len({*keys_of(plan, summary.task.identity)}):
        return f"the plan {plan['name']}", f"has no result yet{cause}"
    count = plan["search"]["trials"] if plan["search"] else len(plan["rules"])
    points = f"all {count} {_points(summary, plan['name'], plan['kind'])}"
    return points if plan["kind"] in SEARCHES else name, f"{' or '.join(ends)}{cause}"


# What the sentences call things


def name_of(summary: Summary, row: Row) -> str:
    """Return what a sentence calls a row; a search by what it has tried, for each seed."""
    name, rule = base_name(row.plan), row.chosen.rule
    if row.kind in SEARCHES:
        points = _points(summary, row.plan, row.kind)
        return f"the best of {row.tried} {points}" if row.tried > 1 else f"the only {points[:-1]}"
    if row.kind == "peer":
        about = PLANS[name].about if name in PLANS else "the rule"
        return f"{about.partition(' (')[0].partition(',')[0]} ({row.plan})"
    if row.kind != "rule" or rule is None:
        return "the base term alone" if name == "base" else NAMES.get(name, f"the weights {row.chosen.label}")
    alike = [r for r in summary.rows if r.kind == "rule" and r.chosen.rule and r.chosen.rule.name == rule.name]
    usual = {"CompositeLoss": NAMES["yoto"], "BalancedLoss": "gradient balance"}.get(rule.name)
    return f"one run of {row.plan if len(alike) > 1 and name != row.plan else usual or rule.name.rpartition(':')[2]}"


def _points(summary: Summary, plan: str, kind: str) -> str:
    alike = [other for other in summary.plans if base_name(other["name"]) == base_name(plan)]
    return f"{plan if len(alike) > 1 else base_name(plan)} {'points' if kind == 'set' else 'trials'}"


def base_name(plan: str) -> str:
    """Return a plan's name without its settings; the grids are all grids."""
    name = plan.partition("(")[0]
    return "grid" if name.startswith("grid") else name


def listed(texts: Sequence[str]) -> str:
    """Return texts in a row: a, b and c."""
    return " and ".join(filter(None, [", ".join(texts[:-1]), texts[-1]]))


# The evidence


def details(summary: Summary) -> str:
    """Return how many points of the reference's set did better than the paper's rule, and what it takes to find one."""
    ours = next((row for row in reversed(stated(summary)) if row.kind == "rule" and row.beaten_by is not None), None)
    if ours is None or summary.reference is None:
        return ""
    points = f"{ours.beaten_by} of the {summary.reference_size} {base_name(summary.reference.plan)} points"
    where = "" if ours.chosen.ended == summary.reference.chosen.ended else ", on the seeds that both have,"
    expected, order = summary.expected_trainings(ours), "tried in random order, it takes {:.1f} trainings on average"
    found = "" if expected is None else f": {order.format(expected)} to find one"
    return f"{points} did better on {summary.task.report}{where} than {name_of(summary, ours)}{found}."


def evidence(summary: Summary) -> str:
    """Return how much the seeds allow to say: the differences behind the headline, with their intervals."""
    reference = summary.reference
    rows = [*stated(summary), *_ahead(summary)] if reference else []
    compared = [(row, found) for row in rows if reference and (found := summary.compare(row, reference))]
    seeds = {found.seeds for _, found in compared}
    if reference is None or max(seeds, default=0) < 2:
        return "One seed says nothing about the spread: use --seeds 5 or more." if seeds else ""
    said = []
    for row, found in compared:
        where = f" on {count_seeds(found.seeds)}" if len({r.seeds for r in (*rows, reference)}) > 1 else ""
        spread = "all seeds alike, " if found.seeds > 1 and not found.has_spread else ""
        shown = f"{interval(found, decimal_places(summary))}{where}, {spread}{summary.verdict(row) or 'one seed'}"
        said.append(f"{name_of(summary, row)}{': the same trials' if is_same(row, reference) else f' {shown}'}")
    lost = "Where seeds have diverged, the difference on the others decides nothing. "
    p = smallest_p(fewest := min(seeds - {1}))
    caution = f" With {fewest} seeds an exact paired test cannot go below p = {p:.3g}." if p > 0.05 else ""
    return (
        f"{lost if any(row.chosen.lost for row in (*rows, reference)) else ''}Differences to "
        f"{name_of(summary, reference)} on the same seeds with 95 % intervals, positive where better; the margin is "
        f"{amount(summary.margin)}{unit_of(summary)}: {'; '.join(said)}.{caution}"
    )
