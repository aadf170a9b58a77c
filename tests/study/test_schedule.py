"""Which trial may run next."""

import dataclasses
import math
import time

import _tasks
import pytest
from _stores import final, replay, yoto

from trainonce.study import schedule as schedule_module
from trainonce.study.plans import parse
from trainonce.study.record import Record
from trainonce.study.rules import donor, fixed, key_of
from trainonce.study.schedule import Item, Schedule, left_out


def record(key, rule, seed, status="done"):
    return Record(key, "t", rule, seed, status, {"validation/error": 1.0, "test/error": 1.0})


def drain(schedule, status="done"):
    """Run everything the schedule gives, and return the labels in order."""
    labels = []
    while (found := schedule.next()) is not None:
        job, label = found
        labels.append(label)
        schedule.close(job.key, [record(job.key, job.rule or fixed((1.0, 1.0)), job.seed, status)])
    return labels


def test_a_trial_that_needs_another_waits_for_it():
    learned = yoto()
    everything = [
        Item.of_rule("replay", 1, replay(learned), "id"),
        Item.of_rule("yoto", 0, learned, "id"),
    ]
    schedule = Schedule(_tasks.line, everything, {})
    (first, _), second = schedule.next(), schedule.next()
    assert donor(1) == 0
    assert first.rule == learned
    assert second is None
    assert not schedule.is_finished
    schedule.close(first.key, [record(first.key, learned, 0)])
    (job, _) = schedule.next()
    assert job.rule == replay(learned)
    assert job.source == first.key


def test_what_needs_a_failed_trial_is_left_out():
    learned = yoto()
    schedule = Schedule(
        _tasks.line, [Item.of_rule("yoto", 0, learned, "id"), Item.of_rule("replay", 1, replay(learned), "id")], {}
    )
    assert len(drain(schedule, "failed")) == 1
    assert schedule.is_finished


def ended(seed, status, *coefficients):
    """A yoto run that has ended, with its last coefficients."""
    key = key_of("id", yoto(), seed)
    return {key: dataclasses.replace(record(key, yoto(), seed, status), coefficients=coefficients)}


@pytest.mark.parametrize("status", ["diverged", "done"])
@pytest.mark.parametrize("control", [replay, final])
def test_a_control_of_coefficients_that_are_not_finite_is_left_out(control, status):
    item = Item.of_rule("control", 0, control(yoto()), "id")
    before = {item.keys[0]: record(item.keys[0], control(yoto()), 0, "failed")}  # of a version that tried it
    for more in ({}, before):
        known = ended(1, status, 0.5, math.nan) | more
        schedule = Schedule(_tasks.line, [item], known.values())
        assert schedule.next() is None
        assert schedule.is_finished
        (skip,) = schedule.skipped
        assert skip == (item.label(item.keys[0]), 0, "the coefficients of the run of seed 1 diverged")
        assert left_out([item], known) == {item.keys[0]: skip.why}


def test_a_control_of_a_run_whose_metric_alone_diverged_is_trained():
    item = Item.of_rule("final", 0, final(yoto()), "id")
    known = ended(1, "diverged", 0.4, 0.6)
    assert Schedule(_tasks.line, [item], known.values()).next() is not None
    assert left_out([item], known) == {}


def test_a_control_that_was_trained_is_not_left_out():
    item = Item.of_rule("final", 0, final(yoto()), "id")
    trained = {item.keys[0]: record(item.keys[0], final(yoto()), 0)}
    assert left_out([item], ended(1, "diverged", math.nan) | trained) == {}


def test_controls_bring_the_runs_that_they_need_each_once():
    plans = [parse(text, _tasks.line) for text in ("replay", "final", "uniform")]
    everything = schedule_module.items(plans, [0, 1], "id")
    assert [(item.plan, item.seed) for item in everything[:2]] == [("yoto", donor(0)), ("yoto", donor(1))]
    assert [item.plan for item in everything[2:]] == ["replay", "final", "uniform"] * 2
    asked = schedule_module.items([parse("yoto", _tasks.line), *plans], [0, 1], "id")
    assert [item.plan for item in asked] == ["yoto", "replay", "final", "uniform"] * 2


def test_a_control_of_a_failed_run_waits_for_its_next_attempt():
    item = Item.of_rule("final", 0, final(yoto()), "id")
    known = ended(1, "failed", math.nan)
    assert left_out([item], known) == {}
    schedule = Schedule(_tasks.line, [Item.of_rule("yoto", 1, yoto(), "id"), item], known.values())
    assert schedule.next()[0].rule == yoto()
    schedule.close(key_of("id", yoto(), 1), [known[key_of("id", yoto(), 1)]])
    assert schedule.next() is None
    assert [skip.why for skip in schedule.skipped] == ["the run of seed 1 failed"]


def test_rules_shared_by_plans_run_once():
    rule = fixed((1.0, 1.0))
    schedule = Schedule(_tasks.line, [Item.of_rule("uniform", 0, rule, "id"), Item.of_rule("grid", 0, rule, "id")], {})
    assert len(drain(schedule)) == 1


def test_what_is_left_shrinks_with_every_trial_that_ended_or_is_left_out():
    learned = yoto()
    items = [Item.of_rule("yoto", 0, learned, "id"), Item.of_rule("replay", 1, replay(learned), "id")]
    schedule = Schedule(_tasks.line, [*items, Item.of_rule("base", 0, fixed((1.0, 0.0)), "id")], {})
    left = [schedule.left]
    while (found := schedule.next()) is not None:
        schedule.close(found[0].key, [record(found[0].key, found[0].rule, found[0].seed, "failed")])
        left.append(schedule.left)
    assert [*left, schedule.left] == [3, 2, 0, 0]  # the replay goes with its yoto run


def test_done_and_diverged_trials_stay_and_failed_ones_run_once_more():
    rule = fixed((1.0, 1.0))
    everything = [Item.of_rule("grid", seed, rule, "id") for seed in range(4)]
    status = ["done", "diverged", "done", "failed"]
    known = {key_of("id", rule, s): record(key_of("id", rule, s), rule, s, status[s]) for s in range(4)}
    schedule = Schedule(_tasks.line, everything, known.values())
    assert schedule.left == 1
    assert len(drain(schedule, "failed")) == 1
    assert schedule.is_finished


def test_a_search_runs_its_trials_one_after_the_other_and_seeds_side_by_side():
    study_plan = _tasks.line, "tpe(trials=3)"
    plan = parse(study_plan[1], study_plan[0])
    schedule = Schedule(_tasks.line, schedule_module.items([plan], [0, 1], "id"), {})
    jobs = [schedule.next()[0], schedule.next()[0]]
    assert schedule.next() is None
    assert [job.seed for job in jobs] == [0, 1]
    schedule.close(jobs[0].key, [record(jobs[0].key, fixed((1.0, 1.0, 1.0)), 0)])
    follower, label = schedule.next()
    assert [r.key for r in follower.done] == [jobs[0].key]
    assert label == "tpe(trials=3) 2/3"


def test_a_trial_that_another_process_has_is_checked_again(monkeypatch):
    monkeypatch.setattr(schedule_module, "POLL", 0.05)
    rule = fixed((1.0, 1.0))
    schedule = Schedule(_tasks.line, [Item.of_rule("grid", 0, rule, "id")], {})
    job, _ = schedule.next()
    schedule.postpone(job.key)
    assert schedule.next() is None
    assert schedule.elsewhere == 1
    assert not schedule.is_finished
    time.sleep(0.06)
    assert schedule.next()[0] == job
