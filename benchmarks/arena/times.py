"""What a training under each rule takes, in trainings with equal weights, from records of trainings that ran alone.

python -m benchmarks.arena digits burgers --rules uniform units printed upgrad --points 1 --out times.jsonl
python -m benchmarks.arena.times times.jsonl
"""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.arena import records
from benchmarks.arena.score import name_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from benchmarks.arena.records import Record

PLAIN = "uniform"


def ratios(given: Iterable[Record]) -> dict[str, dict[str, float]]:
    """By rule and task: the median time of a training over that with equal weights."""
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    for record in given:
        times[name_of(record), record["task"]].append(record["seconds"])
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for (rule, task), seconds in times.items():
        found[rule][task] = statistics.median(seconds) / statistics.median(times[PLAIN, task])
    return found


def table(given: Iterable[Record]) -> str:
    found = ratios(given)
    tasks = list(found[PLAIN])
    rows = sorted(found.items(), key=lambda item: statistics.fmean(item[1].values()))
    lines = [f"| {rule} | " + " | ".join(f"{of[task]:.2f}" for task in tasks) + " |" for rule, of in rows]
    return "\n".join([f"| rule | {' | '.join(tasks)} |", "|---|" + "---:|" * len(tasks), *lines])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", type=Path)
    print(table(records.read(parser.parse_args().records)))


if __name__ == "__main__":
    main()
