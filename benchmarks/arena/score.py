"""Score the rules from the arena's records, as tables in Markdown.

    python -m benchmarks.arena.score arena.jsonl
    python -m benchmarks.arena.score arena.jsonl --against uniform

The reference of a task is its best grid point: best mean validation score over the seeds, read on test. A rule is
level with it where the mean paired difference over the seeds (positive is better) is above minus one standard error.
Regret is what a rule lacks on test, in units of the distance between the best and the median grid point.
"""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.arena import records

if TYPE_CHECKING:
    from benchmarks.arena.records import Record
from benchmarks.arena.rules import RULES
from benchmarks.arena.searches import HALVING

Scores = Mapping[int, float]  # by seed
GRID = "grid"


@dataclass(frozen=True)
class Row:
    """A rule on a task. ``better`` of ``grid`` grid points have a better mean on test; ``unit`` is that of regret."""

    task: str
    variant: str
    rule: str
    test: float
    difference: float
    error: float
    better: int
    grid: int
    regret: float
    cost: float
    diverged: int
    seeds: int
    unit: float = 1.0

    @property
    def level(self) -> bool:
        return self.difference >= 0 or self.difference > -self.error


@dataclass(frozen=True)
class Reference:
    """The grid of a task: the test scores of its best point, the mean of every point, and the unit of regret."""

    best: Scores
    means: Sequence[float]
    spread: float


def score(given: Iterable[Record], higher: Callable[[str], bool]) -> list[Row]:
    """The rows of all rules and searches, in the order of the records.

    :param higher: Whether a task's score is better when it is higher.
    """
    groups = _grouped(_with_base(list(given)))
    rows = []
    for (task, variant), rules in groups.items():
        sign = 1.0 if higher(task) else -1.0
        grid = _grid(rules) or _grid(groups.get((task, _without_scales(variant)), {}))
        if not grid:
            continue
        worst = _worst([*grid.values(), *rules.values()], sign)
        reference = _reference(grid, sign, worst)
        rows.append(_row(task, variant, "best grid point", reference.best, len(grid), reference, sign, 0))
        for name, some in rules.items():
            if not name.startswith(f"{GRID} "):
                tests = {r["seed"]: _value(r["test"], worst) for r in some}
                cost = statistics.fmean(r["cost"] for r in some)
                rows.append(_row(task, variant, name, tests, cost, reference, sign, sum(r["diverged"] for r in some)))
    return [row for row in rows if row.seeds]


def table(rows: Sequence[Row]) -> str:
    """One line a rule and task."""
    lines = [
        "| task | rule | cost | test | difference to the best grid point | better grid points | regret | level |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        task = r.task if r.variant == "adam" else f"{r.task} ({r.variant})"
        broken = f", {r.diverged} diverged" if r.diverged else ""
        lines.append(
            f"| {task} | {r.rule} | {r.cost:.3g} | {r.test:.4g}{broken} | {r.difference:+.3g} ± {r.error:.2g} "
            f"| {r.better}/{r.grid} | {r.regret:.2f} | {'yes' if r.level else 'no'} |"
        )
    return "\n".join(lines)


def wide(rows: Sequence[Row]) -> str:
    """One line a rule with a column a task: the difference to the best grid point; the best mean regret first."""
    tasks = list(dict.fromkeys((row.task, row.variant) for row in rows))
    found: dict[str, dict[tuple[str, str], Row]] = defaultdict(dict)
    for row in rows:
        found[row.rule][row.task, row.variant] = row
    heads = [task if variant == "adam" else f"{task}, {variant}" for task, variant in tasks]
    lines = [f"| rule | cost | mean regret | {' | '.join(heads)} |", "|---|---|---" + "|---" * len(heads) + "|"]
    for rule, some in sorted(found.items(), key=lambda item: statistics.fmean(r.regret for r in item[1].values())):
        cells = [f"{some[key].difference:+.1f} ± {some[key].error:.1f}" if key in some else "" for key in tasks]
        cost, regret = (statistics.fmean(getattr(r, name) for r in some.values()) for name in ("cost", "regret"))
        lines.append(f"| {rule} | {cost:.3g} | {regret:.2f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def summary(rows: Sequence[Row]) -> str:
    """One line a rule, over its tasks; the best first."""
    by_rule: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_rule[row.rule].append(row)
    lines = ["| rule | cost | level | mean regret | worst regret | on | diverged |", "|---|---|---|---|---|---|---|"]
    ranked = sorted(by_rule.items(), key=lambda item: statistics.fmean(r.regret for r in item[1]))
    for rule, some in ranked:
        worst = max(some, key=lambda r: r.regret)
        lines.append(
            f"| {rule} | {statistics.fmean(r.cost for r in some):.3g} | {sum(r.level for r in some)}/{len(some)} "
            f"| {statistics.fmean(r.regret for r in some):.2f} | {worst.regret:.2f} | {worst.task} "
            f"| {sum(r.diverged for r in some)} |"
        )
    return "\n".join(lines)


def against(given: Iterable[Record], higher: Callable[[str], bool], other: str) -> list[Pairs]:
    """Compare every rule with another one on the seeds that both have."""
    found: dict[tuple[str, str], dict[str, tuple[float, float, float]]] = defaultdict(dict)
    for (task, variant), rules in _grouped(_with_base(list(given))).items():
        sign = 1.0 if higher(task) else -1.0
        worst = _worst(rules.values(), sign)
        tests = {name: {r["seed"]: _value(r["test"], worst) for r in some} for name, some in rules.items()}
        for name, mine in tests.items():
            seeds = sorted(set(mine) & set(tests.get(other, {})))
            if seeds and name != other and not name.startswith(f"{GRID} "):
                theirs = statistics.fmean(tests[other][seed] for seed in seeds)
                differences = [sign * (mine[seed] - tests[other][seed]) for seed in seeds]
                found[name, variant][task] = (statistics.fmean(differences), _error(differences), theirs)
    return [Pairs(*key, other, tasks) for key, tasks in found.items()]


@dataclass(frozen=True)
class Pairs:
    """A rule beside another one: of each task the mean difference, its standard error and the other's mean."""

    rule: str
    variant: str
    other: str
    tasks: Mapping[str, tuple[float, float, float]]

    @property
    def ahead(self) -> list[str]:
        return [task for task, (difference, _, _) in self.tasks.items() if difference > 0]

    @property
    def worse(self) -> list[str]:
        """The tasks on which it is worse by more than 2.8 standard errors: 95 % of Student's t with five seeds."""
        return [task for task, (difference, error, _) in self.tasks.items() if difference < -2.8 * error]

    @property
    def relative(self) -> float:
        """The mean difference over the tasks, in per cent of the other's."""
        return 100 * statistics.fmean(difference / theirs for difference, _, theirs in self.tasks.values())

    @property
    def error(self) -> float:
        """The standard error of the relative difference, from the seeds."""
        return 100 * sum((error / theirs) ** 2 for _, error, theirs in self.tasks.values()) ** 0.5 / len(self.tasks)


def paired(rows: Sequence[Pairs]) -> str:
    """One line a rule, over its tasks."""
    lines = [f"| rule | variant | ahead of {rows[0].other} | difference | worse on |", "|---|---|---|---|---|"]
    for row in rows:
        ahead, difference = f"{len(row.ahead)} of {len(row.tasks)}", f"{row.relative:+.1f} ± {row.error:.1f} %"
        lines.append(f"| {row.rule} | {row.variant} | {ahead} | {difference} | {', '.join(row.worse)} |")
    return "\n".join(lines)


def _grouped(given: Iterable[Record]) -> dict[tuple[str, str], dict[str, list[Record]]]:
    groups: dict[tuple[str, str], dict[str, list[Record]]] = {}
    for record in {records.key(record): record for record in given}.values():
        if record["rule"] != "random":  # the points of searches, which have records of their own
            rules = groups.setdefault((record["task"], record["variant"]), {})
            rules.setdefault(name_of(record), []).append(record)
    return groups


def name_of(record: Record) -> str:
    """The rule with those settings that are not its defaults; a record leaves out what is switched off."""
    rule = RULES.get(record["rule"])
    settings = {**rule.off, **record["settings"]} if rule else record["settings"]
    if record["rule"] == "halving":
        settings = {**settings, "seat": settings.get("seat", False)}  # the first records do not say
    defaults = rule.defaults if rule else HALVING if record["rule"] == "halving" else {}
    # None of what is no setting any more: it was off.
    shown = {name: value for name, value in settings.items() if defaults.get(name) != value}
    return " ".join([record["rule"], *(f"{name}={_text(value)}" for name, value in shown.items())])


def _text(value: object) -> str:
    if isinstance(value, list):
        return "/".join(map(_text, value))
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _without_scales(variant: str) -> str:
    """The variant whose grid stands in for that of a variant with scaled losses."""
    return ", ".join(part for part in variant.split(", ") if " x" not in part)


def _with_base(given: Sequence[Record]) -> list[Record]:
    """The records; those of a rule whose base is named take the place of those whose base was the task's first term.

    Fixed weights know no base, so their grid is that of both.
    """
    plain = [", ".join(p for p in r["variant"].split(", ") if not p.startswith("base ")) for r in given]
    named = {
        (r["task"], variant, name_of(r)) for r, variant in zip(given, plain, strict=True) if r["variant"] != variant
    }
    return [
        {**r, "variant": variant}
        for r, variant in zip(given, plain, strict=True)
        if r["variant"] != variant or (r["task"], variant, name_of(r)) not in named
    ]


def _grid(rules: Mapping[str, list[Record]]) -> dict[str, list[Record]]:
    return {name: some for name, some in rules.items() if name.startswith(f"{GRID} ")}


def _reference(grid: Mapping[str, list[Record]], sign: float, worst: float) -> Reference:
    """The best point on validation. Points that lack some of the grid's seeds do not count."""
    seeds = set.union(*({r["seed"] for r in some} for some in grid.values()))
    whole = [some for some in grid.values() if {r["seed"] for r in some} == seeds]
    best = max(whole, key=lambda some: sign * statistics.fmean(_value(r["validation"], worst) for r in some))
    tests = [{r["seed"]: _value(r["test"], worst) for r in some} for some in whole]
    means = [statistics.fmean(test.values()) for test in tests]
    found = tests[whole.index(best)]
    # Where all points are about the same the distance is noise; then regret is counted in standard errors.
    noise = statistics.fmean(_error(list(test.values())) for test in tests)
    spread = sign * (statistics.fmean(found.values()) - statistics.median(means))
    return Reference(found, means, max(spread, noise, 1e-12))


def _row(
    task: str, variant: str, rule: str, tests: Scores, cost: float, reference: Reference, sign: float, diverged: int
) -> Row:
    """Over the seeds that both have."""
    shared = sorted(set(tests) & set(reference.best))
    differences = [sign * (tests[seed] - reference.best[seed]) for seed in shared]
    difference = statistics.fmean(differences) if shared else 0.0
    mean = statistics.fmean(tests.values())
    better = sum(sign * (value - mean) > 0 for value in reference.means)
    regret = 0.0 - difference / reference.spread
    return Row(
        task, variant, rule, mean, difference, _error(differences), better, len(reference.means), regret, cost,
        diverged, len(shared), reference.spread,
    )  # fmt: skip


def _worst(groups: Iterable[list[Record]], sign: float) -> float:
    """What a training without a score counts as: the worst that any had."""
    known = [r[split] for some in groups for r in some for split in ("validation", "test") if r[split] is not None]
    return sign * min(sign * value for value in known) if known else 0.0


def _value(value: float | None, worst: float) -> float:
    return worst if value is None else value


def _error(values: Sequence[float]) -> float:
    return statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0


def main(arguments: Sequence[str] | None = None) -> None:
    from benchmarks.arena import tasks

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--tasks", nargs="*", help="only these")
    parser.add_argument("--variant", help="only this, such as adam")
    parser.add_argument("--only", nargs="*", metavar="RULE", help="only these rules, as the tables name them")
    parser.add_argument("--wide", action="store_true", help="one line a rule, with a column for each task")
    parser.add_argument("--against", metavar="RULE", help="compare with this one on the same seeds, not with the grid")
    options = parser.parse_args(arguments)
    given = [r for file in options.files for r in records.read(file) if not options.tasks or r["task"] in options.tasks]
    if options.against:
        print(paired(against(given, lambda name: tasks.get(name).higher, options.against)))
        return
    rows = score(given, lambda name: tasks.get(name).higher)
    rows = [row for row in rows if options.variant in (None, row.variant)]
    rows = [row for row in rows if not options.only or row.rule in options.only]
    print(wide(rows) if options.wide else "\n\n".join((table(rows), summary(rows))))


if __name__ == "__main__":
    main()
