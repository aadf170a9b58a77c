"""Running studies: what is missing runs, what is there stays, and a failure does not end the others."""

import collections
import dataclasses
import math
import multiprocessing
import os
import time
from pathlib import Path

import _tasks
import pytest
import torch
from _runs import keys_of, records, study

from trainonce.report import table
from trainonce.study import Record, Study, runner, task
from trainonce.study.executors.task_location import load_file
from trainonce.study.store import Store


@pytest.mark.parametrize("workers", [0, 2])
def test_every_trial_is_recorded_with_its_history(workers, tmp_path):
    made = study(tmp_path)
    summary = made.run(workers=workers, show=False)
    found = records(tmp_path)
    assert {r.key for r in found} == keys_of(made)
    assert len(found) == 10
    for r in found:
        assert r.status == "done"
        assert r.fraction == 1.0
        assert [step for step, _ in r.reports] == list(range(2, 21, 2))
        assert sum(r.coefficients) == pytest.approx(1)
        assert len((tmp_path / "trials" / r.key / "history.jsonl").read_text().splitlines()) == 21
    assert [row.plan for row in summary.rows] == ["yoto", "grid(0.1,1)"]


def test_a_second_run_does_nothing_and_new_plans_and_seeds_add_to_it(tmp_path):
    study(tmp_path).run(workers=0, show=False)
    before = records(tmp_path)
    study(tmp_path).run(workers=0, show=False)
    assert records(tmp_path) == before
    summary = study(tmp_path, plans=["uniform"], seeds=3).run(workers=0, show=False)
    assert [row.plan for row in summary.rows] == ["yoto", "grid(0.1,1)", "uniform"]
    assert len(records(tmp_path)) == len(before) + 1  # uniform is a point of the grid: only seed 2 is new


def test_plans_that_differ_in_a_late_digit_all_run(tmp_path):
    plans = [
        "random(trials=2,seed=20240601)",
        "random(trials=2,seed=20240602)",
        "yoto(decay=2.00000001)",
        "yoto",
    ]
    summary = study(tmp_path, plans=plans, seeds=1, steps=1).run(workers=0, show=False)
    assert [row.plan for row in summary.rows] == plans
    assert len(records(tmp_path)) == 6


def test_a_plan_that_is_added_twice_is_one_sentence(tmp_path):
    made = study(tmp_path, plans=["grid(0.1,1)", "random"])
    with pytest.raises(ValueError, match=r"The plan 'grid\(0.1,1\)' is given twice\. .* leave one out\."):
        made.add("grid", 0.1, 1.0)
    made.add("random(seed=0)")  # written in another way: another row, the same trials
    assert [plan.name for plan in made.plans] == ["grid(0.1,1)", "random", "random(seed=0)"]
    assert len(keys_of(made)) == 2 * (4 + 9)


def test_points_that_are_close_have_labels_of_their_own(tmp_path):
    made = study(tmp_path, plans=["grid(small=1.0001/1.0002,flat=1)"], seeds=1, steps=1)
    shown = [item.label(item.keys[0]) for item in made.items()]
    assert len(set(shown)) == 2
    (row,) = made.run(workers=0, show=False).rows
    assert [o.label for o in row.outcomes] == ["1 : 1.0001 : 1", "1 : 1.0002 : 1"]


def test_other_settings_are_another_study_in_the_same_folder(tmp_path):
    study(tmp_path).run(workers=0, show=False)
    changed = study(tmp_path, plans=["uniform"], steps=5)
    assert changed.changes == ("the setting steps",)
    summary = changed.run(workers=0, show=False)
    assert [row.plan for row in summary.rows] == ["uniform"]
    assert len(records(tmp_path)) == 12


def test_a_folder_of_another_task_is_refused(tmp_path):
    study(tmp_path).run(workers=0, show=False)
    with pytest.raises(ValueError, match=r"holds a study of the task 'line', not of 'troubled'"):
        study(tmp_path, _tasks.troubled)


def test_the_random_numbers_of_a_trial_do_not_depend_on_its_plan(tmp_path):
    """Whatever a plan draws at random, also within its steps, the model and the data are the seed's."""
    plans = ["yoto", "random-weights", "uniform", "uw", "famo", "tpe(trials=1)", "replay"]
    study(tmp_path, _tasks.gambler, plans=plans, seeds=2).run(workers=0, show=False)
    drawn = {seed: {r.metrics["drawn"] for r in records(tmp_path) if r.seed == seed} for seed in (0, 1)}
    assert [len(numbers) for numbers in drawn.values()] == [1, 1]
    assert drawn[0] != drawn[1]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("how", "kind", "message"),
    [
        ("raise", "ZeroDivisionError", "the divisor was 0"),
        ("nothing", "TypeError", "must return a dict with 'validation/error' and 'test/error'; it returned nothing"),
        ("names", "ValueError", "it returned 'val/error', 'test/error'. Missing: 'validation/error'"),
        ("text", "TypeError", "The metric 'validation/error' must be a number; got str"),
        ("detached", "RuntimeError", "never called trial.attach(optimizer)"),
    ],
)
def test_a_failing_trial_is_recorded_and_the_study_goes_on(how, kind, message, workers, tmp_path):
    made = study(tmp_path, _tasks.troubled, plans=["yoto", "uniform"], seeds=3, how=how)
    made.run(workers=workers, show=False)
    status = collections.Counter(r.status for r in records(tmp_path))
    assert status == {"done": 4, "failed": 2}
    for r in records(tmp_path):
        if r.status == "failed":
            assert r.seed == 1
            assert r.error["type"] == kind
            assert message in r.error["message"]
            assert "_tasks.py" in r.error["traceback"] or kind != "ZeroDivisionError"


def test_what_failed_runs_again_and_what_is_there_does_not(tmp_path):
    marker = tmp_path / "trouble"
    marker.touch()
    settings = {"how": "raise", "marker": str(marker)}
    study(tmp_path / "out", _tasks.troubled, plans=["uniform"], seeds=3, **settings).run(workers=0, show=False)
    marker.unlink()
    summary = study(tmp_path / "out", _tasks.troubled, plans=["uniform"], seeds=3, **settings).run(
        workers=0, show=False
    )
    assert [(r.seed, r.status) for r in records(tmp_path / "out")] == [
        (0, "done"),
        (1, "failed"),
        (2, "done"),
        (1, "done"),
    ]
    assert summary.rows[0].cost == pytest.approx((3 + 0.5) / 3)  # the failed training counts, with what was done of it


def test_a_metric_that_is_not_finite_is_a_result_and_does_not_run_again(tmp_path):
    for _ in range(2):
        summary = study(tmp_path, _tasks.troubled, plans=["uniform"], seeds=3, how="nan").run(workers=0, show=False)
    assert [(r.seed, r.status) for r in records(tmp_path)] == [(0, "done"), (1, "diverged"), (2, "done")]
    assert summary.rows[0].chosen.diverged == 1


def test_a_record_that_cannot_be_written_stops_the_study_with_a_sentence(tmp_path, monkeypatch):
    made = study(tmp_path)

    def full(self, record):
        raise OSError(28, "The trial just finished could not be recorded: No space left on device")

    monkeypatch.setattr(Store, "append", full)
    with pytest.raises(runner.StoppedError, match="No space left on device"):
        made.run(workers=0, show=False)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_task_may_change_the_directory_or_call_for_the_end(workers, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for how in ("chdir", "quit"):
        made = study(f"out-{how}", _tasks.troubled, plans=["uniform"], seeds=3, how=how)
        made.run(workers=workers, show=False)
        monkeypatch.chdir(tmp_path)
        status = [r.status for r in records(tmp_path / f"out-{how}")]
        assert status == ["done", "failed" if how == "quit" else "done", "done"]


def test_settings_that_a_trial_changes_are_its_own(tmp_path):
    study(tmp_path, _tasks.gambler, plans=["uniform"], seeds=3).run(workers=0, show=False)
    assert {r.metrics["widths"] for r in records(tmp_path)} == {2.0}


def test_a_failed_trial_of_a_search_runs_again_with_weights_of_its_own(tmp_path):
    marker = tmp_path / "trouble"
    marker.touch()
    for _ in range(2):
        settings = {"how": "third", "seed": 0, "marker": str(marker)}
        made = study(tmp_path / "out", _tasks.troubled, plans=["tpe(trials=6)"], seeds=1, **settings)
        made.run(workers=0, show=False)
        marker.unlink(missing_ok=True)
    last = {r.key: r for r in records(tmp_path / "out")}
    assert len(records(tmp_path / "out")) == 7
    assert len({r.rule for r in last.values()}) == 6


@task(terms=_tasks.TERMS, metric="error", direction="minimize")
def exploding(trial, *, weights=True):
    """Its metric is not finite in seed 1, nor are its weights unless told otherwise."""
    w, criterion = torch.nn.Parameter(torch.ones(1)), trial.criterion()
    optimizer = torch.optim.SGD([w], lr=0.1)
    trial.attach(optimizer)
    for _ in range(3):
        optimizer.zero_grad()
        criterion([w.sum() * (math.nan if trial.seed == 1 and weights else 1.0)] * 3).backward()
        optimizer.step()
    error = math.nan if trial.seed == 1 else w.item()
    return {"validation/error": error, "test/error": error}


PLANS = ("yoto", "uniform", "final", "replay")


@pytest.mark.filterwarnings("ignore::trainonce.health.HealthWarning")
def test_controls_of_a_run_that_diverged_are_left_out_once_and_for_all(tmp_path, capsys):
    for again in (False, True):
        summary = study(tmp_path, exploding, plans=PLANS, seeds=2).run(workers=0)
        found = records(tmp_path)
        assert len(found) == 6
        assert {r.status for r in found} == {"done", "diverged"}
        said = capsys.readouterr().out
        for plan in ("final", "replay"):
            line = f"{plan}  seed 0  left out: the coefficients of the run of seed 1 diverged\n"
            assert line in said
        assert ("already in" in said) == again
        rows = {row.plan: row for row in summary.rows}
        assert rows["final"].counts == {"left out": 1, "diverged": 2, "done": 1}  # those of its source included
        assert rows["final"].lacking == 0
        assert dict(rows["final"].chosen.left_out) == {0: 1}
        shown = table.to_text(summary)
        assert "no result (diverged in 1 of 2 seeds, 1 of 2 seeds left out)" in shown
        assert "replay is left out in seed 0: the coefficients of the run of seed 1 diverged." in shown
        assert "missing" not in shown


@pytest.mark.filterwarnings("ignore::trainonce.health.HealthWarning")
def test_controls_of_a_run_whose_metric_alone_diverged_are_trained(tmp_path):
    summary = study(tmp_path, exploding, plans=PLANS, seeds=2, weights=False).run(workers=0, show=False)
    assert len(records(tmp_path)) == 8
    assert {row.plan: dict(row.chosen.left_out) for row in summary.rows} == {plan: {} for plan in PLANS}


def test_a_control_whose_run_has_lost_its_history_says_so(tmp_path):
    study(tmp_path, plans=["yoto"]).run(workers=0, show=False)
    for file in tmp_path.rglob("history.jsonl"):
        file.unlink()
    study(tmp_path, plans=["final", "replay"]).run(workers=0, show=False)
    messages = [r.error["message"] for r in records(tmp_path) if r.status == "failed"]
    assert len(messages) == 4
    assert all("needs the history of another run" in message for message in messages)


# Records of other processes and machines

DAY = 86_400


def _failed(made, **more):
    """A failure of the study's only trial."""
    (item,) = made.items()
    return Record(item.keys[0], made.task.name, item.rule, item.seed, "failed", **more)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_failure_from_a_machine_whose_clock_is_ahead_runs_again(workers, tmp_path):
    made = study(tmp_path, plans=["uniform"], seeds=1)
    made.store.append(_failed(made, ended=time.time() + DAY))
    made.run(workers=workers, show=False)
    assert [r.status for r in records(tmp_path)] == ["failed", "done"]


def test_a_death_after_a_failure_from_a_machine_whose_clock_is_ahead_is_recorded(tmp_path):
    made = study(tmp_path, _tasks.troubled, plans=["uniform"], seeds=1, how="die", seed=0)
    made.store.append(_failed(made, ended=time.time() + DAY))
    made.run(workers=1, show=False)
    assert [(r.error or {}).get("type") for r in records(tmp_path)] == [None, "ProcessDied"]


def _run_elsewhere(path, record, claimed):
    store = Store(path)
    with store.claim(record.key):
        claimed.set()
        time.sleep(0.3)
        store.append(record)


@pytest.mark.parametrize("ahead", [-DAY, DAY], ids=["its clock is behind", "its clock is ahead"])
@pytest.mark.parametrize("status", ["failed", "done"])
def test_what_another_process_is_running_is_taken_from_it_whatever_its_clock_says(status, ahead, tmp_path):
    made = study(tmp_path, plans=["uniform"], seeds=1)
    first = _failed(made, ended=time.time() + ahead, metrics={"validation/error": 1.0, "test/error": 1.0})
    made.store.append(first)
    context = multiprocessing.get_context("fork")
    claimed, second = context.Event(), dataclasses.replace(first, status=status)
    process = context.Process(target=_run_elsewhere, args=(tmp_path, second, claimed))
    process.start()
    assert claimed.wait(10)
    summary = made.run(workers=0, show=False)
    process.join()
    assert [r.status for r in summary.records] == ["failed", status]
    assert len(records(tmp_path)) == 2


def test_a_study_reads_each_record_a_few_times_at_most(tmp_path, monkeypatch):
    """Not the whole store before each trial."""
    many = study(tmp_path, plans=["uniform"], seeds=40)
    for item in many.items():
        metrics = {"validation/error": 1.0, "test/error": 1.0}
        many.store.append(Record(item.keys[0], "line", item.rule, item.seed, "done", metrics))
    parsed, parse = [], Record.from_json
    monkeypatch.setattr(Record, "from_json", lambda content: parsed.append(1) or parse(content))
    study(tmp_path, plans=["uniform", "base"], seeds=5, steps=2).run(workers=0, show=False)
    assert len(records(tmp_path)) == 50
    assert len(parsed) <= 40 + 3 * 10 + 50  # once what was there, some times what is new, and once in this test


def test_a_file_that_was_edited_after_it_was_loaded_is_not_trained_in_this_process(tmp_path):
    """Its key is that of the file as it is now, and its results would be those of the code as it was."""
    file = tmp_path / "mine.py"
    file.write_text(Path(_tasks.__file__).read_text())
    task = load_file(file).line
    os.utime(file, (time.time() + 5,) * 2)
    with pytest.raises(ValueError, match=r"^mine\.py was edited after it was loaded"):
        Study(task, tmp_path / "out", seeds=1).add("uniform").run(workers=0, show=False)
    assert records(tmp_path / "out") == []
