"""Which trials become one stack: all weightings with the same seeds that are measured alike."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from trainonce.study.stacked.training import kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainonce.study.executors.base import Job
    from trainonce.study.weightings import Weighting


@dataclasses.dataclass(frozen=True)
class Block:
    """Weightings times seeds, each a trial."""

    weightings: tuple[Weighting, ...]
    seeds: tuple[int, ...]
    jobs: Mapping[tuple[int, str], Job]  # by seed and name_of a weighting

    @property
    def models(self) -> int:
        return len(self.weightings) * len(self.seeds)

    def halves(self) -> list[Block]:
        """The block in two, for when its memory does not suffice."""
        if len(self.weightings) > 1:
            middle = len(self.weightings) // 2
            return [self._part(some, self.seeds) for some in (self.weightings[:middle], self.weightings[middle:])]
        middle = len(self.seeds) // 2
        return [self._part(self.weightings, some) for some in (self.seeds[:middle], self.seeds[middle:])]

    def _part(self, weightings: tuple[Weighting, ...], seeds: tuple[int, ...]) -> Block:
        names = [name_of(weighting) for weighting in weightings]
        jobs = {(seed, name): self.jobs[seed, name] for seed in seeds for name in names}
        return Block(weightings, seeds, jobs)


def blocks_of(jobs: Sequence[Job], most: int) -> list[Block]:
    """The trials as blocks of at most so many models.

    A measurement costs a backward pass for each term of all models in a stack. So weightings in gradient units stand
    apart from the others.
    """
    rows: dict[str, dict[int, Job]] = {}
    weightings: dict[str, Weighting] = {}
    for job in jobs:
        assert job.weighting is not None
        weightings[name_of(job.weighting)] = job.weighting
        rows.setdefault(name_of(job.weighting), {})[job.seed] = job
    groups: dict[tuple[tuple[int, ...], bool], list[Weighting]] = {}
    for name, row in rows.items():
        groups.setdefault((tuple(sorted(row)), kind(weightings[name])[0] == "units"), []).append(weightings[name])
    blocks = []
    for (seeds, _), some in groups.items():
        ordered = tuple(sorted(some, key=kind))
        own = {(seed, name): rows[name][seed] for seed in seeds for name in map(name_of, ordered)}
        blocks += _split(Block(ordered, seeds, own), most)
    return blocks


def name_of(weighting: Weighting) -> str:
    """A name that no other weighting has; one with settings by term cannot be a key itself."""
    return repr(weighting)


def _split(block: Block, most: int) -> list[Block]:
    if block.models <= max(1, most):
        return [block]
    return [part for half in block.halves() for part in _split(half, most)]
