"""The plan halving: what it costs, what it leaves behind, and how it goes on."""

import dataclasses

import pytest
import torch

import trainonce
from tests.study import _branching
from tests.study._branching import STEPS, line, without_loop
from trainonce import halving
from trainonce.study import task
from trainonce.study.layout import HISTORY
from trainonce.study.plans import parse
from trainonce.study.record import Record, read_weighting
from trainonce.study.weightings import Halved, key_of

pytestmark = pytest.mark.filterwarnings("ignore::trainonce.health.HealthWarning")


@task(terms=("fit", "wrong"), metric="error", direction="minimize")
def leaving(trial, *, steps=60):
    model, criterion = torch.nn.Linear(2, 1), trial.criterion()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    trial.attach(optimizer)
    for step in trial.loop([model, optimizer]):
        y = model(torch.eye(2))
        criterion(fit=y.square().mean(), wrong=y.abs().mean()).backward()
        optimizer.step()
        if step == 1:
            break
    return {"validation/error": 1.0, "test/error": 1.0}


@task(terms=("fit", "wrong"), metric="error", direction="minimize")
def epochs(trial, *, steps=60):
    model, criterion = torch.nn.Linear(2, 1), trial.criterion()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    trial.attach(optimizer)
    for first in (0, 30):
        for _ in trial.loop([model, optimizer], first + 30, first):
            y = model(torch.eye(2))
            criterion(fit=y.square().mean(), wrong=y.abs().mean()).backward()
            optimizer.step()
            if trial.wants_score:
                trial.score(1.0)
    return {"validation/error": 1.0, "test/error": 1.0}


#: Rounds end after 3, 7 and 20 of the 60 steps; five starts, of which 3, 2 and 1 go on.
LEGS = [*[range(3)] * 5, *[range(3, 7)] * 3, *[range(7, 20)] * 2, range(20, STEPS)]


ROUNDS = "drift=0,rounds=0.0555556/0.1111111/0.3333333,keep=3/2/1"


def run(folder, plan=f"halving(factors=0.0833333/0.25/4/12,{ROUNDS})", **settings):
    return _branching.run(folder, plan, **settings)


def test_less_of_what_hurts_goes_on_and_is_said(tmp_path):
    study, record = run(tmp_path, keep=0, steps=360)
    assert [answer["step"] for answer in record.answers] == [20, 40, 120]
    assert [len(answer["scores"]) for answer in record.answers] == [5, 3, 2]
    assert record.answers[-1]["chosen"] == "with wrong at 1/12"
    plain = run(tmp_path / "plain", "units", keep=0, steps=360)[1]
    assert record.metrics["test/error"] < 0.3 * plain.metrics["test/error"]
    assert Record.from_json(record.to_json()).answers == record.answers
    text = str(study.summary())
    assert "of 1 training, 1 went on with wrong at 1/12." in text
    assert "weights of the raw losses, found in gradient units by halving" in text


def test_the_cost_counts_all_starts(tmp_path):
    log = tmp_path / "log"
    _, record = run(tmp_path / "out", keep=0, log=str(log))
    steps = [step for leg in LEGS for step in leg]
    assert [int(text) for text in log.read_text().split()] == steps
    assert record.fraction == pytest.approx(len(steps) / STEPS, abs=1e-3)


def test_history_and_reports_are_those_of_one_training(tmp_path):
    study, record = run(tmp_path)
    history = trainonce.History.load(study.store.folder(record.key) / HISTORY)
    assert history.columns()["step"] == list(range(1, STEPS + 1))
    assert [step for step, _ in record.reports] == list(range(25, STEPS + 1, 5))
    assert history.columns()["weight/wrong"][STEPS - 1] == pytest.approx(record.weights[1])


@pytest.mark.parametrize("stop_at", [2, 8, 17, 20, 27, 33, 45, 53, 60, 85])
@pytest.mark.parametrize("keep", [1, 6])
def test_a_stopped_training_goes_on_as_if_it_had_not_been(tmp_path, stop_at, keep):
    """In the first, a middle and the last start of each round, and after the last round."""
    log, given = tmp_path / "log", {"keep": keep, "flag": str(tmp_path / "flag")}
    study, whole = run(tmp_path / "whole", **given)
    given |= {"stop_at": stop_at, "log": str(log)}
    failed = run(tmp_path / "cut", **given)[1]
    assert failed.status == "failed"
    again, record = run(tmp_path / "cut", **given)
    assert (record.status, record.metrics, record.weights) == ("done", whole.metrics, whole.weights)
    assert record.answers == whole.answers
    assert record.reports == whole.reports
    one, other = (s.store.folder(r.key) / HISTORY for s, r in ((study, whole), (again, record)))
    assert one.read_bytes() == other.read_bytes()
    twice = len(log.read_text().split()) - sum(map(len, LEGS))  # steps that were made again
    assert twice == 0 if keep == 1 else twice < 30
    assert record.fraction == whole.fraction
    assert failed.fraction == pytest.approx((twice + 1) / STEPS, abs=1e-3)  # with the one that failed


def test_what_failed_before_a_checkpoint_is_counted(tmp_path):
    given = {"keep": 0, "flag": str(tmp_path / "flag"), "stop_at": 71}
    assert run(tmp_path, **given)[1].fraction == pytest.approx(71 / STEPS, abs=1e-3)


def test_a_task_that_leaves_the_loop_too_early_has_failed(tmp_path):
    _, record = run(tmp_path, made=leaving)
    assert record.status == "failed"
    assert "'leaving' ended before the plan 'halving' had chosen its weights." in record.error["message"]


def test_a_drift_without_held_out_data_is_said(tmp_path):
    told = "makes no criterion.held_out, so the plan's drift moved nothing."
    assert any(told in text for text in run(tmp_path / "a", "halving")[1].warnings)
    assert not any(told in text for text in run(tmp_path / "b")[1].warnings)  # it has no drift


def test_the_loop_is_entered_once(tmp_path):
    _, record = run(tmp_path, made=epochs)
    assert record.status == "failed"
    assert "trial.loop was called twice" in record.error["message"]


def test_the_plan_takes_a_task_s_own_gradient_units():
    own = dataclasses.replace(line, one_shot={"units": "gradient", "limit": 3.0, "drift": 1.0})
    weighting = parse("halving(drift=2)", own).weightings[0]
    assert (weighting.limit, weighting.drift) == (3.0, 2.0)
    raw = dataclasses.replace(line, one_shot={"init": 0.5, "decay": 2.0})
    assert parse("halving", raw).weightings[0] == Halved()


def test_a_task_without_the_loop_is_named(tmp_path):
    _, record = run(tmp_path, made=without_loop)
    assert record.status == "failed"
    assert "The plan 'halving' goes back in the training" in record.error["message"]
    assert "'without_loop' has to loop over trial.loop(...)" in record.error["message"]


def test_the_plan_s_settings_and_keys():
    text = "halving(factors=0.1/10,rounds=0.1/0.5,keep=2/1,drift=0)"
    plain, changed = (parse(text, line).weightings[0] for text in ("halving", text))
    assert plain == Halved()
    assert plain.label == "gradient units, drift 4, halving over 1/30, 30"
    assert (plain.factors, plain.rounds, plain.keep) == (halving.FACTORS, halving.ROUNDS, halving.KEEP)
    assert changed == Halved(factors=(0.1, 10.0), rounds=(0.1, 0.5), keep=(2, 1), drift=0.0)
    assert key_of("task", plain, 0) != key_of("task", changed, 0)
    assert read_weighting(changed.to_json()) == changed
    with pytest.raises(ValueError, match=r"The plan 'halving' has the settings .* Did you mean 'factors'"):
        parse("halving(factor=0.2)", line)


@pytest.mark.parametrize(
    "text",
    [
        "halving(factors=1)",
        "halving(factors=0.1/0.1)",
        "halving(rounds=0.1/2,keep=2/1)",
        "halving(rounds=0.1/0.5,keep=1)",
        "halving(keep=2)",
        "halving(rounds=0.1/0.2/0.3,keep=3/2/2)",
        "halving(rounds=0.1/0.2/0.3,keep=2/3/1)",
        "halving(rounds=0.1/0.2/0.3,keep=3/2.5/1)",
        "halving(rounds=0.1/0.1/0.2,keep=3/2/1)",
        "halving(units=raw)",
    ],
)
def test_wrong_settings_are_refused_before_anything_runs(text):
    with pytest.raises(ValueError, match=r"halving|Halving"):
        parse(text, line)
