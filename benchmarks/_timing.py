"""Interleaved timing: every method of a cell in every round, compared within the round."""

from __future__ import annotations

import gc
import math
import statistics
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable

    Step = Callable[[], None]

BLOCK_SECONDS = 0.01  # steps shorter than this are timed several at a time
FEW_ROUNDS = 6  # with fewer there is no 95 % interval


class Estimate(NamedTuple):
    """A median with its 95 % interval; the ends are NaN where there are too few values for one."""

    value: float
    low: float = math.nan
    high: float = math.nan


def median_interval(values: Iterable[float]) -> Estimate:
    """The median and the order statistics that enclose the true median with probability 0.95."""
    ordered = sorted(values)
    n, k, tail, ways = len(ordered), 0, 0, 1  # in whole numbers: 2**n soon leaves the floats
    while 40 * (tail + ways) <= 2**n:  # at most 2.5 % of the n coin tosses fall on one side k times or fewer
        tail += ways
        ways = ways * (n - k) // (k + 1)
        k += 1
    middle = statistics.median(ordered)
    return Estimate(middle, ordered[k - 1], ordered[n - k]) if k else Estimate(middle)


# Timing


@dataclass
class Entry:
    """One method in a cell: its step, the seconds per step of each round it took part in, and what to say of it."""

    name: str
    step: Step | None = None
    times: dict[int, float] = field(default_factory=dict)
    used: float = 0.0  # seconds
    peak: float | None = None  # MiB a step needs on top of what is allocated between steps
    note: str = ""


@dataclass
class Clock:
    device: torch.device
    kind: str = "wall"

    def seconds(self, step: Step, count: int) -> float:
        """The time of ``count`` steps, the device's work included."""
        read = time.process_time if self.kind == "cpu" else time.perf_counter
        self.wait()
        begin = read()
        for _ in range(count):
            step()
        self.wait()
        return read() - begin

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def peak_of_step(step: Step, clock: Clock) -> float | None:
    if clock.device.type != "cuda":
        return None  # the CPU allocator keeps no such count
    clock.wait()
    torch.cuda.reset_peak_memory_stats(clock.device)
    before = torch.cuda.memory_allocated(clock.device)
    step()
    clock.wait()
    return (torch.cuda.max_memory_allocated(clock.device) - before) / 2**20


def run_rounds(entries: list[Entry], clock: Clock, limit: float, rng: random.Random) -> int:
    """Time all entries in turn until the first has used ``limit`` seconds; a slower one stops when it has."""
    live = [e for e in entries if e.step is not None]
    gc.collect()
    gc.freeze()  # or each collection would walk over the models of all methods
    block = max(1, round(BLOCK_SECONDS / clock.seconds(live[0].step, 3) * 3))
    for turn in range(sys.maxsize):
        taking_part = [e for e in live if e.used < limit]
        if live[0] not in taking_part:
            break
        rng.shuffle(taking_part)
        for entry in taking_part:
            if block > 1:
                entry.step()  # untimed: the caches are still full of the method before
            spent = clock.seconds(entry.step, block)
            entry.times[turn] = spent / block
            entry.used += spent
    gc.unfreeze()
    for entry in live:
        if len(entry.times) < FEW_ROUNDS:
            entry.note = f"stopped after {len(entry.times)} rounds, {limit:g} s"
    return block


def paired(entry: Entry, base: Entry, compare: Callable[[float, float], float]) -> Estimate:
    if entry.step is None:  # timed once, outside the rounds
        middle = statistics.median(base.times.values())
        return Estimate(compare(entry.times[0], middle))
    return median_interval(compare(t, base.times[turn]) for turn, t in entry.times.items() if turn in base.times)
