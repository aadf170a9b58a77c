"""Two plans on the seeds that both have: what the comparison says, and its numbers as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from trainonce.report.numbers import (
    count_seeds,
    decimal_places,
    decimals_for,
    interval,
    mean_and_deviation,
    missing_seeds,
    unit_of,
)
from trainonce.study.outcomes import common_seeds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainonce.study.summary import Outcome, Row, Summary


def case_of(summary: Summary, one: Row, other: Row) -> str:
    """What a comparison says: a verdict, or why there is none."""
    found, same = summary.compare(one, other), is_same(one, other)
    if found is None:
        return "no seed"
    if found.seeds < 2:
        return "one same seed" if same else "one seed"
    said = summary.verdict(one, other)
    if said == "diverged" or (found.has_spread and not same):
        return said
    if same:
        return "same"
    return "ahead" if found.mean > 0 else "behind" if found.mean < 0 else "tie"


def is_same(one: Row, other: Row) -> bool:
    """Whether two plans chose the same weights, and so share their trials."""
    return one.chosen.rule is not None and one.chosen.rule == other.chosen.rule


class Pair(NamedTuple):
    """The numbers of a comparison as text: on the seeds that both have, or if they have none, on their own."""

    ours: str
    theirs: str
    gap: str
    apart: str
    where: str
    common: list[int]

    @property
    def n(self) -> int:
        return len(self.common)

    @classmethod
    def of(cls, summary: Summary, one: Row, other: Row) -> Pair:
        common = common_seeds(one.chosen, other.chosen)
        own = [row.chosen for row in (one, other)]
        shown = [o.on(common) for o in own] if common else own
        whole = all(len(o.report) == len(common) for o in own)
        decimals = decimal_places(summary) if whole else decimals_for(shown)
        texts = [f"{mean_and_deviation(o, decimals)}{unit_of(summary)}" for o in shown]
        found = summary.compare(one, other)
        difference = "" if found is None else f"{interval(found, decimals).partition(' ')[0]}{unit_of(summary)}"
        decided = summary.verdict(one, other).removeprefix("slightly ") in ("better", "worse")
        return cls(
            f"{texts[0]}{missing_seeds(own[0])}",
            f"{texts[1]}{missing_seeds(own[1])}",
            difference.lstrip("+-"),
            f", a difference of {difference}" if decided and _shows_none(shown, decimals) else "",
            f", on the {count_seeds(len(common))} that both have" if common and not whole else "",
            common,
        )


def _shows_none(outcomes: Sequence[Outcome], decimals: int) -> bool:
    """Whether rounding hides the difference of two means."""
    one, other = (mean_and_deviation(o, decimals).partition(" ")[0] for o in outcomes)
    return one == other


def value_of(summary: Summary, row: Row) -> str:
    return f"{mean_and_deviation(row.chosen, decimal_places(summary))}{unit_of(summary)}{missing_seeds(row.chosen)}"
