"""Searches: Optuna's proposals from what is known, halving that gives up the bad ones, and nothing lost on resuming."""

import math

import _tasks
import pytest

from trainonce.study import Study
from trainonce.study.record import UNKNOWN, Record
from trainonce.study.rules import fixed
from trainonce.study.search import Search
from trainonce.study.store import Store

TERMS, KEY = ("a", "b", "c"), "validation/error"


def done(value, ratios=(1.0, 1.0), status="done", reports=()):
    metrics = {KEY: value, "test/error": value} if status != "pruned" else {}
    return Record("k", "t", fixed((1.0, *ratios)), 0, status, metrics, tuple(reports))


def test_proposals_stay_in_range_and_follow_from_what_is_known():
    search = Search("tpe", 20, 0.1, 10.0)
    known = [done(1.0)]
    one, again = (search.propose(TERMS, "minimize", known, KEY, 3, 1) for _ in range(2))
    other = search.propose(TERMS, "minimize", known, KEY, 4, 1)
    assert one == again != other
    assert all(0.0999 <= r <= 10.001 for r in one.ratios)
    assert sum(one.coefficients) == pytest.approx(1)


@pytest.mark.parametrize("method", ["tpe", "asha"])
def test_every_seed_and_every_trial_has_a_draw_of_its_own(method):
    search = Search(method, 20, 0.1, 10.0)

    def draws():
        return [search.propose(TERMS, "minimize", [], KEY, seed, n).ratios for seed in range(3) for n in range(3)]

    found = draws()
    assert len(set(found)) == 9
    assert draws() == found


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_tpe_goes_where_the_metric_is_good(direction):
    """The best ratio is 5 on both axes; after 25 trials TPE proposes nearer to it than at random."""
    search, known = Search("tpe", 40, 0.01, 100.0), []
    sign = 1 if direction == "minimize" else -1
    distances = []
    for number in range(40):
        rule = search.propose(TERMS, direction, known, KEY, 0, number)
        distance = sum(math.log(r / 5) ** 2 for r in rule.ratios)
        distances.append(distance)
        known.append(done(sign * distance, rule.ratios))
    assert sum(distances[25:]) / 15 < 0.5 * sum(distances[:10]) / 10


def test_failed_trials_are_not_reported_and_diverged_ones_are_bad():
    """Twelve good trials around the ratio 1; then one at 9 of which nothing, or nothing good, is known."""
    search = Search("tpe", 20, 0.1, 10.0)
    known = [done(abs(math.log(r)), (r,)) for r in (0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.5, 2.0, 4.0, 6.0, 8.0)]

    def proposals(*more):
        return [search.propose(TERMS[:2], "minimize", [*known, *more], KEY, 0, n) for n in range(13, 43)]

    broken = Record("k", "t", UNKNOWN, 0, "failed")
    assert proposals(broken) == proposals()
    diverged, splendid = done(math.nan, (9.0,), "diverged"), done(-5.0, (9.0,))

    def typical(rules):
        return sum(math.log(rule.ratios[0]) for rule in rules) / len(rules)

    assert typical(proposals(diverged)) < 0.7 < typical(proposals(splendid))  # that is, a ratio of 2
    assert all(1.5 < rule.ratios[0] < 2 for rule in proposals())
    bad = done(math.nan, (1.6,), "diverged")
    assert not any(1.5 < rule.ratios[0] < 2 for rule in proposals(bad))


def test_diverged_trials_are_among_the_ten_after_which_tpe_begins():
    search, known = Search("tpe", 20, 0.1, 10.0), [done(r, (r, r)) for r in (0.2, 0.4, 0.6, 0.8, 1, 2, 3, 4, 5)]
    drawn, few, enough = (
        search.propose(TERMS, "minimize", records, KEY, 0, 10)
        for records in ([], known, [*known, done(math.nan, (8.0, 8.0), "diverged")])
    )
    assert drawn == few != enough


def test_what_was_tried_after_a_failure_counts():
    search = Search("tpe", 20, 0.1, 10.0)
    known = [done(abs(math.log(r)), (r, r)) for r in (0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.5, 2.0, 4.0, 6.0, 8.0)]
    broken = Record("k", "t", UNKNOWN, 0, "failed")
    one, other = (search.propose(TERMS, "minimize", records, KEY, 0, 13) for records in (known, [broken, *known]))
    assert one == other != search.propose(TERMS, "minimize", [], KEY, 0, 13)


def reports(*values):
    return [(10 * (i + 1), {"error": v}) for i, v in enumerate(values)]


def run_to(prune, values):
    """The step at which a trial with these values every 10 steps is given up, or None."""
    seen = []
    for i, value in enumerate(values):
        seen.append((10 * (i + 1), value))
        if prune(seen):
            return seen[-1][0]
    return None


def test_halving_keeps_the_best_third_at_each_rung():
    search = Search("asha", 9, 0.1, 10.0, eta=3, rung=10)
    good = done(1.0, reports=reports(*[1.0] * 9))
    assert run_to(search.pruner(TERMS, "minimize", [good], KEY), [2.0] * 9) == 10
    assert run_to(search.pruner(TERMS, "minimize", [good], KEY), [0.5] * 9) is None
    late = [0.9, 0.9, 2.0, *[2.0] * 6]  # good at the first rung, bad at the second
    assert run_to(search.pruner(TERMS, "minimize", [good], KEY), late) == 30
    lost = [0.9] * 8 + [2.0]  # at the end there is nothing left to save
    assert run_to(search.pruner(TERMS, "minimize", [good], KEY), lost) is None
    assert run_to(search.pruner(TERMS, "maximize", [good], KEY), [2.0] * 9) is None
    assert run_to(search.pruner(TERMS, "minimize", [good], KEY), [math.nan] * 9) == 10
    assert run_to(search.pruner(TERMS, "maximize", [good], KEY), [math.inf] * 9) == 10  # not the best there can be


def test_a_trial_that_reports_seldom_is_judged_at_the_rungs_it_has_passed():
    search = Search("asha", 9, 0.1, 10.0, eta=3, rung=10)
    good = done(1.0, reports=reports(*[1.0] * 9))
    for step, pruned in ((5, False), (10, True), (29, True), (89, True), (90, False)):
        assert search.pruner(TERMS, "minimize", [good], KEY)([(step, 2.0)]) is pruned
        assert search.pruner(TERMS, "minimize", [good], KEY)([(step, 0.5)]) is False


def test_pruned_rivals_still_count():
    search = Search("asha", 9, 0.1, 10.0, eta=3, rung=10)
    rivals = [done(0, status="pruned", reports=reports(v)) for v in (5.0, 6.0, 7.0, 8.0, 9.0)]
    assert run_to(search.pruner(TERMS, "minimize", rivals, KEY), [5.5, 5.5]) is None  # second of six
    assert run_to(search.pruner(TERMS, "minimize", rivals, KEY), [6.5, 6.5]) == 10  # third of six


def test_searches_without_rungs_give_nothing_up():
    assert Search("tpe", 5, 0.1, 10.0).pruner(TERMS, "minimize", [], KEY) is None


def test_keys_do_not_depend_on_how_many_trials_were_asked_for():
    few, many = Search("tpe", 5, 0.1, 10.0), Search("tpe", 9, 0.1, 10.0)
    assert few.key("id", 0, 3) == many.key("id", 0, 3)
    assert len({few.key(i, s, n) for i in "ab" for s in (0, 1) for n in (0, 1)}) == 8
    assert few.key("id", 0, 0) != Search("tpe", 5, 0.2, 10.0).key("id", 0, 0)


@pytest.mark.parametrize("plan", ["tpe", "asha"])
def test_a_search_that_is_continued_goes_on_as_if_it_had_not_stopped(plan, tmp_path):
    """Six trials, then six more: the same twelve as in one go."""

    def run(folder, trials):
        Study(_tasks.line, folder, seeds=1).add(f"{plan}(trials={trials})").run(workers=0, device="cpu", show=False)
        return {r.key: (r.rule, r.status, r.metrics) for r in Store(folder).read_all()}

    run(tmp_path / "a", 6)
    continued, whole = run(tmp_path / "a", 12), run(tmp_path / "b", 12)
    assert continued == whole
    assert len(whole) == 12


def test_halving_saves_trainings_and_the_cost_says_so(tmp_path):
    summary = (
        Study(_tasks.line.using(steps=18), tmp_path, seeds=2)
        .add("asha(trials=9)")
        .run(workers=0, device="cpu", show=False)
    )
    row = summary.rows[0]
    found = Store(tmp_path).read_all()
    pruned = [r for r in found if r.status == "pruned"]
    assert pruned
    assert all(0 < r.fraction < 1 for r in pruned)
    assert row.cost == pytest.approx(sum(r.fraction for r in found) / 2)
    assert row.cost < 9
    assert set(row.chosen.report) == {0, 1}


def test_a_task_that_never_reports_is_warned_that_nothing_could_be_stopped(tmp_path):
    Study(_tasks.troubled, tmp_path, seeds=1).add("asha(trials=3)").run(workers=0, device="cpu", show=False)
    assert all("makes no trial.report" in r.warnings[0] for r in Store(tmp_path).read_all())
