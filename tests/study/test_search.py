"""Searches: Optuna's proposals from what is known, halving that pauses the bad ones, and nothing lost on resuming."""

import math
from collections import Counter

import _tasks
import pytest

from trainonce import cli
from trainonce.study import Study, rungs
from trainonce.study.record import UNKNOWN, Record
from trainonce.study.rules import fixed
from trainonce.study.rungs import halving
from trainonce.study.search import Search
from trainonce.study.store import Store

TERMS, KEY = ("a", "b", "c"), "validation/error"


def done(value, ratios=(1.0, 1.0), status="done", reports=()):
    metrics = {KEY: value, "test/error": value}
    return Record("k", "t", fixed((1.0, *ratios)), 0, status, metrics, tuple(reports))


def test_proposals_stay_in_range_and_follow_from_what_is_known():
    search = Search("tpe", 20, 0.1, 10.0)
    known = [done(1.0)]
    one, again = (search.propose(TERMS, "minimize", known, KEY, 3, 1) for _ in range(2))
    other = search.propose(TERMS, "minimize", known, KEY, 4, 1)
    assert one == again != other
    assert all(0.0999 <= r <= 10.001 for r in one.ratios)
    assert sum(one.coefficients) == pytest.approx(1)


@pytest.mark.parametrize("method", ["tpe", "sha"])
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


def test_keys_do_not_depend_on_how_many_trials_were_asked_for():
    few, many = Search("tpe", 5, 0.1, 10.0), Search("tpe", 9, 0.1, 10.0)
    assert few.key("id", 0, 3) == many.key("id", 0, 3)
    assert len({few.key(i, s, n) for i in "ab" for s in (0, 1) for n in (0, 1)}) == 8
    assert few.key("id", 0, 0) != Search("tpe", 5, 0.2, 10.0).key("id", 0, 0)


def run(folder, plan, seeds=1):
    study = Study(_tasks.line.using(steps=18), folder, seeds=seeds).add(plan)
    return study.run(workers=0, device="cpu", show=False)


def test_a_search_that_is_continued_goes_on_as_if_it_had_not_stopped(tmp_path):
    """Six trials, then six more: the same twelve as in one go."""

    def found(folder, trials):
        run(folder, f"tpe(trials={trials})")
        return {r.key: (r.rule, r.status, r.metrics) for r in Store(folder).read_all()}

    found(tmp_path / "a", 6)
    continued, whole = found(tmp_path / "a", 12), found(tmp_path / "b", 12)
    assert continued == whole
    assert len(whole) == 12


# Halving


def test_rungs_keep_the_best_third_and_cost_seven_trainings_of_27():
    assert halving(27, 3) == ((1 / 9, 9), (1 / 3, 3))
    assert rungs.trainings(27, halving(27, 3)) == pytest.approx(7)
    assert rungs.trainings(9, halving(9, 3)) == pytest.approx(9 / 9 + 3 * 2 / 9 + 2 / 3)
    assert rungs.trainings(4, [(0.5, 4), (0.75, 1)]) == pytest.approx(4 * 0.75 + 0.25)
    assert rungs.jobs(27, halving(27, 3)) == 27 + 9 + 3


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ({}, [("a", 0.5), ("b", 0.5), ("c", 0.5)]),
        ({"a": {0.5: 1.0}, "c": {0.5: 0.0}}, [("b", 0.5)]),  # nothing is decided before all are there
        ({"a": {0.5: 1.0}, "b": {0.5: 3.0}, "c": {0.5: 2.0}}, [("b", 0.75), ("c", 0.75)]),
        ({"a": {0.5: 1.0}, "b": {0.5: -math.inf}, "c": {0.5: -math.inf}}, [("a", 0.75)]),  # what diverged stays behind
        ({"a": {0.5: 1.0}, "b": {0.5: 1.0}, "c": {0.5: 1.0}}, [("a", 0.75), ("b", 0.75)]),  # the first of equals
        ({"a": {0.5: 1.0}, "b": {0.5: 3.0, 0.75: 1.0}, "c": {0.5: 2.0, 0.75: 2.0}}, [("c", 1.0)]),
        ({"a": {1.0: 1.0}, "b": {1.0: 3.0}, "c": {1.0: 2.0}}, []),  # all ended before the first rung
        ({"a": {0.5: 1.0}, "b": {0.5: 3.0, 0.75: 1.0}, "c": {0.5: 2.0, 0.75: 2.0, 1.0: 0.0}}, []),
        ({key: {0.5: -math.inf} for key in "abc"}, []),
    ],
)
def test_who_goes_on_follows_from_what_was_found(scores, expected):
    assert rungs.next_jobs("abc", [rungs.Rung(0.5, 2), rungs.Rung(0.75, 1)], scores) == expected


def test_halving_pauses_trainings_and_the_cost_says_so(tmp_path):
    summary = run(tmp_path, "sha(9)", seeds=2)
    (row,) = summary.rows
    records = Store(tmp_path).read_all()
    assert [r.until for r in records] == ([1 / 9] * 9 + [1 / 3] * 3 + [1.0]) * 2
    last = {r.key: r for r in records}
    assert sorted(r.status for r in last.values()) == ["done"] * 2 + ["paused"] * 16
    assert row.cost == pytest.approx(9 / 9 + 3 * 2 / 9 + 2 / 3, abs=1e-3)
    assert set(row.chosen.report) == {0, 1}
    best = {seed: min((r for r in records if r.seed == seed and r.until < 0.2), key=error) for seed in (0, 1)}
    assert {seed: r.key for seed, r in row.chosen.records.items()} == {seed: r.key for seed, r in best.items()}


def error(record):
    return record.metrics["validation/error"]


def test_more_candidates_go_on_from_the_ones_that_are_paused(tmp_path):
    run(tmp_path, "sha(9)")
    before = Store(tmp_path).read_all()
    run(tmp_path, "sha(27)")
    records = Store(tmp_path).read_all()
    assert records[: len(before)] == before
    counts = Counter((r.key, r.until) for r in records)
    assert set(counts.values()) == {1}  # nothing was trained twice


def test_two_workers_find_what_one_finds(tmp_path):
    found = []
    for workers in (0, 2):
        folder = tmp_path / str(workers)
        Study(_tasks.line.using(steps=18), folder, seeds=1).add("sha(9)").run(workers=workers, device="cpu", show=False)
        found.append({(r.key, r.until): r.metrics for r in Store(folder).read_all()})
    assert found[0] == found[1]


def test_a_candidate_that_fails_is_left_behind_and_tried_again_by_the_next_run(tmp_path, capfd):
    marker = tmp_path / "marker"
    marker.touch()
    made = _tasks.troubled.using(seed=0, marker=str(marker), how="third", steps=18)

    def trained():
        Study(made, tmp_path / "out", seeds=1).add("sha(9)").run(workers=0, device="cpu", show=False)
        return Store(tmp_path / "out").read_all()

    first = trained()
    assert [r.status for r in first].count("failed") == 1
    assert first[-1].status == "done"
    marker.unlink()
    again = trained()
    assert again[: len(first)] == first
    assert {r.key for r in again if r.status == "failed"} <= {r.key for r in again if r.status != "failed"}


def test_clean_deletes_what_paused_trainings_kept_and_nothing_else(tmp_path, capsys):
    run(tmp_path, "sha(9)")
    before = Store(tmp_path).read_all()
    with Store(tmp_path).join(print):
        assert cli.main(["clean", str(tmp_path)]) == 1
        assert "is running, and its paused trainings may go on: clean it later." in capsys.readouterr().err
    for said in ("8 snapshots", "No paused training has a snapshot."):
        assert cli.main(["clean", str(tmp_path)]) == 0
        assert capsys.readouterr().out.startswith(said)
    assert Store(tmp_path).read_all() == before
    again = run(tmp_path, "sha(27)")  # those that go on now begin anew, and have the same results
    whole = run(tmp_path / "b", "sha(27)")
    assert again.rows[-1].chosen.records[0].metrics == whole.rows[0].chosen.records[0].metrics
