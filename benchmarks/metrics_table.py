"""Print the metrics of every rule of a study on several test sets, means over the seeds, as the paper's tables do.

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

from trainonce.study.rules import Control
from trainonce.study.store import Store

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from trainonce.study.record import Record
    from trainonce.study.rules import Rule

DECIMALS = {"si_log": 2}
ALIKE = 0.05
#: The plans that are shown first, with what the table calls them.
KINDS = {"fixed": "fixed", "yoto": "learned", "replay": "replay", "final": "final"}


def table(study: str | Path, sets: Mapping[str, str], metrics: Sequence[str]) -> str:
    """The table of a study.

    :param sets: The test sets, by their names in the records, with their titles.
    """
    rules: dict[Rule, list[Record]] = {}
    with open_study(study) as folder:
        records = Store(folder, writable=False).read()
    for record in records.values():
        rules.setdefault(record.rule, []).append(record)
    one_rate = len({rule.settings["lr"] for rule in rules if rule.trains}) < 2
    rows = [[name_of(rule, lr=not one_rate), *cells(rules[rule], sets, metrics)] for rule in sorted(rules, key=order)]
    return markdown([["weights", *head(sets, metrics)], *rows])


def head(sets: Mapping[str, str], metrics: Sequence[str]) -> list[str]:
    if len(metrics) == 1:
        return [*sets.values(), "final weights"]
    return [f"{title}: {metric}" if metric == metrics[0] else metric for title in sets.values() for metric in metrics]


def cells(records: Sequence[Record], sets: Mapping[str, str], metrics: Sequence[str]) -> list[str]:
    """Return the results of a rule, and with one metric also its final coefficients."""
    done = [record for record in records if record.status == "done"]
    around = " ± " if len(metrics) == 1 else "±"  # narrow where there are many columns
    found = [
        mean_and_deviation([r.metrics[f"{one}/{metric}"] for r in done], DECIMALS.get(metric, 1), around)
        for one in sets
        for metric in metrics
    ]
    if len(done) < len(records):
        found[0] += f" ({len(records) - len(done)} of {len(records)} seeds missing)"
    last = " : ".join(reach(values) for values in zip(*(r.coefficients for r in done), strict=True))
    return [*found, last] if len(metrics) == 1 else found


def reach(values: Sequence[float]) -> str:
    """Return where a coefficient ended: the mean where all seeds agree, otherwise the range."""
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    return f"{statistics.mean(values):.2f}" if max(values) - min(values) < ALIKE else f"{low} to {high}"


def order(rule: Rule) -> tuple[int, str, str]:
    """Return the place of a rule: fixed ones, the paper's, controls, others; those of a kind by name."""
    known = list(KINDS)
    return (known.index(rule.plan) if rule.plan in KINDS else len(known)), rule.plan, rule.label


def name_of(rule: Rule, *, lr: bool) -> str:
    """Return the name of a row, as in 'fixed 1 : 0.25 : 0.01' and 'learned, ε 0.1, ρ 20'."""
    of = rule.of if isinstance(rule, Control) else rule
    kind = KINDS.get(rule.plan, rule.plan)
    return f"{kind}, {label_of(of, lr=lr)}" if of.trains else f"{kind} {rule.label}"


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
