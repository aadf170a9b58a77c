"""The plan scout: branches within a trial, what they cost and leave behind."""

import pytest

import trainonce
from tests.study import _branching
from tests.study._branching import STEPS, line, without_loop
from trainonce.study.layout import HISTORY
from trainonce.study.plans import parse
from trainonce.study.record import Record, read_weighting
from trainonce.study.weightings import Scouted, key_of

pytestmark = pytest.mark.filterwarnings("ignore::trainonce.health.HealthWarning")


def run(folder, plan="scout", **settings):
    return _branching.run(folder, plan, **settings)


def test_a_scout_lowers_what_hurts_and_says_so(tmp_path):
    _, record = run(tmp_path, "scout(moments=0.1/0.35,length=0.17)", keep=0)
    assert [answer["chosen"] for answer in record.answers] == ["with wrong at 1/30", "as it is"]
    assert [answer["step"] for answer in record.answers] == [6, 21]
    plain = run(tmp_path / "plain", "one-shot(units=gradient)", keep=0)[1]
    assert record.metrics["test/error"] < 0.1 * plain.metrics["test/error"]
    assert Record.from_json(record.to_json()).answers == record.answers


def test_the_cost_counts_the_branches(tmp_path):
    _, record = run(tmp_path, keep=0)
    assert record.fraction == pytest.approx(1 + 3 * 5 / STEPS, abs=1e-3)  # three branches of 5 steps, one change each


def test_the_history_is_that_of_the_training_itself(tmp_path):
    study, record = run(tmp_path, keep=0)
    history = trainonce.History.load(study.store.folder(record.key) / HISTORY)
    assert history.columns()["step"] == list(range(1, STEPS + 1))


def test_reports_and_checkpoints_come_from_the_training_itself(tmp_path):
    _, record = run(tmp_path, keep=5)
    steps = [step for step, _ in record.reports]
    assert steps == sorted(set(steps))
    assert 10 not in steps  # within the second branch
    assert {20, 30, 60} <= set(steps)


@pytest.mark.parametrize("stop_at", [4, 9, 14, 30, 45, 62])
def test_a_stopped_scout_goes_on_as_if_it_had_not_been(tmp_path, stop_at):
    """Before, in either part of the first branch, between, and after the last one."""
    flag = str(tmp_path / "flag")
    study, whole = run(tmp_path / "whole", flag=flag)
    _, failed = run(tmp_path / "cut", flag=flag, stop_at=stop_at)
    assert failed.status == "failed"
    again, record = run(tmp_path / "cut", flag=flag, stop_at=stop_at)
    assert (record.status, record.metrics, record.weights) == ("done", whole.metrics, whole.weights)
    assert record.answers == whole.answers
    one, other = (s.store.folder(r.key) / HISTORY for s, r in ((study, whole), (again, record)))
    assert one.read_bytes() == other.read_bytes()


def test_other_plans_run_the_steps_once(tmp_path):
    log = tmp_path / "log"
    run(tmp_path / "out", "uniform", keep=0, log=str(log))
    assert [int(text) for text in log.read_text().split()] == list(range(STEPS))


def test_a_task_without_the_loop_is_named(tmp_path):
    _, record = run(tmp_path, made=without_loop)
    assert record.status == "failed"
    assert "'without_loop' has to loop over trial.loop(...)" in record.error["message"]


def test_the_plan_s_settings_and_keys():
    plain, changed = (
        parse(text, line).weightings[0]
        for text in ("scout", "scout(moments=0.2/0.6,length=0.1,levels=0.2/0.03,drift=4)")
    )
    assert plain == Scouted()
    assert plain.label == "gradient units, scouts at 0/0.1/0.35"
    assert changed == Scouted(moments=(0.2, 0.6), length=0.1, levels=(0.2, 0.03), drift=4.0)
    assert key_of("task", plain, 0) != key_of("task", changed, 0)
    assert read_weighting(changed.to_json()) == changed
    with pytest.raises(ValueError, match=r"The plan 'scout' has the settings .* Did you mean 'moments'"):
        parse("scout(moment=0.2)", line)


@pytest.mark.parametrize(
    "text", ["scout(moments=2)", "scout(length=0)", "scout(units=raw)", "scout(moments=0.1/0.12)", "scout(levels=1)"]
)
def test_wrong_settings_are_refused_before_anything_runs(text):
    with pytest.raises(ValueError, match=r"scout|Scouts"):
        parse(text, line)
