"""Which trial may run next: what is missing or failed, what must wait for what, what another process has."""

from __future__ import annotations

import dataclasses
import itertools
import time
from typing import TYPE_CHECKING, NamedTuple

from trainonce.study.executors.base import Job
from trainonce.study.rules import Rule, key_of, labels, obstacle

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from trainonce.study.plans import Plan
    from trainonce.study.record import Record
    from trainonce.study.search import Search

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

    def label(self, key: str) -> str:
        if self.search is not None:
            return f"{self.plan} {self.keys.index(key) + 1}/{self.search.trials}"
        point = self.point.removeprefix(f"{self.plan.partition('(')[0]}, ")
        return f"{self.plan} {point}" if point not in self.plan else self.plan


def items(plans: Iterable[Plan], seeds: Sequence[int], identity: str) -> list[Item]:
    """Everything a study consists of, seed by seed, so that it can be read early. Sweeps come last in a seed."""
    everything = []
    ordered = [(p, list(zip(p.rules, labels(p.rules), strict=True))) for p in plans]
    ordered.sort(key=lambda pair: pair[0].kind == "sweep")
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

    def __init__(self, everything: Sequence[Item], records: dict[str, Record]) -> None:
        self.records = records
        self._items = list(everything)
        self._tried: set[str] = set()
        self._away: dict[str, float] = {}  # trials that another process has, and when to check again
        self._running: set[str] = set()
        self._open = {key for item in everything for key in item.keys if self._is_open(key)}
        self.skipped: list[Skip] = []

    def next(self) -> tuple[Job, str] | None:
        """A trial that can start now and its label, or None."""
        for item in list(self._items):
            missing = [key for key in item.keys if self._is_open(key)]
            blocked = self._obstacle(item.source)
            if not missing or blocked:
                self._items.remove(item)
                self._open.difference_update(missing)
                self.skipped += [Skip(item.label(missing[0]), item.seed, blocked)] if missing else []
                continue
            key = missing[0]
            if key not in self._running and self._away.get(key, 0) <= time.monotonic() and self._is_ready(item.source):
                self._running.add(key)
                return self._job(item, key), item.label(key)
        return None

    def _is_open(self, key: str) -> bool:
        record = self.records.get(key)
        return record is None or (record.status == "failed" and key not in self._tried)

    def _is_ready(self, source: str | None) -> bool:
        return source is None or not self._is_open(source)

    def _obstacle(self, source: str | None) -> str:
        """Why the trial that is needed cannot be used, now that it has ended; nothing where it can, or has not."""
        return "" if source is None or self._is_open(source) else obstacle(self.records[source])

    def _job(self, item: Item, key: str) -> Job:
        done = [self.records[k] for k in item.keys if k in self.records and k != key]
        return Job(key, item.seed, item.rule, item.source, item.search, item.keys.index(key), done)

    def close(self, key: str, record: Record) -> None:
        """Take the record of a trial that has ended."""
        self._running.discard(key)
        self._away.pop(key, None)
        self._tried.add(key)
        self._open.discard(key)
        self.records[key] = record

    def postpone(self, key: str) -> None:
        """Leave a trial to the other process that is running it, and check again later."""
        self._running.discard(key)
        self._away[key] = time.monotonic() + POLL

    @property
    def is_finished(self) -> bool:
        return not self._items and not self._running

    @property
    def left(self) -> int:
        """How many trials are still to end."""
        return len(self._open)

    @property
    def elsewhere(self) -> int:
        """How many trials another process is running."""
        return sum(self._is_open(key) for key in self._away)
