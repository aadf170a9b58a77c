"""The table and its notes: whom it ranks on which seeds, what it shows of ratios, and what it warns of."""

import pytest
from _stores import balance, yoto
from _toy import TASK

from trainonce.report import table
from trainonce.report.table import ratios_cell
from trainonce.study import Record, Summary
from trainonce.study.rules import Rule, fixed, key_of

UNIFORM, BASE, GRID = fixed((1.0, 1.0)), fixed((1.0, 0.0)), fixed((1.0, 0.5))
PLANS = {"grid": ("set", GRID), "uniform": ("fixed", UNIFORM), "base": ("fixed", BASE), "uw": ("peer", Rule("uw"))}
PLANS |= {"yoto": ("rule", yoto()), "balance": ("rule", balance())}


def study(coefficients=None, **results):
    """A study of plans with given test results by seed."""
    records, plans = [], []
    for name, by_seed in results.items():
        kind, rule = PLANS[name]
        plans.append({"name": name, "kind": kind, "rules": [rule.to_json()], "seeds": sorted(by_seed)})
        for seed, value in by_seed.items():
            ended = (coefficients or {}).get(seed, (0.5, 0.5))
            metrics = {"validation/score": value, "test/score": value}
            more = {"coefficients": ended, "seconds": 1.0}
            records.append(Record(key_of("id", rule, seed), "toy", rule, seed, "done", metrics, **more))
    return Summary({"task": TASK, "plans": plans}, records)


HARD = {seed: 80.0 + seed for seed in range(10)}  # later seeds are easier, for all plans alike


def test_a_plan_with_easier_seeds_does_not_rank_above_a_better_one():
    easy = {seed: HARD[seed] - 1 for seed in (7, 8, 9)}  # 1 worse on each seed, and a higher mean
    found = study(grid=HARD, uniform=easy)
    assert found.rows[1].chosen.mean > found.reference.chosen.mean
    assert [row.plan for row in found.ranked] == ["grid", "uniform"]
    assert [line[0] for line in table.cells(found)[1:]] == ["grid *", "uniform +"]
    (note,) = table.notices(found)
    assert note == (
        "+ other seeds than grid, which has seeds 0 to 9: uniform has seeds 7 to 9. Plans are ranked by their "
        "difference to grid on the seeds that both have."
    )
    assert "uniform has seeds 7 to 9" in table.to_text(found)


def test_without_a_grid_plans_are_ranked_with_the_one_that_has_most_seeds():
    found = study(uniform={0: 81.5, 1: 82.5}, base=HARD)
    assert found.anchor.plan == "base"
    assert [row.plan for row in found.ranked] == ["uniform", "base"]


def test_a_plan_that_shares_no_seed_comes_last():
    found = study(grid={0: 80.0, 1: 81.0}, uniform={5: 99.0}, base={0: 70.0, 1: 71.0})
    assert [row.plan for row in found.ranked] == ["grid", "base", "uniform"]
    assert found.ranked[-1].difference is None


def test_the_same_seeds_need_no_mark():
    found = study(grid=HARD, uniform=HARD)
    assert table.notices(found) == []
    assert not any("+" in line[0] for line in table.cells(found))


@pytest.mark.parametrize(
    ("values", "outlier"),
    [
        ([0.7, 0.71, 0.72], False),
        ([0.7, 0.71, 40000.0], True),
        ([-40000.0, 0.7, 0.7], True),
        ([0.7, 0.7, 0.9], False),  # within ten times the margin
        ([0.7, 0.9], False),
        ([1.0, 20.0, 40.0], False),  # a wide spread is no outlier
    ],
)
def test_a_seed_that_is_far_from_the_others_is_named(values, outlier):
    found = study(uniform=dict(enumerate(values)), grid=dict(enumerate([0.7] * len(values))))
    notes = table.notices(found)
    assert bool(notes) is outlier
    if outlier:
        assert notes[0].startswith("uniform: seed ")
        assert "is an outlier with" in notes[0]
        assert "40000; the other seeds have 0.7" in notes[0]


def test_two_outlying_seeds_do_not_hide_each_other():
    found = study(uniform={0: 0.7, 1: 0.72, 2: 0.68, 3: 35000.0, 4: 40000.0}, grid=dict.fromkeys(range(5), 0.7))
    (note,) = table.notices(found)
    assert note == (
        "uniform: seeds 3, 4 are outliers with 35000, 40000; the other seeds have 0.68 to 0.72. They decide the mean "
        "and the standard deviation."
    )


@pytest.mark.parametrize("values", [[0.7, 40000.0], [0.7, 0.71, 39990.0, 40000.0]])
def test_where_no_majority_agrees_nobody_knows_which_seed_is_the_outlier(values):
    found = study(uniform=dict(enumerate(values)), grid=dict.fromkeys(range(len(values)), 0.7))
    apart = ", ".join(f"{value:g}" for value in values)
    assert table.notices(found) == [
        f"uniform: its seeds are far apart, with {apart}. The mean stands for none of them."
    ]


@pytest.mark.parametrize(
    ("coefficients", "shown"),
    [
        ({0: (0.5, 0.5), 1: (2.0, 2.1)}, "1 : 1.02"),  # the sum says nothing
        ({0: (0.9, 0.1), 1: (0.3, 0.7)}, "1 : 0.11 to 2.3"),
        ({0: (0.5, 1e-5), 1: (0.5, 1e-5)}, "1 : 2e-05"),
        ({0: (1.0, 0.0), 1: (1.0, 0.0)}, "1 : 0"),
        ({0: (0.0, 1.0), 1: (0.0, 2.0)}, "1 : inf"),
    ],
)
def test_ratios_are_shown_as_ranges_where_they_differ_over_the_seeds(coefficients, shown):
    assert ratios_cell(study(coefficients, uniform={0: 1.0, 1: 2.0}).rows[0].chosen) == shown


def test_the_notes_have_the_ratios_of_each_rule():
    notes = table.notes(study({0: (0.8, 0.2)}, yoto={0: 1.0}, balance={0: 1.0}, uniform={0: 1.0}))
    assert notes == [f"{plan} ends with the ratios a 1, b 0.25" for plan in ("yoto", "balance")]
