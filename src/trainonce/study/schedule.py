"""Which trial may run next: what is missing or failed, what must wait for what, what another process has."""

from __future__ import annotations

import dataclasses
import itertools
import time
from typing import TYPE_CHECKING, NamedTuple

from trainonce.study import rungs
from trainonce.study.executors.base import Job
from trainonce.study.rules import Rule, key_of, labels, obstacle

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from trainonce.study.plans import Plan
    from trainonce.study.record import Record
    from trainonce.study.search import Search
    from trainonce.study.task import Splits

POLL = 0.5  # seconds between two checks of trials that another process is running


@dataclasses.dataclass(frozen=True)
class Item:
    """What one plan has to do for one seed: a rule, or the trials of a search one after the other."""

    plan: str
    seed: int
    keys: tuple[str, ...]
    rule: Rule | None = None
    search: Search | None = None
    source: str | None = None  # the key of the trial that the rule needs
    point: str = ""  # what distinguishes the rule within the plan

    @classmethod
    def of_rule(cls, plan: str, seed: int, rule: Rule, identity: str, label: str | None = None) -> Item:
        needed = rule.needs(seed)
        source = None if needed is None else key_of(identity, *needed)
        point = rule.label if label is None else label
        return cls(plan, seed, (key_of(identity, rule, seed),), rule, source=source, point=point)

    @classmethod
    def of_search(cls, plan: str, seed: int, search: Search, identity: str) -> Item:
        return cls(plan, seed, tuple(search.key(identity, seed, n) for n in range(search.trials)), search=search)

    @property
    def jobs(self) -> int:
        """How many records it ends with: a trial that pauses has one for each time."""
        return rungs.jobs(len(self.keys), self.search.rungs) if self.search is not None else len(self.keys)

    def label(self, key: str) -> str:
        if self.search is not None:
            return f"{self.plan} {self.keys.index(key) + 1}/{self.search.trials}"
        point = self.point.removeprefix(f"{self.plan.partition('(')[0]}, ")
        return f"{self.plan} {point}" if point not in self.plan else self.plan


def items(plans: Iterable[Plan], seeds: Sequence[int], identity: str) -> list[Item]:
    """Everything a study consists of, seed by seed, so that it can be read early.

    In a seed, plans that pause their trainings come first: a task that cannot is found out before others are trained.
    Sweeps come last.
    """
    everything = []
    ordered = [(p, list(zip(p.rules, labels(p.rules), strict=True))) for p in plans]
    ordered.sort(key=lambda pair: (pair[0].kind == "sweep", not (pair[0].search and pair[0].search.rungs)))
    for seed, (plan, points) in itertools.product(seeds, ordered):
        if plan.search is not None:
            everything.append(Item.of_search(plan.name, seed, plan.search, identity))
        named = len(points) > 1 or plan.kind == "fixed"
        everything += [
            Item.of_rule(plan.name, seed, rule, identity, label if named or rule.trains else "")
            for rule, label in points
        ]
    return _with_sources(everything, identity)


def _with_sources(everything: Sequence[Item], identity: str) -> list[Item]:
    """A control needs the run of another seed, asked for or not."""
    known = {key for item in everything for key in item.keys}
    added = []
    for item in everything:
        needed = None if item.rule is None else item.rule.needs(item.seed)
        if needed is not None and item.source not in known:
            rule, seed = needed
            added.append(Item.of_rule(rule.plan, seed, rule, identity))
            known.add(added[-1].keys[0])
    return added + list(everything)


def left_out(everything: Iterable[Item], records: Mapping[str, Record]) -> dict[str, str]:
    """The trials that will never run, by key, and why: controls of a run whose coefficients are not finite."""
    found: dict[str, str] = {}
    for item in everything:
        source = None if item.source is None else records.get(item.source)
        if source is not None and source.status != "failed" and (why := obstacle(source)):
            found |= {key: why for key in item.keys if key not in records or records[key].status == "failed"}
    return found


class Skip(NamedTuple):
    """A trial that is left out, and why."""

    label: str
    seed: int
    why: str


class Schedule:
    """Which trial may run next. Holds what is known of all trials; a failed one is tried once in a run."""

    def __init__(self, task: Splits, everything: Sequence[Item], records: Iterable[Record]) -> None:
        self.records: dict[str, Record] = {}
        self._task = task
        self._items = list(everything)
        self._scores: dict[str, dict[float, float]] = {}
        self._tried: set[str] = set()
        self._lost: set[str] = set()  # trials that failed in this run
        self._away: dict[str, float] = {}  # trials that another process has, and when to check again
        self._running: set[str] = set()
        self.skipped: list[Skip] = []
        for record in records:
            self._learn(record)

    def next(self) -> tuple[Job, str] | None:
        """Return a trial that can start now and its label, or None."""
        for item in list(self._items):
            missing = self._missing(item)
            blocked = self._obstacle(item.source)
            if not missing or blocked:
                self._items.remove(item)
                self.skipped += [Skip(item.label(missing[0][0]), item.seed, blocked)] if missing else []
                continue
            for key, until in missing:
                if key in self._running or self._away.get(key, 0) > time.monotonic() or not self._is_ready(item.source):
                    continue
                self._running.add(key)
                return self._job(item, key, until), item.label(key)
        return None

    def _missing(self, item: Item) -> list[tuple[str, float]]:
        """Return the trials that must run next, and until where; of a search without rungs one at a time."""
        if item.search is not None and item.search.rungs:
            return rungs.next_jobs([k for k in item.keys if k not in self._lost], item.search.rungs, self._scores)
        return [(key, rungs.END) for key in item.keys if self._is_open(key)][:1]

    def _is_open(self, key: str) -> bool:
        record = self.records.get(key)
        return record is None or record.status == "paused" or (record.status == "failed" and key not in self._tried)

    def _is_ready(self, source: str | None) -> bool:
        return source is None or not self._is_open(source)

    def _obstacle(self, source: str | None) -> str:
        """Why the trial that is needed cannot be used, now that it has ended; nothing where it can, or has not."""
        return "" if source is None or self._is_open(source) else obstacle(self.records[source])

    def _job(self, item: Item, key: str, until: float) -> Job:
        done = [self.records[k] for k in item.keys if k in self.records and k != key]
        return Job(key, item.seed, item.rule, item.source, item.search, item.keys.index(key), done, until)

    def close(self, key: str, found: Sequence[Record]) -> None:
        """Take what is new of a trial that ran: its last record is what it ended with."""
        self._running.discard(key)
        self._away.pop(key, None)
        self._tried.add(key)
        for record in found:
            self._learn(record)

    def _learn(self, record: Record) -> None:
        """Take a record. One that failed in this run does not go on; one that failed before is tried again."""
        self.records[record.key] = record
        if record.status != "failed":
            self._scores.setdefault(record.key, {})[record.until] = self._task.score(record.metrics)
            self._lost.discard(record.key)
        elif record.key in self._tried:
            self._lost.add(record.key)

    def postpone(self, key: str) -> None:
        """Leave a trial to the other process that is running it, and check again later."""
        self._running.discard(key)
        self._away[key] = time.monotonic() + POLL

    @property
    def is_finished(self) -> bool:
        return not self._items and not self._running

    @property
    def left(self) -> int:
        """How many records are still to come, at most."""
        return sum(self._left(item) for item in self._items)

    def _left(self, item: Item) -> int:
        if item.search is not None and item.search.rungs:
            return item.jobs - sum(len(self._scores.get(key, ())) for key in item.keys)
        return sum(self._is_open(key) for key in item.keys)

    @property
    def elsewhere(self) -> int:
        """How many trials another process is running."""
        return sum(self._is_open(key) for key in self._away)
