"""The answer of a study in words: what one training gives, whether a search gives more, and how sure that is."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from trainonce.study.intervals import smallest_p
from trainonce.study.plans import PLANS
from trainonce.study.sentences.numbers import amount, decimal_places, interval, mean_and_deviation, times

if TYPE_CHECKING:
    from trainonce.study.summary import Outcome, Row, Summary


NO_GRID = "There is no grid to compare with: add the plan grid."
MORE_SEEDS = "use --seeds 5 or more before relying on the difference"


class Subject(NamedTuple):
    """What a sentence is about, and the verbs that go with it."""

    name: str
    do: str
    have: str
    be: str

    def __str__(self) -> str:
        return self.name[0].upper() + self.name[1:]


def sentence(summary: Summary) -> str:
    """The result of the comparison in a sentence or two, whichever way it went."""
    best, reference = summary.best_single, summary.reference
    if best is None:
        return _without_single(summary)
    found = [_against_search(summary, best, reference) if reference is not None else _without_search(summary, best)]
    return " ".join([*found, *filter(None, [_learned(summary, best)])])


def _without_single(summary: Summary) -> str:
    ours = summary.one_shot
    if ours is None:
        return "There is no run with learned weights: add the plan one-shot."
    text = f"One run with learned weights has no result{missing_seeds(ours.chosen)}"
    reference = summary.reference
    return (
        f"{text}." if reference is None else f"{text}; {_points(summary, reference)} has {_search(summary, reference)}."
    )


def _without_search(summary: Summary, best: Row) -> str:
    subject = _subject(summary, best)
    several = sum(row.kind in ("learned", "fixed", "peer") and bool(row.chosen.report) for row in summary.rows) > 1
    role = ", the best of the single trainings," if several else ""
    asked = any(plan["kind"] == "set" for plan in summary.plans)
    missing = "The grid has no result to compare with." if asked else NO_GRID
    return f"{subject}{role} {subject.have} {_result(summary, best)}. {missing}"


#: The best single training against the best point of a search, by the verdict.
AGAINST_SEARCH = {
    "better": "{Best} {do} better than {points} here: {ours}, against {theirs}.",
    "not worse": "{Best} {do} as well as {points} here: {ours}, against {theirs}. You need not search.",
    "slightly worse": "{Best}, the best single training, {be} a little worse than {points}: {ours}, against {theirs}.",
    "worse": "Searching pays here: {points} has {theirs}, and {best}, the best single training, {ours}.",
    "undecided": "{seeds} seeds cannot tell {best}, the best single training, from {points}: {ours}, against {theirs}.",
    "diverged": "Some seeds diverged, so nothing is decided: {best} {have} {ours}, {points} {theirs}.",
    "": "One seed decides nothing: {best} {have} {ours}, {points} {theirs}.",
}


def _against_search(summary: Summary, best: Row, reference: Row) -> str:
    subject, points = _subject(summary, best), _points(summary, reference)
    if best.chosen.weighting is not None and best.chosen.weighting == reference.chosen.weighting:
        return f"{subject} {subject.be} {points} here, with {_result(summary, best)}: you need not search."
    complete = best.cost and not reference.lacking and not best.lacking
    cost = f" at {times(reference.cost / best.cost)} times the cost" if complete else ""
    return AGAINST_SEARCH[summary.verdict(best)].format(
        Best=subject,
        best=subject.name,
        **subject._asdict(),
        points=points,
        ours=_result(summary, best),
        theirs=_search(summary, reference) + cost,
        seeds=len(set(best.chosen.report) & set(reference.chosen.report)),
    )


def _learned(summary: Summary, best: Row) -> str:
    """Learned weights against the best single training; if they are the best, against equal weights."""
    ours = summary.one_shot
    if ours is None:
        return "There is no run with learned weights: add the plan one-shot."
    if ours is not best:
        row, other = ours, best
    else:
        uniform = next((row for row in summary.rows if row.plan == "uniform" and row.chosen.report), None)
        if uniform is None:
            return ""
        row, other = uniform, best
    subject = _subject(summary, row)
    if not row.chosen.report:
        return f"{subject} {subject.have} no result{missing_seeds(row.chosen)}."
    text = LEARNED[summary.verdict(row, other)]
    return text.format(Row=subject, **subject._asdict(), value=_value(summary, row))


#: What follows on the best single training, by the verdict.
LEARNED = {
    "better": "{Row} {do} better: {value}.",
    "not worse": "{Row} {do} as well: {value}.",
    "slightly worse": "{Row} {be} a little worse: {value}.",
    "worse": "{Row} {be} worse: {value}.",
    "undecided": "{Row} {have} {value}, too close to call.",
    "diverged": "{Row} {have} {value}.",
    "": "{Row} {have} {value}.",
}


def _subject(summary: Summary, row: Row) -> Subject:
    name = row.plan.partition("(")[0]
    plural, single = ("do", "have", "are"), ("does", "has", "is")
    if row is summary.one_shot:
        return Subject("one run with learned weights", *single)
    if row.kind == "learned":
        return Subject(f"one run with learned weights, {row.plan},", *single)
    if row.kind == "peer":
        return Subject(f"{PLANS[name].about.partition(' (')[0]} ({row.plan})", *single)
    if name == "uniform":
        return Subject("equal weights", *plural)
    if name == "base":
        return Subject("the base term alone", *single)
    return Subject(f"the fixed weights {row.chosen.label}", *plural)


def _value(summary: Summary, row: Row) -> str:
    unit = f" {summary.task.unit}" if summary.task.unit else ""
    return f"{mean_and_deviation(row.chosen, decimal_places(summary))}{unit}{missing_seeds(row.chosen)}"


def _result(summary: Summary, row: Row) -> str:
    """A value with what it is a value of."""
    return f"{summary.task.report} {summary.task.metric} {_value(summary, row)}"


def _points(summary: Summary, reference: Row) -> str:
    return f"the best of {summary.reference_size} {_kind(reference)} points"


def _search(summary: Summary, reference: Row) -> str:
    """The result of a search, and what is missing of it."""
    missing = f" ({reference.lacking} of its {sum(reference.counts.values())} trainings are missing)"
    return _value(summary, reference) + (missing if reference.lacking else "")


def _kind(reference: Row) -> str:
    return "grid" if reference.plan.startswith("grid") else "random"


# More about it


def details(summary: Summary) -> str:
    """How many points of the search did better than the learned weights, and what it takes to find one."""
    ours, reference = summary.one_shot, summary.reference
    if ours is None or reference is None or ours.beaten_by is None:
        return ""
    n, task = summary.reference_size, summary.task
    same = ours.chosen.ended == reference.chosen.ended
    where = task.report if same else f"{task.report}, on the seeds that both have,"
    text = (
        f"The best {_kind(reference)} point is the one that is best on {task.select}; {ours.beaten_by} of the {n} did "
        f"better on {where} than the learned weights"
    )
    expected = summary.expected_trainings(ours)
    if expected is None:
        return f"{text}."
    return f"{text}: tried in random order, it takes {expected:.1f} trainings on average to find one."


def evidence(summary: Summary) -> str:
    """How much the seeds allow to say: the differences behind the sentence, with their intervals."""
    reference, best, ours = summary.reference, summary.best_single, summary.one_shot
    if reference is None:
        return ""
    rows = [row for row in (best, None if ours is best else ours) if row is not None]
    pairs = [(row, reference) for row in rows]
    pairs += [(ours, best)] if ours is not None and best is not None and ours is not best else []
    found = [text for one, other in pairs if (text := _difference(summary, one, other))]
    if not found:
        return ""
    seeds = max(len(row.chosen.report) for row, _ in pairs)
    if seeds < 2:
        return f"One seed says nothing about the spread: {MORE_SEEDS}."
    lost = "Where seeds have diverged, the difference on the others decides nothing. "
    before = lost if any(row.chosen.lost for row in (*rows, reference)) else ""
    p = smallest_p(seeds)
    caution = f" With {seeds} seeds an exact paired test cannot go below p = {p:.3g}." if p > 0.05 else ""
    unit = f" {summary.task.unit}" if summary.task.unit else ""
    return (
        f"{before}Differences on the same seeds with 95 % intervals, positive where the first is better; the margin is "
        f"{amount(summary.margin)}{unit}: {'; '.join(found)}.{caution}"
    )


def _difference(summary: Summary, one: Row, other: Row) -> str:
    found = None if one is other else summary.compare(one, other)
    if found is None:
        return ""
    reference = summary.reference
    names = [f"best {_kind(row)} point" if row is reference else row.plan for row in (one, other)]
    spread = "all seeds alike, " if found.seeds > 1 and found.low == found.high else ""
    verdict = summary.verdict(one, other) or "one seed"
    return f"{names[0]} - {names[1]} {interval(found, decimal_places(summary))}, {spread}{verdict}"


def missing_seeds(outcome: Outcome) -> str:
    """Which seeds have no result, in brackets; nothing where all have."""
    parts = [f"diverged in {outcome.diverged} of {outcome.wanted} seeds"] if outcome.diverged else []
    parts += [f"{len(outcome.left_out)} of {outcome.wanted} seeds left out"] if outcome.left_out else []
    missing = outcome.wanted - len(outcome.report) - outcome.diverged - len(outcome.left_out)
    parts += [f"{missing} of {outcome.wanted} seeds missing"] if missing else []
    return f" ({', '.join(parts)})" if parts else ""
