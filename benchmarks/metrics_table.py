"""Print the metrics of every point of a study on several sets, means over the seeds, as the paper's tables do.

python benchmarks/metrics_table.py docs/results/data/depth/nyu.tar.xz \\
    test=NYU,7scenes=7-Scenes,tum=TUM delta_1,si_log,f_a
"""

from __future__ import annotations

import itertools
import statistics
import sys
from typing import TYPE_CHECKING

from records import open_study
from study_table import markdown
from trajectories import label_of

from trainonce.study.store import Store
from trainonce.study.weightings import Learned, Replay

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trainonce.study.record import Record
    from trainonce.study.weightings import Weighting

DECIMALS = {"si_log": 2}
ALIKE = 0.05
UNBROKEN = "\u00a0"  # a space that does not end a line


def main() -> None:
    metrics = sys.argv[3].split(",")
    sets = dict(one.split("=") if "=" in one else (one, one) for one in sys.argv[2].split(","))
    weightings: dict[Weighting, list[Record]] = {}
    with open_study(sys.argv[1]) as folder:
        records = Store(folder, writable=False).read()
    for record in records.values():
        weightings.setdefault(record.weighting, []).append(record)
    head = ["weights", *(f"{title} {metric}" for title in sets.values() for metric in metrics), "at the end", "seeds"]
    rows = [row(weighting, weightings[weighting], sets, metrics) for weighting in sorted(weightings, key=order)]
    print(markdown([[cell.replace(" ", UNBROKEN) for cell in row] for row in [head, *rows]]))


def row(weighting: Weighting, records: Sequence[Record], sets: Iterable[str], metrics: Sequence[str]) -> list[str]:
    done = [record for record in records if record.status == "done"]
    others = f" ({len(records) - len(done)} without a result)" if len(done) < len(records) else ""
    values = ([r.metrics[f"{one}/{metric}"] for r in done] for one in sets for metric in metrics)
    return [
        name_of(weighting),
        *(mean_and_deviation(found, metric) for found, metric in zip(values, itertools.cycle(metrics), strict=False)),
        " : ".join(reach(weights) for weights in zip(*(r.weights for r in done), strict=True)),
        f"{len(done)}{others}",
    ]


def reach(weights: Sequence[float]) -> str:
    """Where a weight ended: in each seed alike, or from where to where."""
    low, high = f"{min(weights):.2f}", f"{max(weights):.2f}"
    return f"{statistics.mean(weights):.2f}" if max(weights) - min(weights) < ALIKE else f"{low} to {high}"


def order(weighting: Weighting) -> tuple[str, str]:
    """Fixed weights, learned ones, controls; those of a kind by name."""
    return str(KINDS.index(weighting.kind)) if weighting.kind in KINDS else weighting.kind, weighting.label


KINDS = ("fixed", "learned", "replay", "final")


def name_of(weighting: Weighting) -> str:
    """As in 'fixed 1 : 0.25 : 0.01' and 'learned, ε 0.1, ρ 20, lr 0.01'."""
    if isinstance(weighting, Learned):
        return f"{weighting.kind}, {label_of(weighting)}"
    return (
        f"{weighting.kind}, {label_of(weighting.of)}"
        if isinstance(weighting, Replay)
        else f"{weighting.kind} {weighting.label}"
    )


def mean_and_deviation(values: Sequence[float], metric: str) -> str:
    if not values:
        return ""
    places = DECIMALS.get(metric, 1)
    around = f"±{statistics.stdev(values):.{places}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{places}f}{around}"


if __name__ == "__main__":
    main()
