"""Print the metrics of every rule of a study on several test sets, means over the seeds, as the paper's tables do.

python benchmarks/metrics_table.py docs/results/data/depth/nyu.tar.xz test=NYU,7scenes=7-Scenes,tum=TUM delta_1
python benchmarks/metrics_table.py docs/results/data/depth/nyu.tar.xz test=NYU,7scenes=7-Scenes,tum=TUM si_log,f_a
python benchmarks/metrics_table.py out/unidepth test=nuScenes,sunrgbd=SUN-RGBD delta_1,si_log,f_a --mean

With one metric the columns are the test sets and the final weights. With several there is a column for each metric on
each test set.

With ``--mean`` it is the paper's Table 1: the points of the grids and the rules that train once, where their weights
ended, and for each metric the plain mean over the sets. The best of a column is **bold**, the second best *italic*;
what is printed alike is level. Below it stands which of them is best, over all sets.
"""

from __future__ import annotations

import statistics
import sys
from typing import TYPE_CHECKING

from _tables import label_of, markdown
from records import open_study, read_records

from trainonce.study import Summary
from trainonce.study.rules import Control, ratios_of
from trainonce.text import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from trainonce.study.record import Record
    from trainonce.study.rules import Rule
    from trainonce.study.summary import Outcome, Row

DECIMALS = {"si_log": 2}
#: The metrics that are better when lower.
LOWER = ("si_log", "a_rel", "rmse", "rmse_log", "focal")
ALIKE = 0.05
#: The plans that are shown first, with what the table calls them.
KINDS = {"fixed": "fixed", "yoto": "learned", "replay": "replay", "final": "final"}


def table(study: str | Path, sets: Mapping[str, str], metrics: Sequence[str]) -> str:
    """The table of a study.

    :param sets: The test sets, by their names in the records, with their titles.
    """
    rules: dict[Rule, list[Record]] = {}
    with open_study(study) as folder:
        records = read_records(folder)
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


def order(rule: Rule) -> tuple[int, str, tuple[float, ...], str]:
    """Return the place of a rule: fixed ones by ratio, the paper's, controls, others; those of a kind by name."""
    known = list(KINDS)
    ratios = () if isinstance(rule, Control) else tuple(float(f"{ratio:.6g}") for ratio in rule.ratios)
    return (known.index(rule.plan) if rule.plan in KINDS else len(known)), rule.plan, ratios, rule.label


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


# The paper's Table 1

MEAN = "mean"
#: A test set, or the mean over them, and a metric.
Cell = tuple[str, str]
#: The results of every seed.
Results = dict[Cell, list[float]]


def comparison(study: str | Path, sets: Mapping[str, str], metrics: Sequence[str]) -> tuple[str, str]:
    """The paper's table of a study, and its verdict."""
    with open_study(study) as folder:
        rows = competitors(Summary.read(folder))
    if not rows:
        raise ValueError(f"The table needs a grid or a rule with a result; {study} has none yet.")
    found = {name: results(outcome, sets, metrics) for name, (_, outcome) in rows.items()}
    columns = list(next(iter(found.values())))
    places = {column: rank([of_row[column] for of_row in found.values()], column[1]) for column in columns}
    lines = []
    for number, (name, (row, outcome)) in enumerate(rows.items()):
        shown = [mark(show(found[name][column], column[1]), places[column][number]) for column in columns]
        seeds = len(outcome.records)
        lacking = f" ({seeds} of {outcome.wanted} seeds)" if seeds < outcome.wanted else ""
        lines.append([("grid" if row.kind == "set" else name) + lacking, *last_weights(outcome), *shown])
    titles = [*sets.values(), "Mean"]
    head = [f"{title}: {metric}" if metric == metrics[0] else metric for title in titles for metric in metrics]
    printed = markdown([["weights", "exp(μ)", "λ", *head], *lines], "lll" + "r" * len(columns))
    grid = [name for name, (row, _) in rows.items() if row.kind == "set"]
    return printed, verdict(found, {name: {c: places[c][i] for c in columns} for i, name in enumerate(rows)}, grid)


def competitors(summary: Summary) -> dict[str, tuple[Row, Outcome]]:
    """Return the points of the grids and the rules that train once, by name, those without a result left out."""
    found = {o.label: (row, o) for row in summary.rows if row.kind == "set" for o in row.outcomes}
    found |= {row.plan: (row, row.chosen) for row in summary.rows if row.kind == "rule"}
    return {name: (row, outcome) for name, (row, outcome) in found.items() if outcome.records}


def results(outcome: Outcome, sets: Iterable[str], metrics: Iterable[str]) -> Results:
    """Return the results on each set, and their means over the sets within each seed."""
    seeds = [record.metrics for record in outcome.records.values()]
    missing = next(
        (f"{one}/{m}" for one in sets for m in metrics if any(f"{one}/{m}" not in seed for seed in seeds)), None
    )
    if missing:
        raise ValueError(
            f"The records must have every metric on every set; they have no {missing!r}; they have {quoted(seeds[0])}."
        )
    found = {(one, metric): [seed[f"{one}/{metric}"] for seed in seeds] for one in sets for metric in metrics}
    means = {(MEAN, m): [statistics.fmean(seed[f"{one}/{m}"] for one in sets) for seed in seeds] for m in metrics}
    return found | means


def show(found: Sequence[float], metric: str) -> str:
    return mean_and_deviation(found, DECIMALS.get(metric, 1), "±")


def rank(found: Sequence[Sequence[float]], metric: str) -> list[int]:
    """Return how many are better than each, by the means over the seeds as they are printed."""
    sign = -1 if metric in LOWER else 1
    printed = [sign * round(statistics.fmean(of_row), DECIMALS.get(metric, 1)) for of_row in found]
    return [sum(other > mine for other in printed) for mine in printed]


def mark(text: str, place: int) -> str:
    return {0: f"**{text}**", 1: f"*{text}*"}.get(place, text)


def last_weights(outcome: Outcome) -> tuple[str, str]:
    """Return where the weights ended: relative to the base, and as they are; with several seeds their means."""
    last = [record.coefficients for record in outcome.records.values()]
    ratios = [statistics.fmean(column) for column in zip(*(ratios_of(each)[1:] for each in last), strict=True)]
    coefficients = [statistics.fmean(column) for column in zip(*last, strict=True)]
    return ", ".join(f"{ratio:.4g}" for ratio in ratios), ", ".join(f"{each:.4f}" for each in coefficients)


def verdict(found: Mapping[str, Results], places: Mapping[str, Mapping[Cell, int]], grid: Sequence[str]) -> str:
    """Say on how many sets and metrics each rule is best, and where it stands in the means beside the grid's best."""
    won = {name: sum(not place for (one, _), place in places[name].items() if one != MEAN) for name in found}
    count = sum(one != MEAN for one, _ in next(iter(places.values())))
    said = []
    for name in [name for name in found if name not in grid]:
        said.append(f"{name}: best or level on {won[name]} of {count} sets x metrics")
        for column in [column for column in places[name] if column[0] == MEAN]:
            said.append(f"  mean {column[1]}: {show(found[name][column], column[1])}")
            said[-1] += f", place {1 + places[name][column]} of {len(found)}"
            if grid:
                best = min(grid, key=lambda point: places[point][column])
                said[-1] += f"; the grid's best, {best}, has {show(found[best][column], column[1])}"
    if grid:
        most = max(won[point] for point in grid)
        said.append(f"grid: at most {most} of {count}, by {', '.join(p for p in grid if won[p] == most)}")
    return "\n".join(said)


def main() -> None:
    study, sets, metrics, *more = sys.argv[1:]
    given = study, dict(one.split("=") for one in sets.split(",")), metrics.split(",")
    try:
        print("\n\n".join(comparison(*given)) if more == ["--mean"] else table(*given))
    except ValueError as reason:
        sys.exit(str(reason))


if __name__ == "__main__":
    main()
