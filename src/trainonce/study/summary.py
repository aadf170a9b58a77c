"""What a study found: one row per plan, chosen on one split, reported on the other, with seeds and cost."""

from __future__ import annotations

import dataclasses
import functools
import math
import statistics
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainonce.study import trial_rows
from trainonce.study.intervals import ROUNDING, Interval, paired_interval, verdict
from trainonce.study.outcomes import Outcome as Outcome
from trainonce.study.outcomes import best, best_of_each_seed, common_seeds, is_better, outcome
from trainonce.study.plans import SEARCHES, SINGLE
from trainonce.study.rules import Rule, fixed, key_of, labels, obstacle, read_rule
from trainonce.study.search import Search
from trainonce.study.store import Store
from trainonce.study.task import Splits
from trainonce.study.trial_rows import TrialRow

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence

    from trainonce.study.plans import Kind
    from trainonce.study.record import Record
    from trainonce.study.task import Direction

ENOUGH = 3  # seeds to compare plans on, where most of them have as many
MARGIN = 0.02  # of the reference's mean, where the task names no margin


@dataclasses.dataclass(frozen=True)
class TaskInfo(Splits):
    """What the store knows of the task."""

    name: str
    terms: tuple[str, ...]
    metric: str
    direction: Direction
    select: str
    report: str
    unit: str
    margin: float | None
    about: str
    settings: Mapping[str, Any]
    identity: str
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    own: Mapping[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Row:
    """A plan: all its outcomes, the one it stands for, and what it cost.

    ``cost`` counts full trainings for each seed, with the part that ran of paused and failed ones; ``seconds`` is their
    time. ``difference`` is to the reference on the same seeds, positive where better. ``beaten_by`` counts the points
    of the reference's plan whose mean of the reported metric is better.
    """

    plan: str
    kind: Kind
    seeds: frozenset[int]
    outcomes: tuple[Outcome, ...]
    chosen: Outcome
    cost: float
    seconds: float
    counts: Mapping[str, int]
    difference: Interval | None = None
    beaten_by: int | None = None

    @property
    def lacking(self) -> int:
        """How many of its trials have not been run or have failed."""
        return self.counts.get("missing", 0) + self.counts.get("failed", 0)

    @property
    def tried(self) -> int:
        """How many points of a set have an outcome, or how many trials each seed of a search has."""
        if self.kind == "search":
            return sum(self.counts.values()) // len(self.seeds)
        return sum(bool(o.ended) for o in self.outcomes)


class Summary:
    """Everything a report needs, read from a store alone.

    >>> Summary.read("nowhere")
    Traceback (most recent call last):
    FileNotFoundError: There is no study in nowhere.
    """

    def __init__(
        self, manifest: Mapping[str, Any], records: Sequence[Record], path: os.PathLike[str] | None = None
    ) -> None:
        info = manifest["task"]
        self.task: TaskInfo = TaskInfo(**info | {"terms": tuple(info["terms"])})
        self.path = path
        self.plans: Sequence[Mapping[str, Any]] = manifest["plans"]
        self.records = records
        self._all: dict[str, list[Record]] = {}
        for record in records:
            self._all.setdefault(record.key, []).append(record)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Summary:
        """The summary of the study in a folder."""
        store = Store(path, writable=False)
        manifest = store.read_manifest()
        if manifest is None:
            raise FileNotFoundError(f"There is no study in {path}.")
        return cls(manifest, store.read_all(), store.path)

    def __repr__(self) -> str:
        """Return the mean result of each plan; ``trainonce.report.text`` says what they mean."""
        head = f"Summary of {self.task.name}: {len(self.trials)} trials, mean {self.task.report} {self.task.metric}"
        width = max([0, *(len(row.plan) for row in self.rows)])
        values = [f"{row.chosen.mean:.5g}" if row.chosen.report else "no result" for row in self.rows]
        return "\n".join([head, *(f"  {r.plan:<{width}}  {v}" for r, v in zip(self.rows, values, strict=True))])

    # One row per trial

    @functools.cached_property
    def trials(self) -> list[TrialRow]:
        """The records that the plans use, plan by plan; those of other plans or earlier tasks are left out."""
        users: dict[str, list[str]] = {}
        for plan in self.plans:
            for key in dict.fromkeys(keys_of(plan, self.task.identity)):
                users.setdefault(key, []).append(plan["name"])
        order = {plan["name"]: place for place, plan in enumerate(self.plans)}
        kept = [record for record in self.records if record.key in users]
        last = {record.key: index for index, record in enumerate(kept)}
        found = [TrialRow(tuple(users[r.key]), r, last[r.key] == i) for i, r in enumerate(kept)]
        return sorted(found, key=lambda t: (order[t.plans[0]], t.record.rule.label, t.record.seed))

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return a dictionary for each trial: its plans, rule, seed, status, metrics, ratios, time.

        All have the same keys, so that ``pandas.DataFrame(summary.to_dicts())`` or any other library makes a table.
        """
        table = trial_rows.columns(self.trials, self.task.terms)
        return [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the trials to a CSV file with the columns of :meth:`to_dicts`, the same as the report's."""
        trial_rows.write(trial_rows.to_csv(trial_rows.columns(self.trials, self.task.terms)), Path(path))

    # Rows

    @functools.cached_property
    def rows(self) -> tuple[Row, ...]:
        """One row a plan, in the order they were added; plans of which nothing is complete are left out."""
        bare = [row for row in map(self._row, self.plans) if row is not None]
        reference = _reference(bare, self.task)
        return tuple(self._compare(row, reference) for row in bare)

    @functools.cached_property
    def reference(self) -> Row | None:
        """What the others are compared with: the best of the grid, without one of random points, or else of a search.

        Of several grids, or several searches, it is the one that the selecting split prefers.
        """
        return _reference(self.rows, self.task)

    @functools.cached_property
    def ranked(self) -> tuple[Row, ...]:
        """The rows that stand for one result, best first, those that diverged in a seed behind the others.

        Each is ranked by its mean difference to :attr:`anchor` on the seeds that both have, so that no plan gains by
        having easier seeds; one that shares no seed with it comes last. Sweeps show many results and rank nowhere.
        """
        rows, anchor = [row for row in self.rows if row.kind != "sweep" and row.chosen.report], self.anchor

        def place(row: Row) -> tuple[bool, bool, float]:
            found = None if anchor is None else self.compare(row, anchor)
            return row.chosen.diverged > 0, found is None, 0.0 if found is None else -found.mean

        return tuple(sorted(rows, key=place))

    @property
    def anchor(self) -> Row | None:
        """The row by which the others are ranked: the reference, or else one of those with the most seeds."""
        rows = [row for row in self.rows if row.kind != "sweep" and row.chosen.report]
        return self.reference or max(_in_order(rows), key=lambda row: len(row.chosen.report), default=None)

    def has_other_seeds(self, row: Row) -> bool:
        """Whether a row was asked for other seeds than the one by which it is ranked."""
        return self.anchor is not None and row.seeds != self.anchor.seeds

    @property
    def best_single(self) -> Row | None:
        """Of the plans that train once, the one that the selecting split prefers."""
        return self._single[0]

    @property
    def best_search(self) -> Row | None:
        """Of the grids, random points and searches, the one that the selecting split prefers."""
        return self._search[0]

    @property
    def not_chosen_from(self) -> tuple[Row, ...]:
        """The plans with too few seeds in common with others to be the best single training or the best search."""
        return self._single[1] + self._search[1]

    @functools.cached_property
    def _search(self) -> tuple[Row | None, tuple[Row, ...]]:
        return _prefer([row for row in self.rows if row.kind in SEARCHES and row.chosen.report], self.task)

    @functools.cached_property
    def _single(self) -> tuple[Row | None, tuple[Row, ...]]:
        rows = [row for row in self.rows if row.kind in SINGLE and row.chosen.report]
        reference = self.reference
        near = [row for row in rows if reference is None or common_seeds(row.chosen, reference.chosen)] or rows
        found, others = _prefer(near, self.task)
        return found, (*others, *(row for row in rows if not any(row is other for other in near)))

    @property
    def unfinished(self) -> list[str]:
        """The grids, random points and searches that lack trainings: a better choice may be among those."""
        lacking = {row.plan: row.lacking for row in self.rows}
        return sorted(p["name"] for p in self.plans if p["kind"] in SEARCHES and lacking.get(p["name"], True))

    @property
    def without_result(self) -> tuple[Row, ...]:
        """The plans of which no trial ended with a finite metric."""
        return tuple(row for row in self.rows if row.kind != "sweep" and not row.chosen.report)

    @functools.cached_property
    def equal_weights(self) -> Row | None:
        """The result of equal weights: of the plan that trains them, or of the point of a grid that has them."""
        rule, kinds = fixed([1.0] * len(self.task.terms)), (*SINGLE, "set")
        rows = sorted((row for row in _in_order(self.rows) if row.kind in kinds), key=lambda row: row.kind == "set")
        found = [(row, o) for row in rows for o in row.outcomes if o.rule == rule and o.report]
        for row, o in found[:1]:
            missing = {"missing": o.wanted - len(o.ended)}
            return dataclasses.replace(row, plan="uniform", kind="fixed", outcomes=(o,), chosen=o, counts=missing)
        return None

    def preferred(self, rows: Sequence[Row]) -> Row | None:
        """Return the row that the selecting split prefers, of those with enough seeds in common."""
        return _prefer([row for row in rows if row.chosen.report], self.task)[0]

    @property
    def sweeps(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.kind == "sweep")

    def _row(self, plan: Mapping[str, Any]) -> Row | None:
        seeds, keys = plan["seeds"], keys_of(plan, self.task.identity)
        if plan["kind"] == "search":
            outcomes = self._search_outcomes(keys)
            chosen = best_of_each_seed(outcomes, seeds, self.task)
        else:
            rules = [read_rule(content) for content in plan["rules"]]
            outcomes = [self._outcome(label, rule, seeds) for label, rule in zip(labels(rules), rules, strict=True)]
            chosen = best(outcomes, self.task)
        if not any(key in self._all for key in keys):
            return None
        spent = [record for key in keys for record in costly(self._all.get(key, ()))]
        left_out = {self._key(o.rule, seed) for o in outcomes if o.rule for seed in o.left_out}
        counts = Counter("left out" if key in left_out else self._status(key) for key in keys)
        return Row(
            plan["name"],
            plan["kind"],
            frozenset(seeds),
            tuple(outcomes),
            chosen,
            math.fsum(record.fraction for record in spent) / len(seeds),
            math.fsum(record.seconds for record in spent) / len(seeds),
            dict(counts),
        )

    def _key(self, rule: Rule, seed: int) -> str:
        return key_of(self.task.identity, rule, seed)

    def _last(self, key: str) -> Record | None:
        records = self._all.get(key)
        return records[-1] if records else None

    def _status(self, key: str) -> str:
        record = self._last(key)
        return "missing" if record is None else record.status

    def _outcome(self, label: str, rule: Rule, seeds: Iterable[int]) -> Outcome:
        found = {seed: self._last(self._key(rule, seed)) for seed in seeds}
        made = outcome(label, rule, [record for record in found.values() if record], len(found), self.task)
        sources = {seed: needed for seed in found if (needed := rule.needs(seed)) is not None}
        left_out = {
            seed: source.seed
            for seed, needed in sources.items()
            if seed not in made.ended and (source := self._last(self._key(*needed))) is not None
            if source.status != "failed" and obstacle(source)
        }
        return dataclasses.replace(made, left_out=left_out)

    def _search_outcomes(self, keys: Sequence[str]) -> list[Outcome]:
        """Each trial of each seed's search as an outcome of its own."""
        found = [record for key in keys if (record := self._last(key)) is not None and record.status != "failed"]
        named = zip(labels([record.rule for record in found]), found, strict=True)
        return [outcome(label, r.rule, [r], 1, self.task) for label, r in named]

    # Compared with the reference

    def _compare(self, row: Row, reference: Row | None) -> Row:
        if reference is None or row.kind == "sweep":
            return row
        difference = None if row is reference else self.compare(row, reference)
        if reference.kind == "search":
            return dataclasses.replace(row, difference=difference)
        shared = any(o.ended & row.chosen.ended for o in reference.outcomes)
        better = sum(is_better(o, row.chosen, self.task.sign) for o in reference.outcomes)
        return dataclasses.replace(row, difference=difference, beaten_by=better if shared else None)

    @property
    def margin(self) -> float:
        """The loss in the metric that is still acceptable."""
        if self.task.margin is not None:
            return self.task.margin
        return MARGIN * abs(self.anchor.chosen.mean) if self.anchor else math.nan

    @property
    def reference_size(self) -> int:
        """How many points of the reference's plan have an outcome."""
        return self.reference.tried if self.reference else 0

    def compare(self, one: Row, other: Row) -> Interval | None:
        """How much better the one does on the seeds that both have; None if they share none."""
        ours, theirs, common = one.chosen.report, other.chosen.report, common_seeds(one.chosen, other.chosen)
        if not common:
            return None
        rounding = ROUNDING * max(abs(values[s]) for values in (ours, theirs) for s in common)
        return paired_interval([self.task.sign * (ours[s] - theirs[s]) for s in common], rounding)

    def verdict(self, row: Row, other: Row | None = None) -> str:
        """What the interval of the difference to another row, by default the reference, says against the margin.

        See :func:`trainonce.study.intervals.verdict`; ``"diverged"`` where a seed of either diverged.
        """
        other = other or self.reference
        if other is None or row is other:
            return ""
        said = verdict(self.compare(row, other), self.margin)
        return "diverged" if said and (row.chosen.lost or other.chosen.lost) else said

    def expected_trainings(self, row: Row) -> float | None:
        """How many points of the reference's plan, tried in random order, it takes on average to do as well as the row.

        Generous to the search: it knows at once when a point does as well. None where no point does.
        """
        if row.beaten_by is None or self.reference is None or row is self.reference:
            return None
        return (self.reference_size + 1) / (row.beaten_by + 1) if row.beaten_by else None


def costly(records: Sequence[Record]) -> list[Record]:
    """Return the records that tell what a trial cost: all but pauses after which it went on."""
    ended = [record for record in records if record.status != "failed"]
    return [record for record in records if record.status != "paused" or record is ended[-1]]


def keys_of(plan: Mapping[str, Any], identity: str) -> list[str]:
    """The trials that a plan of a manifest consists of, those included that its controls need."""
    seeds, search = plan["seeds"], plan.get("search")
    if search is not None:
        made = Search(**search)
        return [made.key(identity, seed, number) for seed in seeds for number in range(made.trials)]
    rules = [read_rule(content) for content in plan["rules"]]
    own = [key_of(identity, rule, seed) for rule in rules for seed in seeds]
    return own + [key_of(identity, *needed) for rule in rules for seed in seeds if (needed := rule.needs(seed))]


def _reference(rows: Sequence[Row], task: TaskInfo) -> Row | None:
    searches = [row for row in rows if row.kind in SEARCHES and row.chosen.report]
    sets = [row for row in searches if row.kind == "set"]
    grids = [row for row in sets if row.plan.startswith("grid")]
    return _prefer(grids or sets or searches, task)[0]


def _in_order(rows: Iterable[Row]) -> list[Row]:
    """Return rows by name, so that the order of a study's plans decides nothing."""
    return sorted(rows, key=lambda row: row.plan)


def _prefer(rows: Sequence[Row], task: TaskInfo) -> tuple[Row | None, tuple[Row, ...]]:
    """The plan that the selecting split prefers, and those that have too few seeds to be judged.

    Each is judged by its mean difference to the plan with the most seeds, on the seeds that both have, so that no plan
    gains by having easier seeds and none decides on which seeds the others are judged. Diverged seeds come first.
    """
    if not rows:
        return None, ()
    rows = _in_order(rows)
    most = max(rows, key=lambda row: len(row.chosen.report))
    shared = [common_seeds(row.chosen, most.chosen) for row in rows]
    enough = max(1, min(ENOUGH, statistics.median_high(map(len, shared))))
    worth = {
        row.plan: (
            -row.chosen.diverged,
            task.sign * statistics.fmean(row.chosen.select[s] - most.chosen.select[s] for s in seeds),
        )
        for row, seeds in zip(rows, shared, strict=True)
        if len(seeds) >= enough
    }
    judged = [row for row in rows if row.plan in worth]
    return max(judged, key=lambda row: worth[row.plan]), tuple(row for row in rows if row.plan not in worth)
