"""What a study will cost, and when that is refused."""

import time

import _tasks
import pytest
from _runs import records, study

from trainonce.study import Study, cost, schedule, task
from trainonce.study.plans import LARGEST, parse


def many_terms(count, **more):
    made = task(terms=[f"t{i}" for i in range(count)], metric="error", direction="minimize", **more)
    return made(lambda trial, *, steps=10: None)


def test_trials_are_counted_by_plan():
    plans = [parse(text, _tasks.line) for text in ("yoto", "grid", "tpe(trials=5)")]
    assert cost.trial_counts(plans, [0, 1]) == {"yoto": 2, "grid": 18, "tpe(trials=5)": 10}


def test_missing_trials_count_once_and_with_what_controls_need():
    plans = [parse(text, _tasks.line) for text in ("uniform", "grid(1)", "replay")]
    assert cost.missing_trials(_tasks.line, plans, [0], {}) == 3  # uniform is a point of the grid; seed 1's yoto


@pytest.mark.parametrize(
    "texts",
    [
        ["grid", "uniform", "random(trials=3)"],
        ["replay", "final", "yoto"],
        ["replay(init=1)", "yoto"],
        ["tpe(trials=5)", "tpe(trials=3)", "tpe(trials=4,low=0.1)", "base"],
        ["yoto", "yoto(init=1)", "sweep-init(1,2)", "uw"],
    ],
)
@pytest.mark.parametrize("seeds", [[0], [0, 1, 2], [3, 5]])
def test_trials_are_counted_without_their_keys_as_with_them(texts, seeds):
    plans = [parse(text, _tasks.line) for text in texts]
    keys = {key for item in schedule.items(plans, seeds, "identity") for key in item.keys}
    assert cost.missing_trials(_tasks.line, plans, seeds, {}) == len(keys)


@pytest.mark.parametrize(("terms", "shown"), [(12, "177,147"), (30, "68,630,377,364,883"), (100, r"about 10\^47")])
def test_an_enormous_grid_is_refused_before_it_is_listed(terms, shown):
    start = time.monotonic()
    with pytest.raises(
        ValueError, match=rf"'grid' has {shown} points for the {terms} terms .* random\(trials=30\) or sha"
    ):
        parse("grid", many_terms(terms))
    assert time.monotonic() - start < 1


def test_random_points_have_the_same_limit():
    with pytest.raises(
        ValueError, match=r"'random' has 100,001 points .* lists at most 100,000\. Use random\(trials=30\)\.$"
    ):
        parse(f"random(trials={LARGEST + 1})", _tasks.line)


def refusal(plans, seeds, made=_tasks.line, workers=1, found=None):
    return cost.excess(made, [parse(text, made) for text in plans], seeds, found or {}, workers)


def test_a_study_of_a_thousand_trials_runs_and_one_of_more_is_refused():
    nine = many_terms(3)
    assert refusal(["grid"], range(111), nine) == ""  # 999
    assert "times; the plan 'grid' has 1,008 of the trials, in 112 seeds. Fewer seeds or plans take less." in refusal(
        ["grid"], range(112), nine
    )


def test_the_plan_with_the_most_trials_is_named_with_what_takes_fewer():
    text = refusal(["yoto", "random(trials=40)", "grid"], [0], many_terms(8))
    assert text == (
        "The study would train 2,228 times; the plan 'grid' has 2,187 of the trials. random(trials=30) or sha would "
        "take fewer."
    )


@pytest.mark.parametrize("plan", ["sha(trials=2000)", "tpe(trials=2000)", "random(trials=2000)"])
def test_fewer_trials_are_suggested_of_a_plan_that_counts_them(plan):
    text = refusal([plan], [0], many_terms(3))
    assert text.endswith(f"has 2,000 of the trials. {plan.replace('2000', '30')} would take fewer.")


def test_a_search_is_counted_without_being_listed():
    assert "would train 6,000,000 times" in refusal(["tpe(trials=2000000)"], [0, 1, 2])


def test_a_study_of_more_than_a_day_is_refused_and_more_workers_help():
    slow = many_terms(2, seconds=7200.0)
    assert "would train 15 times, about 30.0 h with 1 worker; the plan 'grid' has 15 of" in refusal(
        ["grid"], range(3), slow
    )
    assert refusal(["grid"], range(3), slow, workers=2) == ""
    assert refusal(["grid"], range(3), slow.using(steps=5)) == ""  # half as long
    assert "about 60.0 h" in refusal(["grid"], range(3), slow.using(steps=20))


def test_one_training_is_never_too_long():
    assert refusal(["uniform"], [0], many_terms(2, seconds=1e6)) == ""
    assert "would train 2 times, about" in refusal(["uniform"], [0, 1], many_terms(2, seconds=1e6))


def test_what_is_already_there_does_not_count(tmp_path):
    made = study(tmp_path, plans=["uniform"], seeds=1, steps=1)
    made.run(workers=0, show=False)
    plans = [parse(text, made.task) for text in ("uniform",)]
    assert cost.excess(made.task, plans, [0], {}, 1, limit=0)
    assert cost.excess(made.task, plans, [0], made.store.read(), 1, limit=0) == ""


def test_run_refuses_and_writes_nothing_unless_there_is_no_limit(tmp_path):
    made = Study(_tasks.line.using(steps=1), tmp_path, seeds=3).add("uniform")
    with pytest.raises(ValueError, match=r"would train 3 times.* With limit=None it runs all the same\."):
        made.run(workers=0, device="cpu", show=False, limit=2)
    assert not (tmp_path / "study.json").exists()
    made.run(workers=0, device="cpu", show=False, limit=None)
    assert len(records(tmp_path)) == 3


def test_the_largest_study_that_runs_unasked_has_a_small_manifest(tmp_path):
    """The limit keeps it so; 59 MB were written for 177,148 trials."""
    made = Study(many_terms(12), tmp_path, seeds=1).add(f"random(trials={cost.LIMIT})")
    made.store.write_manifest(made._manifest())
    assert made.store.manifest.stat().st_size < 1e6


def test_a_large_grid_has_a_small_manifest_and_is_counted_without_keys(tmp_path, monkeypatch):
    """Of eleven terms, 59,049 points were 18 MB, and --dry-run took 20 s to count them."""
    nine = many_terms(9)
    plan = parse("grid", nine)
    monkeypatch.setattr(schedule, "items", lambda *_: pytest.fail("every key is made"))
    assert cost.missing_trials(nine, [plan], [0, 1, 2], {}) == 3 * 3**8
    made = Study(nine, tmp_path, seeds=3)
    made.plans.append(plan)
    made.store.write_manifest(made._manifest())
    assert made.store.manifest.stat().st_size < 10_000
