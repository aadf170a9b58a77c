"""Print the metrics of every point of a study on several sets, means over the seeds, as the paper's tables do.

python benchmarks/metrics_table.py docs/results/data/depth/nyu test,7scenes,tum delta_1,si_log,f_a
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from study_table import markdown
from trajectories import setting

from trainonce.study.points import Final, Learned, Replay
from trainonce.study.store import Store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainonce.study.points import Point
    from trainonce.study.store import Record

DECIMALS = {"si_log": 2}
UNBROKEN = "\u00a0"  # a space that does not end a line


def main() -> None:
    folder, sets, metrics = sys.argv[1], sys.argv[2].split(","), sys.argv[3].split(",")
    points: dict[Point, list[Record]] = {}
    for record in Store(Path(folder), writable=False).read().values():
        if record.status == "done":
            points.setdefault(record.point, []).append(record)
    head = ["weights", "at the end", "seeds", *(f"{one} {metric}" for one in sets for metric in metrics)]
    rows = [
        [
            named(point),
            " : ".join(f"{statistics.mean(w):.2f}" for w in zip(*(r.weights for r in records), strict=True)),
            str(len(records)),
            *(spread([r.metrics[f"{one}/{metric}"] for r in records], metric) for one in sets for metric in metrics),
        ]
        for point, records in sorted(points.items(), key=lambda each: order(each[0]))
    ]
    print(markdown([[cell.replace(" ", UNBROKEN) for cell in row] for row in [head, *rows]]))


def order(point: Point) -> tuple[str, str]:
    """Fixed weights, learned ones, controls; those of a kind by name."""
    return str(KINDS.index(point.kind)) if point.kind in KINDS else point.kind, point.label


KINDS = ("fixed", "learned", "replay", "final")


def named(point: Point) -> str:
    """As in 'fixed 1 : 0.25 : 0.01' and 'learned, ε 0.1, ρ 20'."""
    if isinstance(point, Learned):
        return f"{point.kind}, {setting(point)}"
    return f"{point.kind}, {setting(point.of)}" if isinstance(point, (Replay, Final)) else f"{point.kind} {point.label}"


def spread(values: Sequence[float], metric: str) -> str:
    places = DECIMALS.get(metric, 1)
    around = f"±{statistics.stdev(values):.{places}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{places}f}{around}"


if __name__ == "__main__":
    main()
