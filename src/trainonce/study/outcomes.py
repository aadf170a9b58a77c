"""What came of one choice of weights over the seeds, and which of several choices the selecting split prefers."""

from __future__ import annotations

import dataclasses
import functools
import math
import statistics
from collections import Counter
from typing import TYPE_CHECKING

from trainonce.study.intervals import standard_deviation

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from trainonce.study.record import Record
    from trainonce.study.rules import Rule
    from trainonce.study.summary import TaskInfo


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One choice of weights over the seeds: its complete trials by seed.

    ``wanted`` counts the seeds that were asked for; ``lost`` are those that ended without a finite metric.
    ``left_out`` are a control's seeds that cannot be trained, with the seed of the run that diverged.
    """

    label: str
    rule: Rule | None
    records: Mapping[int, Record]
    select: Mapping[int, float]
    report: Mapping[int, float]
    wanted: int
    lost: frozenset[int] = frozenset()
    left_out: Mapping[int, int] = dataclasses.field(default_factory=dict)

    @property
    def diverged(self) -> int:
        """In how many seeds it diverged."""
        return len(self.lost)

    @functools.cached_property
    def ended(self) -> frozenset[int]:
        """The seeds that have a result, divergence included."""
        return frozenset(self.report) | self.lost

    @functools.cached_property
    def select_mean(self) -> float:
        return statistics.fmean(self.select.values()) if self.select else math.nan

    @functools.cached_property
    def mean(self) -> float:
        """The mean of the reported metric."""
        return statistics.fmean(self.report.values()) if self.report else math.nan

    @functools.cached_property
    def standard_deviation(self) -> float:
        return standard_deviation(list(self.report.values()))

    def on(self, seeds: Collection[int]) -> Outcome:
        """The same on some of its seeds."""
        records, select, report = (
            {seed: value for seed, value in of_seed.items() if seed in seeds}
            for of_seed in (self.records, self.select, self.report)
        )
        return dataclasses.replace(self, records=records, select=select, report=report)  # type: ignore[arg-type]

    @functools.cached_property
    def ratios(self) -> list[float]:
        """The medians over the seeds of the last ratios, base first."""
        last = [record.ratios for record in self.records.values() if record.coefficients]
        return [statistics.median(column) for column in zip(*last, strict=True)]


def outcome(label: str, rule: Rule | None, records: Sequence[Record], wanted: int, task: TaskInfo) -> Outcome:
    """The complete trials among the given ones, one for each seed."""
    done = {r.seed: r for r in records if r.status == "done"}
    return Outcome(
        label,
        rule,
        done,
        {seed: r.metrics[task.select_key] for seed, r in done.items()},
        {seed: r.metrics[task.report_key] for seed, r in done.items()},
        wanted,
        frozenset(r.seed for r in records if r.status == "diverged"),
    )


def best(outcomes: Sequence[Outcome], task: TaskInfo) -> Outcome:
    """The outcome that the selecting split prefers: fewest diverged seeds, then the best mean.

    Compared on the seeds that most of them have; a study that was stopped must not prefer a point for being complete,
    and one point with few seeds must not decide for all.
    """
    kept, common = comparable([o for o in outcomes if o.ended])

    def worth(o: Outcome) -> tuple[int, float]:
        seeds = common or o.ended
        values = [o.select[s] for s in seeds if s in o.select]
        return -len(o.lost & seeds), task.sign * statistics.fmean(values) if values else -math.inf

    return max(kept, key=worth) if kept else outcomes[0]


def comparable(outcomes: Sequence[Outcome]) -> tuple[list[Outcome], frozenset[int]]:
    """The outcomes that can be compared, and the seeds that all of those have; none where no seed is shared by most.

    Left out are outcomes with less than half of the seeds that most have, and then those with the fewest until the
    others have at least half of these seeds in common.
    """
    held = Counter(seed for o in outcomes for seed in o.ended)
    usual = frozenset(seed for seed, count in held.items() if 2 * count > len(outcomes))
    if not usual:
        return list(outcomes), usual
    kept = sorted(outcomes, key=lambda o: -len(o.ended & usual))
    while 2 * len(common := usual.intersection(*(o.ended for o in kept))) < len(usual):
        kept.pop()
    left = {id(o) for o in kept}
    return [o for o in outcomes if id(o) in left], common


def best_of_each_seed(outcomes: Sequence[Outcome], seeds: Sequence[int], task: TaskInfo) -> Outcome:
    """What a search ends with: for each seed the complete trial that the selecting split prefers."""
    of_seed = {seed: [o for o in outcomes if seed in o.select] for seed in seeds}
    records = [best(found, task).records[seed] for seed, found in of_seed.items() if found]
    return outcome("chosen in each seed", None, records, len(seeds), task)


def common_seeds(one: Outcome, other: Outcome) -> list[int]:
    """The seeds in which both have a finite metric."""
    return sorted(set(one.report) & set(other.report))


def is_better(one: Outcome, other: Outcome, sign: int) -> bool:
    """Whether the first does better on the seeds that both have: fewer diverged, or else a better mean."""
    common = one.ended & other.ended
    lost = len(one.lost & common), len(other.lost & common)
    if lost[0] != lost[1]:
        return lost[0] < lost[1]
    finite = [s for s in common if s in one.report and s in other.report]
    return bool(finite) and sign * statistics.fmean(one.report[s] - other.report[s] for s in finite) > 0
