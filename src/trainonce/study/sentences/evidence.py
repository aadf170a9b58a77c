"""How sure the answer of a study is: the differences behind it, and how the grid did."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainonce.study.intervals import smallest_p
from trainonce.study.outcomes import common_seeds
from trainonce.study.sentences.names import base_name, count_seeds, rule_name, unit_of
from trainonce.study.sentences.numbers import amount, decimal_places, interval
from trainonce.study.sentences.pair import is_same

if TYPE_CHECKING:
    from trainonce.study.summary import Row, Summary

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
