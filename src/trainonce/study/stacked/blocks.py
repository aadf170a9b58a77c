"""Blocks: the trials that become one stack, which are all rules with the same seeds that are measured alike."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from trainonce.study.stacked.kinds import kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainonce.study.executors.base import Job
    from trainonce.study.rules import Rule


@dataclasses.dataclass(frozen=True)
class Block:
    """Rules times seeds, each a trial."""

    rules: tuple[Rule, ...]
    seeds: tuple[int, ...]
    jobs: Mapping[tuple[int, str], Job]  # by seed and name_of a rule

    @property
    def models(self) -> int:
        return len(self.rules) * len(self.seeds)

    def halves(self) -> list[Block]:
        """Return the block in two, for when its memory does not suffice."""
        if len(self.rules) > 1:
            middle = len(self.rules) // 2
            return [self._part(some, self.seeds) for some in (self.rules[:middle], self.rules[middle:])]
        middle = len(self.seeds) // 2
        return [self._part(self.rules, some) for some in (self.seeds[:middle], self.seeds[middle:])]

    def _part(self, rules: tuple[Rule, ...], seeds: tuple[int, ...]) -> Block:
        names = [name_of(rule) for rule in rules]
        jobs = {(seed, name): self.jobs[seed, name] for seed in seeds for name in names}
        return Block(rules, seeds, jobs)


def blocks_of(jobs: Sequence[Job], most: int) -> list[Block]:
    """Return the trials as blocks of at most so many models.

    A measurement costs a backward pass for each term of all models in a stack, and alignment one more. So rules that
    measure stand apart from the others.
    """
    rows: dict[str, dict[int, Job]] = {}
    rules: dict[str, Rule] = {}
    for job in jobs:
        assert job.rule is not None
        rules[name_of(job.rule)] = job.rule
        rows.setdefault(name_of(job.rule), {})[job.seed] = job
    groups: dict[tuple[tuple[int, ...], bool, bool], list[Rule]] = {}
    for name, row in rows.items():
        rule = rules[name]
        groups.setdefault((tuple(sorted(row)), rule.measures, rule.aligns), []).append(rule)
    blocks = []
    for (seeds, *_), some in groups.items():
        ordered = tuple(sorted(some, key=kind))
        own = {(seed, name): rows[name][seed] for seed in seeds for name in map(name_of, ordered)}
        blocks += _split(Block(ordered, seeds, own), most)
    return blocks


def name_of(rule: Rule) -> str:
    """Return a name that no other rule has; one with settings by term cannot be a key itself."""
    return repr(rule)


def _split(block: Block, most: int) -> list[Block]:
    if block.models <= max(1, most):
        return [block]
    return [part for half in block.halves() for part in _split(half, most)]
