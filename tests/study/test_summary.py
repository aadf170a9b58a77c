"""Summaries: chosen on one split, reported on the other, every number against one computed in another way."""

import math
import re

import numpy as np
import pytest
from _stores import final, yoto
from _toy import TASK
from scipy import stats

from trainonce.report import headline, numbers, table
from trainonce.study import Record, Summary, intervals
from trainonce.study.intervals import Interval, paired_interval, smallest_p, standard_deviation, student_quantile
from trainonce.study.rules import fixed, key_of

GRID = [fixed((1.0, r)) for r in (0.1, 1.0, 10.0)]


def record(rule, seed, validation, test, status="done", fraction=1.0):
    metrics = {"validation/score": validation, "test/score": test}
    key = key_of("id", rule, seed)
    return Record(key, "toy", rule, seed, status, metrics, coefficients=(0.5, 0.5), seconds=2.0, fraction=fraction)


def plan(name, kind, rules, seeds):
    return {"name": name, "kind": kind, "rules": [p.to_json() for p in rules], "search": None, "seeds": seeds}


def summary(learned, grid, more=(), plans=(), **task):
    """A study of given (validation, test) pairs: of the learned run by seed, and of each grid point by seed."""
    seeds = list(range(len(learned)))
    records = [record(yoto(), s, *pair) for s, pair in enumerate(learned)]
    records += [record(p, s, *pair) for p, pairs in zip(GRID, grid, strict=True) for s, pair in enumerate(pairs)]
    known = [plan("yoto", "rule", [yoto()], seeds), plan("grid", "set", GRID, seeds), *plans]
    return Summary({"task": TASK | task, "plans": known}, [*records, *more])


def rule_of(found):
    """The row of the paper's rule."""
    return next(row for row in found.rows if row.plan == "yoto")


# The learned run is worst on test; the point that validation chooses is not the one that is best on test.
BAD = (
    [(95, 30), (96, 33), (97, 31)],
    [[(50, 99), (52, 97), (51, 98)], [(60, 70), (61, 75), (62, 71)], [(58, 60), (59, 62), (57, 61)]],
)
GOOD = ([(80, 90), (82, 92), (81, 91)], [[(70, 60), (71, 62), (72, 61)], [(71, 61), (72, 60), (73, 62)], [(1, 2)] * 3])


def independently(learned, grid):
    """The numbers of the sentence, in other words than the summary's."""
    tests = np.array([[t for _, t in learned], *([t for _, t in pairs] for pairs in grid)], dtype=float)
    chosen = 1 + int(np.argmax([np.mean([v for v, _ in pairs]) for pairs in grid]))
    means, spreads = tests.mean(1), tests.std(1, ddof=1)
    interval = stats.ttest_rel(tests[0], tests[chosen]).confidence_interval(0.95)
    return means[0], spreads[0], means[chosen], spreads[chosen], int((means[1:] > means[0]).sum()), interval


@pytest.mark.parametrize(("learned", "grid"), [BAD, GOOD], ids=["unfavourable", "favourable"])
def test_the_headline_says_what_an_independent_computation_finds(learned, grid):
    found, expected = summary(learned, grid), independently(learned, grid)
    text = headline.sentence(found)
    theirs = re.search(r"test score (\d+\.\d+) \+- (\d+\.\d+) % at 3 times the cost", text).groups()
    ours = re.search(r"one run of the paper's rule \((\d+\.\d+) \+- (\d+\.\d+)\)", text).groups()
    assert [float(x) for x in (*ours, *theirs)] == pytest.approx(expected[:4], abs=0.051)
    assert f"{expected[4]} of the 3 grid points did better on test than one run of the pap" in headline.details(found)


def test_the_planted_unfavourable_truth_is_in_the_headline():
    text = headline.sentence(summary(*BAD))
    assert "the best of 3 grid points has test score 72.0 +- 2.6 %" in text  # not the 98 of another
    assert "one run of the paper's rule (31.3 +- 1.5) is worse" in text


@pytest.mark.parametrize(("learned", "grid"), [BAD, GOOD], ids=["unfavourable", "favourable"])
def test_the_difference_is_paired_with_students_interval(learned, grid):
    found = rule_of(summary(learned, grid)).difference
    low, high = independently(learned, grid)[-1]
    assert (found.low, found.high) == pytest.approx((low, high))
    assert found.seeds == 3


def test_where_less_is_better_everything_turns_round():
    learned, grid = BAD
    turned = summary(learned, grid, direction="minimize")
    assert turned.reference.chosen.label == "1 : 0.1"  # the smallest validation mean
    assert rule_of(turned).difference.mean == pytest.approx(98 - 94 / 3)
    assert rule_of(turned).beaten_by == 0
    assert [row.plan for row in turned.ranked] == ["yoto", "grid"]


def test_the_quantiles_of_student():
    for freedom in (1, 2, 3, 4, 9, 30):
        for p in (0.6, 0.9, 0.975, 0.995):
            assert student_quantile(p, freedom) == pytest.approx(stats.t.ppf(p, freedom), rel=1e-9)
    assert paired_interval([3.0]) == (3.0, -math.inf, math.inf, 1)
    assert standard_deviation([3.0]) == 0
    assert smallest_p(5) == 0.0625


@pytest.mark.parametrize("differences", [[1.0, 4.0], [0.5, -0.25, 2.0], [3.0, 1.0, 2.0, -1.0, 0.5, 7.0]])
def test_two_seeds_are_enough_for_an_interval(differences):
    expected = stats.ttest_1samp(differences, 0).confidence_interval(0.95)
    mean = sum(differences) / len(differences)
    assert paired_interval(differences) == pytest.approx((mean, *expected, len(differences)))


@pytest.mark.parametrize(
    ("shifts", "verdict"),
    [
        ([3.0, 3.1, 2.9], "better"),
        ([-0.1, 0.1, 0.0], "not worse"),
        ([-5.0, -5.1, -4.9], "worse"),
        ([-4.0, 4.0, 0.0], "undecided"),
        ([-1.0, -1.1, -0.9], "slightly worse"),
        ([-3.5, -2.0, -0.5], "undecided"),  # worse by the mean, and the interval reaches 0
        ([0.5, 2.0, 3.5], "undecided"),  # better by the mean, and the interval reaches below the margin
        ([0.1, 0.3, 0.5], "not worse"),  # better by the mean, and the interval begins between the margin and 0
    ],
)
def test_verdicts_against_the_margin(shifts, verdict):
    base = [50.0, 60.0, 55.0]
    learned = [(0, b + s) for b, s in zip(base, shifts, strict=True)]
    found = summary(learned, [[(9, b) for b in base], [(1, 1)] * 3, [(1, 1)] * 3])
    assert found.verdict(rule_of(found)) == verdict
    said = headline.evidence(found)
    assert f"], {verdict}. With 3 seeds an exact paired test cannot go below p = 0.25." in said
    assert said.count("one run of the paper's rule") == 1


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (1.01, 3.0, "better"),
        (1.0, 3.0, "slightly better"),
        (0.5, 3.0, "slightly better"),
        (0.01, 0.5, "not worse"),  # as a loss inside the margin is
        (-0.5, -0.01, "not worse"),
        (0.0, 0.5, "not worse"),
        (0.0, 3.0, "not worse"),
        (-1.0, 0.5, "not worse"),
        (-1.01, 0.5, "undecided"),
        (-3.0, 0.0, "undecided"),
        (-3.0, -0.5, "slightly worse"),
        (-3.0, -1.0, "slightly worse"),
        (-3.0, -1.01, "worse"),
    ],
)
def test_the_ends_of_the_interval_decide_the_verdict(low, high, verdict):
    """With a margin of 1. The mean lies anywhere between the ends, and says nothing."""
    for mean in (low, high):
        assert intervals.verdict(Interval(mean, low, high, 3), 1.0) == verdict


def test_one_seed_claims_nothing_about_spread():
    found = summary([(1, 50.0)], [[(1, 51.0)], [(2, 52.0)], [(3, 49.0)]])
    assert "+-" not in headline.sentence(found)
    assert "One seed says nothing about the spread" in headline.evidence(found)
    assert found.verdict(rule_of(found)) == ""


def test_the_margin_is_the_tasks_or_two_per_cent():
    assert summary(*GOOD).margin == 1.0
    found = summary(*GOOD, margin=None)
    assert found.margin == pytest.approx(0.02 * found.reference.chosen.mean)


def test_cost_counts_all_that_was_spent():
    failed = record(yoto(), 1, 0, 0, status="failed", fraction=0.25)
    learned, grid = GOOD
    found = summary(learned, grid)
    assert (rule_of(found).cost, found.reference.cost) == (1, 3)
    assert (rule_of(found).seconds, found.reference.seconds) == (2, 6)
    records = [failed, record(yoto(), 0, 1, 1), record(yoto(), 1, 1, 1)]
    again = Summary({"task": TASK, "plans": [plan("yoto", "rule", [yoto()], [0, 1])]}, records)
    assert rule_of(again).cost == pytest.approx((0.25 + 2) / 2)
    controls = [record(final(yoto()), s, 1, 1) for s in (0, 1)]
    control = Summary({"task": TASK, "plans": [plan("final", "control", [final(yoto())], [0, 1])]}, records + controls)
    assert control.rows[0].cost == pytest.approx((0.25 + 2 + 2) / 2)


def test_how_many_grid_trainings_it_takes_on_average_to_do_as_well():
    """Against the mean over all orders in which three points can be tried."""
    import itertools

    learned = [(1, 61.2), (1, 61.2), (1, 61.2)]
    grid = [[(1, 70)] * 3, [(1, 65)] * 3, [(1, 50)] * 3]
    found = summary(learned, grid)
    orders = [next(i for i, v in enumerate(order, 1) if v > 61.2) for order in itertools.permutations([70, 65, 50])]
    assert found.expected_trainings(rule_of(found)) == pytest.approx(sum(orders) / len(orders))
    best = summary([(1, 99)] * 3, grid)
    assert best.expected_trainings(rule_of(best)) is None


def test_a_point_that_diverged_is_not_chosen_and_a_run_that_diverged_says_so():
    diverged = [record(GRID[1], 2, math.nan, math.nan, status="diverged")]
    learned = [(80, 90), (82, 92), (81, 91)]
    found = summary(learned, [[(70, 60)] * 3, [(99, 99)] * 2, [(1, 2)] * 3], diverged)
    assert found.reference.chosen.label == "1 : 0.1"
    lost = [record(yoto(), 2, math.nan, math.nan, status="diverged")]
    partly = summary(learned[:2], [[(70, 60)] * 2, [(99, 99)] * 2, [(1, 2)] * 2], lost)
    partly.plans[0]["seeds"].append(2)
    assert "diverged in 1 of 3 seeds)" in headline.sentence(partly)


def test_missing_seeds_are_named():
    found = summary(*GOOD)
    found.plans[0]["seeds"].append(3)
    assert "(91.0 +- 1.0, 1 of 4 seeds missing)" in headline.sentence(found)


def test_points_are_compared_on_the_seeds_they_share():
    """The learned run has two seeds more, both easy: on the common ones two points are better."""
    grid = [[(1, 60)] * 3, [(2, 55)] * 3, [(1, 20)] * 3]
    found = summary([(1, 50)] * 3 + [(1, 90)] * 2, grid)
    assert rule_of(found).beaten_by == 2
    assert rule_of(found).difference.mean == pytest.approx(-5)
    assert "(50.0 +- 0.0 against 55.0 +- 0.0 on the 3 seeds that both have)" in headline.sentence(found)
    better = "2 of the 3 grid points did better on test, on the seeds that both have, than one run of the paper's rule"
    assert better in headline.details(found)


def test_a_study_that_was_stopped_does_not_choose_a_point_for_being_complete():
    """The first point has both seeds and is bad; the others have one, and are good."""
    found = summary([(1, 50)] * 2, [[(10, 30), (10, 31)], [(20, 60)], [(15, 55)]])
    assert found.reference.chosen.label == "1 : 1"
    text = headline.sentence(found)
    assert "the best of 3 grid points has test score 60" in text
    assert "(2 of its 6 trainings are missing)" in text
    assert "times the cost" not in text


@pytest.mark.parametrize(
    ("grid", "lost", "chosen"),
    [
        # better on the seed that both have, worse in the mean of all its own
        ([[(10, 1), (99, 1)], [(20, 1)], []], [], "1 : 1"),
        ([[(20, 1), (1, 1)], [(10, 1)], []], [], "1 : 0.1"),
        # divergence in a seed that the other has not been trained with yet decides nothing
        ([[(20, 1)], [(10, 1)], []], [0], "1 : 0.1"),
        # both have the seed in which one diverged
        ([[(20, 1)], [(10, 1), (1, 1)], []], [0], "1 : 1"),
    ],
)
def test_points_are_chosen_by_the_seeds_that_all_of_them_have(grid, lost, chosen):
    """A point that was not begun has no say. ``lost``: points that diverged in the second seed."""
    diverged = [record(GRID[i], 1, math.nan, math.nan, status="diverged") for i in lost]
    assert summary([(1, 1)] * 2, grid, diverged).reference.chosen.label == chosen


def test_points_without_a_common_seed_are_chosen_by_their_own():
    records = [record(GRID[0], 0, 10, 1), record(GRID[1], 1, 20, 1)]
    found = Summary({"task": TASK, "plans": [plan("grid", "set", GRID, [0, 1])]}, records)
    assert found.reference.chosen.label == "1 : 1"


def test_divergence_counts_against_a_plan():
    """The paper's rule diverges in one seed and is splendid in the others."""
    lost = [record(yoto(), 2, math.nan, math.nan, status="diverged")]
    found = summary([(90, 99), (90, 98)], [[(50, 50)] * 3, [(40, 40)] * 3, [(30, 30)] * 3], lost)
    for asked in found.plans:
        asked["seeds"][:] = [0, 1, 2]
    assert rule_of(found).beaten_by == 3
    assert found.verdict(rule_of(found)) == "diverged"
    assert headline.evidence(found).startswith("Where seeds have diverged, the difference on the others decides noth")
    assert headline.sentence(found).startswith("Undecided, as ")
    assert "diverged in 1 of 3 seeds) is ahead" in headline.sentence(found)
    assert [row.plan for row in found.ranked] == ["grid", "yoto"]


def test_a_grid_that_is_not_complete_claims_no_cost():
    learned, grid = GOOD
    found = summary(learned, [grid[0], [], []])
    text = headline.sentence(found)
    assert "the only grid point has test score" in text
    assert "(6 of its 9 trainings are missing)" in text
    assert "times the cost" not in text


def test_a_learned_run_without_a_result_is_named():
    grid = GOOD[1]
    failed = [record(yoto(), s, 0, 0, status="failed", fraction=0.0) for s in range(3)]
    found = summary([], grid, failed)
    found.plans[0]["seeds"].extend(range(3))
    found.plans[1]["seeds"].extend(range(3))
    assert "The paper's rule failed." in headline.sentence(found)
    assert table.cells(found)[-1][1].startswith("no result")


def test_differences_without_spread_decide_nothing():
    base = [50.0, 60.0, 55.0]
    found = summary([(0, b + 5) for b in base], [[(9, b) for b in base], [(1, 1)] * 3, [(1, 1)] * 3])
    assert found.verdict(rule_of(found)) == "undecided"
    assert "one run of the paper's rule +5.0 [+5.0, +5.0], all seeds alike, undecided" in headline.evidence(found)


def test_results_that_are_equal_in_every_seed_are_a_tie():
    base = [50.0, 60.0, 55.0]
    found = summary([(0, b) for b in base], [[(9, b) for b in base], [(1, 1)] * 3, [(1, 1)] * 3])
    assert found.verdict(rule_of(found)) == "not worse"


def test_a_spread_of_rounding_is_none():
    """Two samples of 45 more in each seed: accuracies in float32 have differences that are alike up to rounding."""
    share = [float(np.float32(100) * np.float32(k / 45)) for k in range(46)]
    theirs, ours = ([share[k + more] for k in (20, 31, 38)] for more in (0, 2))
    assert len({one - other for one, other in zip(ours, theirs, strict=True)}) > 1
    found = summary([(0, v) for v in ours], [[(9, v) for v in theirs], [(1, 1)] * 3, [(1, 1)] * 3])
    assert rule_of(found).difference.mean == pytest.approx(200 / 45, abs=1e-5)
    assert found.verdict(rule_of(found)) == "undecided"


def test_a_point_with_few_seeds_does_not_decide_for_the_others():
    """The third point has one seed, in which the worse of the others happens to be better."""
    grid = [[(10, 1), (50, 1), (50, 1)], [(20, 1), (30, 1), (30, 1)], [(15, 1)]]
    assert summary([(1, 1)] * 3, grid).reference.chosen.label == "1 : 0.1"


def test_points_that_lack_different_seeds_are_compared_on_those_that_most_have():
    values = {0: [None, 70, 70], 1: [60, 60, None], 2: [80, 65, 65]}
    records = [record(GRID[i], s, v, 1) for i, of in values.items() for s, v in enumerate(of) if v is not None]
    found = Summary({"task": TASK, "plans": [plan("grid", "set", GRID, [0, 1, 2])]}, records)
    assert found.reference.chosen.label == "1 : 0.1"  # on seeds 1 and 2, which the third has too


def test_without_a_reference_the_margin_is_two_per_cent_of_the_plan_that_ranks_the_others():
    records = [record(yoto(), s, 1, 50.0 + s) for s in (0, 1)]
    task = TASK | {"margin": None}
    found = Summary({"task": task, "plans": [plan("yoto", "rule", [yoto()], [0, 1])]}, records)
    assert found.margin == pytest.approx(0.02 * 50.5)


def test_sweeps_show_their_points_and_rank_nowhere():
    rules = [yoto(init=i) for i in (0.1, 1.0)]
    records = [record(p, 0, 1, 2) for p in rules]
    found = summary(*GOOD, records, [plan("sweep-init", "sweep", rules, [0])])
    assert [row.plan for row in found.ranked] == ["yoto", "grid"]
    assert [o.label for o in found.sweeps[0].outcomes] == ["init 0.1, decay 4", "init 1, decay 4"]


@pytest.mark.parametrize(
    ("spreads", "decimals"), [((1.5, 2.5), 1), ((0.05, 0.02), 3), ((20.0, 30.0), 0), ((2e-9, 2e-9), 10)]
)
def test_numbers_have_two_digits_of_their_spread(spreads, decimals):
    learned = [(1, 50 + d * spreads[0]) for d in (-1, 0, 1)]
    grid = [[(3, 50 + d * spreads[1]) for d in (-1, 0, 1)], [(1, 1)] * 3, [(1, 1)] * 3]
    assert numbers.decimal_places(summary(learned, grid)) == decimals


def test_the_table_has_a_row_for_each_plan_best_first_and_fits_a_terminal():
    found = summary(*BAD)
    head, *rows = table.cells(found)
    assert [row[0] for row in rows] == ["grid *", "yoto"]
    assert all(len(row) == len(head) for row in rows)
    assert rows[1][3] == "3 of 3"
    assert rows[1][2].startswith("-40.7 [")
    assert max(map(len, table.to_text(found).splitlines())) <= 100
