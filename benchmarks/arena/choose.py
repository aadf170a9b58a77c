"""Compare settings of halving on full trainings around gradient units, as a table in Markdown.

    python -m benchmarks.arena.choose docs/results/data/arena/halving.jsonl.xz docs/results/data/arena/judged.jsonl.xz

The trainings are those of ``--rules around``, the references those of ``--rules grid``, in any of the files.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.arena import points, records, searches
from benchmarks.arena.score import GRID, score, summary
from benchmarks.arena.stack import MOMENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.arena.records import Record
    from benchmarks.arena.task import Task

FACTORS = (4, 12, 20, 30, 60, (4, 12), (4, 30))
#: When rounds end, as parts of the training, and how many go on.
SCHEDULES: tuple[tuple[tuple[float, ...], tuple[int, ...]], ...] = (
    ((1 / 9,), (1,)),
    ((1 / 36, 1 / 9), (3, 1)),
    ((1 / 36, 1 / 9, 1 / 3), (3, 2, 1)),
    ((1 / 18, 1 / 9, 1 / 3), (3, 2, 1)),
    ((1 / 18, 1 / 6, 1 / 3), (3, 2, 1)),
    ((1 / 36, 1 / 9, 1 / 2), (3, 2, 1)),
    ((1 / 36, 1 / 9, 1 / 3), (5, 2, 1)),
    ((1.0,), (1,)),
)


def settings() -> Iterator[dict[str, Any]]:
    for travel, factors, (rounds, keep), seat in itertools.product(points.DRIFTS, FACTORS, SCHEDULES, (False, True)):
        if seat and len(keep) == 1:
            continue  # it makes no difference
        each = factors if isinstance(factors, tuple) else (factors,)
        parts = [short(part) for n in each for part in (1 / n, n)]
        ends = [short(end) for end in rounds]
        yield {"travel": travel, "factors": parts, "rounds": ends, "keep": list(keep), "seat": seat}


def short(value: float) -> float:
    return float(f"{value:.6g}")


def halved(given: Sequence[Record], find: Callable[[str], Task]) -> list[Record]:
    """The records of halving under all settings."""
    found = []
    for name in dict.fromkeys(record["task"] for record in given):
        task, mine = find(name), [r for r in given if r["task"] == name and r["variant"] == "adam"]
        for one in settings():
            found += searches.from_units(mine, len(task.terms) - 1, task.higher, one)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    from benchmarks.arena import tasks

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument(
        "--seeds", type=int, nargs=2, metavar=("FIRST", "LAST"), help="of a hundred: 10 19 reads 110, too"
    )
    options = parser.parse_args(arguments)
    given = [record for file in options.files for record in records.read(file)]
    if options.seeds:
        first, last = options.seeds
        given = [record for record in given if first <= record["seed"] % 100 <= last]
    grid = [record for record in given if record["rule"] == GRID]
    around = [record for record in given if len(record.get("curve", ())) == MOMENTS]  # older records have fewer
    print(summary(score([*grid, *halved(around, tasks.get)], lambda name: tasks.get(name).higher)))


if __name__ == "__main__":
    main()
