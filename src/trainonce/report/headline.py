"""The answer of a study in words: what one training gives, whether a search gives more, and how sure that is."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from trainonce.report.numbers import amount, count_seeds, decimal_places, interval, missing_seeds, times, unit_of
from trainonce.report.verdicts import Pair, case_of, is_same, value_of
from trainonce.study.intervals import smallest_p
from trainonce.study.outcomes import common_seeds
from trainonce.study.plans import PLANS, SEARCHES, SINGLE

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


# The evidence

MORE_SEEDS = "use --seeds 5 or more before relying on the difference"


def details(summary: Summary) -> str:
    """How many points of the grid did better than the first rule, and what it takes to find one."""
    ours, reference = summary.first_rule, summary.reference
    if ours is None or reference is None or ours.beaten_by is None:
        return ""
    n, task = summary.reference_size, summary.task
    same = ours.chosen.ended == reference.chosen.ended
    where = task.report if same else f"{task.report}, on the seeds that both have,"
    text = (
        f"The best {base_name(reference.plan)} point is the one that is best on {task.select}; {ours.beaten_by} of the "
        f"{n} did better on {where} than {rule_name(ours)}"
    )
    expected = summary.expected_trainings(ours)
    if expected is None:
        return f"{text}."
    return f"{text}: tried in random order, it takes {expected:.1f} trainings on average to find one."


def evidence(summary: Summary) -> str:
    """How much the seeds allow to say: the differences behind the sentence, with their intervals."""
    search, best, ours = summary.best_search, summary.best_single, summary.first_rule
    if search is None:
        return ""
    rows = [row for row in (best, None if ours is best else ours) if row is not None]
    pairs = [(row, search) for row in rows]
    pairs += [(ours, best)] if ours is not None and best is not None and ours is not best else []
    seeds = [n for one, other in pairs if (n := len(common_seeds(one.chosen, other.chosen)))]
    if not seeds:
        return ""
    if max(seeds) < 2:
        return f"One seed says nothing about the spread: {MORE_SEEDS}."
    mixed = len({row.seeds for row in (*rows, search)}) > 1
    found = [_difference(summary, one, other, mixed) for one, other in pairs if common_seeds(one.chosen, other.chosen)]
    lost = "Where seeds have diverged, the difference on the others decides nothing. "
    before = lost if any(row.chosen.lost for row in (*rows, search)) else ""
    fewest = min(n for n in seeds if n > 1)
    p = smallest_p(fewest)
    caution = f" With {fewest} seeds an exact paired test cannot go below p = {p:.3g}." if p > 0.05 else ""
    return (
        f"{before}Differences on the same seeds with 95 % intervals, positive where the first is better; the margin is "
        f"{amount(summary.margin)}{unit_of(summary)}: {'; '.join(found)}.{caution}"
    )


def _difference(summary: Summary, one: Row, other: Row, mixed: bool) -> str:
    names = [f"best {base_name(row.plan)} point" if row.kind == "set" else row.plan for row in (one, other)]
    text, found = f"{names[0]} - {names[1]}", summary.compare(one, other)
    if found is None or is_same(one, other):
        return f"{text}: the same trials"
    seeds = f" on {count_seeds(found.seeds)}" if mixed else ""
    spread = "all seeds alike, " if found.seeds > 1 and not found.has_spread else ""
    verdict = summary.verdict(one, other) or "one seed"
    return f"{text} {interval(found, decimal_places(summary))}{seeds}, {spread}{verdict}"


# What the sentences call things


class Subject(NamedTuple):
    """What a sentence is about, and the verbs that go with it."""

    name: str
    do: str
    have: str
    be: str

    def __str__(self) -> str:
        return self.name[0].upper() + self.name[1:]


#: What the rules of this package are called.
RULES = {"CompositeLoss": "the paper's rule", "BalancedLoss": "gradient balance"}


def rule_name(row: Row | None) -> str:
    """Return what the rule of a plan is called."""
    rule = None if row is None else row.chosen.rule
    return "a rule" if rule is None else RULES.get(rule.name, rule.name.rpartition(":")[2])


def subject_of(summary: Summary, row: Row) -> Subject:
    name = base_name(row.plan)
    plural, single = ("do", "have", "are"), ("does", "has", "is")
    if row.kind == "rule":
        return Subject(_one_run(summary, row), *single)
    if row.kind == "peer":
        return Subject(f"{PLANS[name].about.partition(' (')[0]} ({row.plan})", *single)
    if name == "uniform":
        return Subject("equal weights", *plural)
    if name == "base":
        return Subject("the base term alone", *single)
    return Subject(f"the fixed weights {row.chosen.label}", *plural)


def _one_run(summary: Summary, row: Row) -> str:
    """Name a rule's training, with the plan where several have the same rule."""
    name = rule_name(row)
    alike = [other for other in summary.rows if other.kind == "rule" and rule_name(other) == name]
    return f"one run of {name}" + (f" ({row.plan})" if len(alike) > 1 else "")


def metric_of(summary: Summary) -> str:
    """What a value is a value of."""
    return f"{summary.task.report} {summary.task.metric}"


def points_of(summary: Summary, search: Row) -> str:
    """A search by what it has tried: the points of a set that have an outcome, or the trials of each seed."""
    name = base_name(search.plan)
    if sum(base_name(row.plan) == name for row in summary.rows) > 1:
        name = search.plan
    if search.kind == "search":
        return f"the best of {sum(search.counts.values()) // len(search.seeds)} {name} trials"
    return f"the best of {sum(bool(o.ended) for o in search.outcomes)} {name} points"


def base_name(plan: str) -> str:
    """A plan's name without its settings; the grids are all grids."""
    name = plan.partition("(")[0]
    return "grid" if name.startswith("grid") else name


def missing_trainings(search: Row) -> str:
    """What is missing of a search."""
    lacking, asked = search.lacking, sum(search.counts.values())
    return f" ({lacking} of its {asked} trainings {'is' if lacking == 1 else 'are'} missing)" if lacking else ""
