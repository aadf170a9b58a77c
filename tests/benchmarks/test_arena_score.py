"""The score, on records that the test plants."""

import itertools
import statistics
from pathlib import Path

import pytest

from benchmarks.arena import records, score, tasks
from trainonce import composite


def record(rule, settings, tests, validation=None, cost=1, variant="adam", task="toy"):
    validation = tests if validation is None else [validation] * len(tests)
    return [
        {"task": task, "variant": variant, "rule": rule, "settings": settings, "seed": seed, "cost": cost, "test": t,
         "validation": v, "diverged": t is None}
        for seed, (t, v) in enumerate(zip(tests, validation, strict=True))
    ]  # fmt: skip


GRID = [
    *record("grid", {"ratios": [0.1]}, [50.0, 52.0], validation=50),
    *record("grid", {"ratios": [1.0]}, [80.0, 82.0], validation=90),
    *record("grid", {"ratios": [10.0]}, [84.0, 86.0], validation=70),  # best on test, but validation does not say so
    *record("grid", {"ratios": [100.0]}, [70.0, 72.0], validation=60),
    *record("grid", {"ratios": [0.01]}, [40.0, 42.0], validation=40),
]


def row_of(rows, rule):
    (row,) = [row for row in rows if row.rule == rule]
    return row


def test_a_rule_beside_the_grid():
    rows = score.score(
        [*GRID, *record("units", {"p": 0.25, "c": None, "warm_steps": 10}, [78.0, 83.0])], lambda task: True
    )
    best = row_of(rows, "best grid point")
    assert (best.test, best.cost, best.better, best.regret, best.level) == (81.0, 5, 1, 0.0, True)
    row = row_of(rows, "units p=0.25 c=none")
    assert row.difference == -0.5
    assert row.error == pytest.approx(1.5)  # of -2 and +1
    assert row.level
    assert (row.better, row.grid) == (2, 5)
    assert row.regret == pytest.approx(0.5 / (81 - 71))


def test_a_metric_where_lower_is_better():
    given = [r | {"test": -r["test"], "validation": -r["validation"]} for r in GRID]
    rows = score.score([*given, *record("uw", {}, [-70.0, -72.5])], lambda task: False)
    row = row_of(rows, "uw")
    assert row.difference == pytest.approx(-9.75)
    assert not row.level
    assert row.better == 2
    assert row.regret == pytest.approx(0.975)


def test_a_training_without_a_score_counts_as_the_worst():
    rows = score.score([*GRID, *record("famo", {}, [None, 81.0])], lambda task: True)
    row = row_of(rows, "famo")
    assert row.test == pytest.approx((40 + 81) / 2)
    assert row.diverged == 1


def test_a_variant_without_a_grid_is_read_against_the_plain_one():
    scaled = record("units", {"warm_steps": 10}, [82.0, 84.0], variant="adam, side x100")
    others = [
        r for name in ("sgd", "adam, 9 steps") for r in record("units", {"warm_steps": 10}, [82.0, 84.0], variant=name)
    ]
    rows = score.score([*GRID, *scaled, *others], lambda task: True)
    assert [(row.variant, row.difference) for row in rows if row.rule == "units"] == [("adam, side x100", 2.0)]


def test_a_named_base_takes_the_place_of_the_first():
    """Of the same rule; fixed weights are the same with any, so the grid is that of both."""
    first, named = record("units", {}, [70.0, 70.0]), record("units", {}, [82.0, 84.0], variant="adam, base side")
    rows = score.score([*GRID, *first, *record("uw", {}, [9.0, 11.0]), *named], lambda task: True)
    assert [row.variant for row in rows] == ["adam"] * len(rows)
    assert [(row.test, row.difference, row.unit) for row in rows if row.rule.startswith("units")] == [(83.0, 2.0, 10.0)]
    assert any(row.rule == "uw" for row in rows)


def test_regret_on_a_flat_grid_is_counted_in_standard_errors():
    flat = [r for i in range(3) for r in record("grid", {"ratios": [i]}, [10.0, 12.0])]
    row = row_of(score.score([*flat, *record("uw", {}, [9.0, 11.0])], lambda task: True), "uw")
    assert row.regret == pytest.approx(1.0)


def test_the_tables():
    given = [*GRID, *record("uw", {}, [78.0, 83.0]), *record("dwa", {}, [20.0, 20.0], cost=7)]
    rows = score.score(given, lambda task: True)
    lines = score.table(rows).splitlines()
    assert "| toy | uw | 1 | 80.5 | -0.5 ± 1.5 | 2/5 | 0.05 | yes |" in lines
    names = [line.split(" | ")[0] for line in score.summary(rows).splitlines()[2:]]
    assert names == ["| best grid point", "| uw", "| dwa"]
    assert "| dwa | 7 | 0/1 | 6.10 | 6.10 | toy | 0 |" in score.summary(rows)


def test_random_points_are_no_rule_of_their_own():
    rows = score.score([*GRID, *record("random", {"n": 0}, [50.0, 50.0])], lambda task: True)
    assert [row.rule for row in rows] == ["best grid point"]


def test_a_wide_table_has_a_column_for_each_task():
    other = [r | {"task": "other", "variant": "sgd"} for r in [*GRID, *record("uw", {}, [80.0, 82.0])]]
    rows = score.score([*GRID, *record("uw", {}, [78.0, 83.0]), *other], lambda task: True)
    lines = score.wide([row for row in rows if row.rule == "uw"]).splitlines()
    assert lines[0] == "| rule | cost | mean regret | toy | other, sgd |"
    assert lines[2] == "| uw | 1 | 0.03 | -0.5 ± 1.5 | +0.0 ± 0.0 |"


GRIDS = ("halving", "judged", "choosing", "judging", "first")
PDE = ("burgers", "helmholtz", "klein_gordon", "kdv", "allen_cahn")


def test_the_table_of_the_exponents_rates_is_that_of_the_records():
    """Each row of the page, by the name that the scores give its setting."""
    data = Path(__file__).parents[2] / "docs" / "results" / "data" / "arena"
    if not data.is_dir():
        pytest.skip("a source distribution has no records")
    given = [record for name in (*GRIDS, "rates") for record in records.read(data / f"{name}.jsonl.xz")]
    rules = ("uniform", "printed", "printed rho=20", "printed rho=200")
    rules += tuple(f"printed travel={travel}" for travel in (1, 3, 10))
    rules += ("printed fold=0.1", "printed fold=0.2", "printed fold=0.4", "printed fold=0.2 rho=20")
    found = {}
    for row in score.score(given, lambda name: tasks.get(name).higher):
        found.setdefault((row.rule, row.variant), {})[row.task] = row.regret
    expected = []
    for rule in rules:
        adam, sgd = found[rule, "adam"], found[rule, "sgd"]
        parts = [list(adam.values()), [adam[task] for task in PDE], list(sgd.values())]
        assert [len(part) for part in parts] == [23, 5, 6]
        expected.append([f"{statistics.fmean(part):.2f}" for part in parts])
    page = (data.parents[1] / "arena.md").read_text()
    table = page.split("| exponents | decay |")[1].split("\n\n")[0]
    assert [[cell.strip() for cell in line.split("|")[3:6]] for line in table.splitlines()[2:]] == expected


def test_the_table_of_the_fresh_seeds_is_that_of_the_records():
    """The rules' regrets on these seeds alone, and their differences to equal weights."""
    data = Path(__file__).parents[2] / "docs" / "results" / "data" / "arena"
    if not data.is_dir():
        pytest.skip("a source distribution has no records")
    fresh = records.read(data / "confirm.jsonl.xz")
    grids = [r for name in GRIDS for r in records.read(data / f"{name}.jsonl.xz") if r["rule"] == "grid"]

    def higher(name):
        return tasks.get(name).higher

    regrets = {}
    for row in score.score([*grids, *fresh], higher):
        regrets.setdefault((row.rule, row.variant), {})[row.task] = row.regret
    pairs = {(row.rule, row.variant): row for row in score.against(fresh, higher, "uniform")}
    expected = []
    for variant in ("adam", "sgd"):
        for rule in ("printed fold=0.2", "printed fold=0.15 rho=4", "printed", "printed rho=20"):
            cells = score.paired([pairs[rule, variant]]).splitlines()[2].split(" | ")[2:]
            expected.append([f"{statistics.fmean(regrets[rule, variant].values()):.2f}", *cells])
    page = (data.parents[1] / "arena.md").read_text()
    table = page.split("| paper's rule | optimizer |")[1].split("\n\n")[0]
    assert [line.split(" | ")[2:] for line in table.splitlines()[2:]] == expected
    adam, sgd = (f"{statistics.fmean(regrets['uniform', variant].values()):.2f}" for variant in ("adam", "sgd"))
    assert f"equal weights have a regret of {adam} with Adam and {sgd} with SGD" in page
    of_pde = [
        f"{statistics.fmean(regrets[rule, 'adam'][task] for task in PDE):.2f}"
        for rule in ("printed rho=20", "printed fold=0.15 rho=4", "uniform")
    ]
    for text in (f"a regret of {of_pde[0]} on the five", f"default has {of_pde[1]} and equal weights {of_pde[2]}"):
        assert text in page


def test_the_table_of_starts_is_that_of_the_records():
    data = Path(__file__).parents[2] / "docs" / "results" / "data" / "arena"
    if not data.is_dir():
        pytest.skip("a source distribution has no records")
    rows = score.against(records.read(data / "starts.jsonl.xz"), lambda name: tasks.get(name).higher, "uniform")
    pairs = {(row.rule, row.variant): row for row in rows}
    expected = []
    for init in (" init=0.1", " init=0.3", "", " init=3"):
        adam, sgd = (pairs[f"printed fold=0.2{init}", variant] for variant in ("adam", "sgd"))
        cells = [score.paired([row]).splitlines()[2].split(" | ")[2:4] for row in (adam, sgd)]
        expected.append([*cells[0], ", ".join(sorted(adam.worse)), *cells[1]])
    assert set(PDE) <= set(pairs["printed fold=0.2 init=0.1", "adam"].ahead)
    page = (data.parents[1] / "arena.md").read_text()
    table = page.split("| `init` | ahead, Adam |")[1].split("\n\n")[0]
    assert [[cell.strip() for cell in line.split("|")[2:7]] for line in table.splitlines()[2:]] == expected


def test_the_choice_of_the_default_is_that_of_the_records():
    """Of two paces on ten further seeds, by a rule that was stated before."""
    data = Path(__file__).parents[2] / "docs" / "results" / "data" / "arena"
    if not data.is_dir():
        pytest.skip("a source distribution has no records")

    def higher(name):
        return tasks.get(name).higher

    new, before = "printed fold=0.15 rho=4", "printed fold=0.2"
    grids = [r for name in GRIDS for r in records.read(data / f"{name}.jsonl.xz") if r["rule"] == "grid"]
    units = {(r.task, r.variant): r.unit for r in score.score(grids, higher) if r.rule == "best grid point"}
    given = records.read(data / "defaults.jsonl.xz")
    page = (data.parents[1] / "arena.md").read_text()
    table = page.split("| paper's rule | optimizer | ahead of equal weights |")[1].split("\n\n")[0]
    pairs = {(row.rule, row.variant): row for row in score.against(given, higher, "uniform")}
    expected = []
    for variant, rule in itertools.product(("adam", "sgd"), (new, before)):
        row = pairs[rule, variant]
        ahead, difference, worse = score.paired([row]).splitlines()[2].split(" | ")[2:]
        of_pde = f"{len(set(PDE) & set(row.ahead))} of 5" if variant == "adam" else ""
        expected.append([ahead, difference, of_pde, ", ".join(sorted(worse.removesuffix(" |").split(", ")))])
    assert [[cell.strip() for cell in line.split("|")[3:7]] for line in table.splitlines()[2:]] == expected
    (row,) = (row for row in score.against(given, higher, before) if (row.rule, row.variant) == (new, "adam"))
    found = [(mean / units[task, "adam"], error / units[task, "adam"]) for task, (mean, error, _) in row.tasks.items()]
    lower, error = statistics.fmean(mean for mean, _ in found), sum(e * e for _, e in found) ** 0.5 / len(found)
    assert f"its regret is {lower:.3f} ± {error:.3f} lower" in page
    assert lower > error
    assert (composite.TRAVEL, composite.DECAY) == (0.15, 4.0)
