"""Print the metrics of every weighting of a study on several test sets, means over the seeds, as the paper's tables do.

python benchmarks/metrics_table.py docs/results/data/depth/nyu.tar.xz test=NYU,7scenes=7-Scenes,tum=TUM delta_1
python benchmarks/metrics_table.py docs/results/data/depth/nyu.tar.xz test=NYU,7scenes=7-Scenes,tum=TUM si_log,f_a

With one metric the columns are the test sets and the final weights. With several there is a column for each metric on
each test set.
"""

from __future__ import annotations

import statistics
import sys
from typing import TYPE_CHECKING

from _tables import label_of, markdown
from records import open_study

from trainonce.study.store import Store
from trainonce.study.weightings import Learned, Replay

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from trainonce.study.record import Record
    from trainonce.study.weightings import Weighting

DECIMALS = {"si_log": 2}
ALIKE = 0.05
KINDS = ("fixed", "learned", "replay", "final")


def table(study: str | Path, sets: Mapping[str, str], metrics: Sequence[str]) -> str:
    """The table of a study.

    :param sets: The test sets, by their names in the records, with their titles.
    """
    weightings: dict[Weighting, list[Record]] = {}
    with open_study(study) as folder:
        records = Store(folder, writable=False).read()
    for record in records.values():
        weightings.setdefault(record.weighting, []).append(record)
    one_rate = len({w.lr for w in weightings if isinstance(w, Learned)}) < 2
    rows = [
        [name_of(weighting, lr=not one_rate), *cells(weightings[weighting], sets, metrics)]
        for weighting in sorted(weightings, key=order)
    ]
    return markdown([["weights", *head(sets, metrics)], *rows])


def head(sets: Mapping[str, str], metrics: Sequence[str]) -> list[str]:
    if len(metrics) == 1:
        return [*sets.values(), "final weights"]
    return [f"{title}: {metric}" if metric == metrics[0] else metric for title in sets.values() for metric in metrics]


def cells(records: Sequence[Record], sets: Mapping[str, str], metrics: Sequence[str]) -> list[str]:
    """The results of a weighting, and with one metric also its final weights."""
    done = [record for record in records if record.status == "done"]
    around = " ± " if len(metrics) == 1 else "±"  # narrow where there are many columns
    found = [
        mean_and_deviation([r.metrics[f"{one}/{metric}"] for r in done], DECIMALS.get(metric, 1), around)
        for one in sets
        for metric in metrics
    ]
    if len(done) < len(records):
        found[0] += f" ({len(records) - len(done)} of {len(records)} seeds missing)"
    weights = " : ".join(reach(weights) for weights in zip(*(r.weights for r in done), strict=True))
    return [*found, weights] if len(metrics) == 1 else found


def reach(weights: Sequence[float]) -> str:
    """Where a weight ended: the mean where all seeds agree, otherwise the range."""
    low, high = f"{min(weights):.2f}", f"{max(weights):.2f}"
    return f"{statistics.mean(weights):.2f}" if max(weights) - min(weights) < ALIKE else f"{low} to {high}"


def order(weighting: Weighting) -> tuple[str, str]:
    """Fixed weights, learned ones, controls; those of a kind by name."""
    return str(KINDS.index(weighting.kind)) if weighting.kind in KINDS else weighting.kind, weighting.label


def name_of(weighting: Weighting, *, lr: bool) -> str:
    """As in 'fixed 1 : 0.25 : 0.01' and 'learned, ε 0.1, ρ 20'."""
    of = weighting.of if isinstance(weighting, Replay) else weighting
    return (
        f"{weighting.kind}, {label_of(of, lr=lr)}" if isinstance(of, Learned) else f"{weighting.kind} {weighting.label}"
    )


def mean_and_deviation(values: Sequence[float], places: int, around: str) -> str:
    if not values:
        return ""
    deviation = f"{around}{statistics.stdev(values):.{places}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{places}f}{deviation}"


def main() -> None:
    study, sets, metrics = sys.argv[1:4]
    print(table(study, dict(one.split("=") for one in sets.split(",")), metrics.split(",")))


if __name__ == "__main__":
    main()
