"""What the sentences call things: plans, searches, values, and what is missing of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from trainonce.study.plans import PLANS

if TYPE_CHECKING:
    from trainonce.study.summary import Outcome, Row, Summary


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


def unit_of(summary: Summary) -> str:
    return f" {summary.task.unit}" if summary.task.unit else ""


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


def count_seeds(seeds: int) -> str:
    return "one seed" if seeds == 1 else f"{seeds} seeds"


def missing_seeds(outcome: Outcome) -> str:
    """Which seeds have no result, in brackets; nothing where all have."""
    parts = [f"diverged in {outcome.diverged} of {outcome.wanted} seeds"] if outcome.diverged else []
    parts += [f"{len(outcome.left_out)} of {outcome.wanted} seeds left out"] if outcome.left_out else []
    missing = outcome.wanted - len(outcome.report) - outcome.diverged - len(outcome.left_out)
    parts += [f"{missing} of {outcome.wanted} seeds missing"] if missing else []
    return f" ({', '.join(parts)})" if parts else ""
