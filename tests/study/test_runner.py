"""Running studies: killed at any moment nothing is lost or repeated, failures stay apart, processes share a store."""

import collections
import contextlib
import dataclasses
import functools
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import _tasks
import pytest
import torch
import torch._dynamo  # or each forked trial would load it

from trainonce.fixed import FixedLoss
from trainonce.study import Study, runner
from trainonce.study import schedule as schedule_module
from trainonce.study.executors import run_trial as worker
from trainonce.study.schedule import Item, Schedule
from trainonce.study.store import Record, Store
from trainonce.study.weightings import Fixed, Learned, Replay, donor, key_of


def keys_of(study):
    return {key for item in study.items() for key in item.keys}


def records(path):
    return Store(path).read_all()


# Which trial is next


def record(key, weighting, seed, status="done"):
    return Record(key, "t", weighting, seed, status, {"validation/error": 1.0, "test/error": 1.0})


def drain(schedule, status="done"):
    """Run everything the schedule gives, and return the labels in order."""
    labels = []
    while (found := schedule.next()) is not None:
        job, label = found
        labels.append(label)
        schedule.settle(job.key, record(job.key, job.weighting or Fixed((1.0, 1.0)), job.seed, status))
    return labels


def test_a_trial_that_needs_another_waits_for_it():
    learned = Learned()
    everything = [
        Item.of_weighting("replay", 1, Replay(learned), "id"),
        Item.of_weighting("one-shot", 0, learned, "id"),
    ]
    schedule = Schedule(everything, {})
    (first, _), second = schedule.next(), schedule.next()
    assert donor(1) == 0
    assert first.weighting == learned
    assert second is None
    assert not schedule.is_finished
    schedule.settle(first.key, record(first.key, learned, 0))
    (job, _) = schedule.next()
    assert job.weighting == Replay(learned)
    assert job.source == first.key


def test_what_needs_a_failed_trial_is_left_out():
    learned = Learned()
    schedule = Schedule(
        [Item.of_weighting("one-shot", 0, learned, "id"), Item.of_weighting("replay", 1, Replay(learned), "id")], {}
    )
    assert len(drain(schedule, "failed")) == 1
    assert schedule.is_finished


def test_points_shared_by_plans_run_once():
    weighting = Fixed.of((1.0, 1.0))
    schedule = Schedule(
        [Item.of_weighting("uniform", 0, weighting, "id"), Item.of_weighting("grid", 0, weighting, "id")], {}
    )
    assert len(drain(schedule)) == 1


def test_done_diverged_and_pruned_trials_stay_and_failed_ones_run_once_more():
    weighting = Fixed.of((1.0, 1.0))
    everything = [Item.of_weighting("grid", seed, weighting, "id") for seed in range(4)]
    status = ["done", "diverged", "pruned", "failed"]
    known = {key_of("id", weighting, s): record(key_of("id", weighting, s), weighting, s, status[s]) for s in range(4)}
    schedule = Schedule(everything, known)
    assert schedule.left == 1
    assert len(drain(schedule, "failed")) == 1
    assert schedule.is_finished


def test_a_search_runs_its_trials_one_after_the_other_and_seeds_side_by_side():
    study_plan = _tasks.line, "tpe(trials=3)"
    from trainonce.study.plans import parse

    plan = parse(study_plan[1], study_plan[0])
    schedule = Schedule(schedule_module.items([plan], [0, 1], "id"), {})
    jobs = [schedule.next()[0], schedule.next()[0]]
    assert schedule.next() is None
    assert [job.seed for job in jobs] == [0, 1]
    schedule.settle(jobs[0].key, record(jobs[0].key, Fixed.of((1.0, 1.0, 1.0)), 0))
    follower, label = schedule.next()
    assert [r.key for r in follower.done] == [jobs[0].key]
    assert label == "tpe(trials=3) 2/3"


def test_a_trial_that_another_process_has_is_looked_at_again(monkeypatch):
    monkeypatch.setattr(schedule_module, "POLL", 0.05)
    weighting = Fixed.of((1.0, 1.0))
    schedule = Schedule([Item.of_weighting("grid", 0, weighting, "id")], {})
    job, _ = schedule.next()
    schedule.settle(job.key, None)
    assert schedule.next() is None
    assert schedule.elsewhere == 1
    assert not schedule.is_finished
    time.sleep(0.06)
    assert schedule.next()[0] == job


# Whole studies


def study(path, task=_tasks.line, plans=("one-shot", "grid(0.1,1)"), seeds=2, **settings):
    made = Study(task.using(**settings), path, seeds=seeds)
    for plan in plans:
        made.add(plan)
    made.run = functools.partial(made.run, device="cpu")  # a forked process cannot use CUDA
    return made


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
        assert sum(r.weights) == pytest.approx(1)
        assert len((tmp_path / "trials" / r.key / "history.jsonl").read_text().splitlines()) == 21
    assert [row.plan for row in summary.rows] == ["one-shot", "grid(0.1,1)"]


def test_processes_find_the_same_numbers_as_this_one(tmp_path):
    for workers in (0, 2):
        study(tmp_path / str(workers)).run(workers=workers, show=False, start="forkserver")
    here, there = ({r.key: (r.metrics, r.weights) for r in records(tmp_path / str(w))} for w in (0, 2))
    assert here == there


def test_a_second_run_does_nothing_and_new_plans_and_seeds_add_to_it(tmp_path):
    study(tmp_path).run(workers=0, show=False)
    before = records(tmp_path)
    study(tmp_path).run(workers=0, show=False)
    assert records(tmp_path) == before
    summary = study(tmp_path, plans=["uniform"], seeds=3).run(workers=0, show=False)
    assert [row.plan for row in summary.rows] == ["one-shot", "grid(0.1,1)", "uniform"]
    assert len(records(tmp_path)) == len(before) + 1  # uniform is a point of the grid: only seed 2 is new


def test_other_settings_are_another_study_in_the_same_folder(tmp_path):
    study(tmp_path).run(workers=0, show=False)
    changed = study(tmp_path, plans=["uniform"], steps=5)
    assert changed.changed
    summary = changed.run(workers=0, show=False)
    assert [row.plan for row in summary.rows] == ["uniform"]
    assert len(records(tmp_path)) == 12


def test_a_folder_of_another_task_is_refused(tmp_path):
    study(tmp_path).run(workers=0, show=False)
    with pytest.raises(ValueError, match=r"holds a study of the task 'line', not of 'troubled'"):
        study(tmp_path, _tasks.troubled)


def test_the_random_numbers_of_a_trial_do_not_depend_on_its_plan(tmp_path):
    """Whatever a plan draws at random, also within its steps, the model and the data are the seed's."""
    plans = ["one-shot", "random-weights", "uniform", "uw", "famo", "tpe(trials=1)", "replay"]
    study(tmp_path, _tasks.gambler, plans=plans, seeds=2).run(workers=0, show=False)
    drawn = {seed: {r.metrics["drawn"] for r in records(tmp_path) if r.seed == seed} for seed in (0, 1)}
    assert [len(numbers) for numbers in drawn.values()] == [1, 1]
    assert drawn[0] != drawn[1]


# Trouble


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
    made = study(tmp_path, _tasks.troubled, plans=["one-shot", "uniform"], seeds=3, how=how)
    made.run(workers=workers, show=False)
    status = collections.Counter(r.status for r in records(tmp_path))
    assert status == {"done": 4, "failed": 2}
    for r in records(tmp_path):
        if r.status == "failed":
            assert r.seed == 1
            assert r.error["type"] == kind
            assert message in r.error["message"]
            assert "_tasks.py" in r.error["traceback"] or kind != "ZeroDivisionError"


def test_a_device_that_fails_for_good_is_recorded_and_ends_the_study_in_one_sentence(tmp_path, monkeypatch):
    """As after an illegal memory access: nothing on the GPU can be read any more, the weights neither."""

    def unreadable(self):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    class Dead(FixedLoss):
        weights = property(unreadable)

    def broken(trial, **settings):
        trial.criterion().__class__ = Dead
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(worker, "answers", lambda device: False)
    made = study(tmp_path, dataclasses.replace(_tasks.line, function=broken), plans=["uniform"], seeds=3)
    with pytest.raises(runner.StoppedError, match=r"cpu does not answer .*; start the study again"):
        made.run(workers=0, show=False)
    (record,) = records(tmp_path)
    assert (record.status, record.weights) == ("failed", ())
    assert "illegal memory access" in record.error["message"]


def test_a_device_that_works_answers_and_one_that_is_not_there_does_not():
    assert worker.answers("cpu")
    assert not worker.answers("meta")  # from which nothing can be read


def test_a_full_device_is_not_a_dead_one(monkeypatch):
    def full(*given, **more):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch, "zeros", full)
    assert worker.answers("cpu")


@pytest.mark.parametrize(("how", "message"), [("die", r"SIGKILL\)\. Was memory short\?"), ("exit", "exit code 3")])
def test_a_process_that_dies_is_a_failed_trial_with_what_it_printed(how, message, tmp_path):
    import re

    made = study(tmp_path, _tasks.troubled, plans=["uniform"], seeds=3, how=how)
    made.run(workers=2, show=False)
    failed = [r for r in records(tmp_path) if r.status == "failed"]
    assert len(failed) == 1
    assert 0 <= failed[0].fraction < 1  # as far as it was heard of
    assert failed[0].seconds > 0
    assert re.search(message, failed[0].error["message"])
    log = made.store.log(failed[0].key).read_text()
    assert log in ("a word before the trouble\n", "")  # what was not flushed died with it
    assert len(records(tmp_path)) == 3


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


def test_tasks_that_are_in_no_file_train_in_this_process(tmp_path):
    from trainonce.study import task

    local = task(terms=_tasks.TERMS, metric="error", direction="minimize")(lambda trial: _tasks.train(trial, 2))
    made = Study(local, tmp_path, seeds=1).add("uniform")
    with pytest.raises(ValueError, match=r"is not in a file.*workers=0"):
        made.run(workers=2, show=False)
    assert made.run(device="cpu", show=False).rows[0].chosen.report


def test_devices_that_are_not_there_are_one_sentence(tmp_path):
    with pytest.raises(ValueError, match="There is no device 'gpu'"):
        study(tmp_path).run(device="gpu", show=False)
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="finds no CUDA device here"):
            study(tmp_path).run(device="cuda", show=False)


@pytest.mark.parametrize("how", ["thread", "child", "orphan"])
def test_what_a_trial_leaves_running_does_not_hold_up_the_study(how, tmp_path):
    start = time.monotonic()
    study(tmp_path, _tasks.troubled, plans=["uniform"], seeds=3, how=how).run(workers=1, show=False)
    assert time.monotonic() - start < 30  # it would be running for 60 seconds
    assert [r.status for r in records(tmp_path)] == ["done", "failed" if how == "orphan" else "done", "done"]


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


def test_a_task_that_is_edited_while_it_runs_stops_the_study(tmp_path):
    """Its keys were computed from the file as it was."""
    file = tmp_path / "mine.py"
    file.write_text(Path(_tasks.__file__).read_text())
    from trainonce.study.executors.run_trial import load_file

    made = Study(load_file(file).line, tmp_path / "out", seeds=2).add("uniform")
    made.task.identity  # noqa: B018 computed before the edit, as when the study starts
    file.write_text(file.read_text().replace("lr=0.1, each=None", "lr=0.2, each=None"))
    with pytest.raises(runner.StoppedError, match="was changed while the study was running"):
        made.run(workers=1, show=False, start="spawn")
    assert records(tmp_path / "out") == []


def test_a_failed_trial_of_a_search_runs_again_with_weights_of_its_own(tmp_path):
    marker = tmp_path / "trouble"
    marker.touch()
    for _ in range(2):
        settings = {"how": "third", "seed": 0, "marker": str(marker)}
        made = study(tmp_path / "out", _tasks.troubled, plans=["asha(trials=6)"], seeds=1, **settings)
        made.run(workers=0, show=False)
        marker.unlink(missing_ok=True)
    last = {r.key: r for r in records(tmp_path / "out")}
    assert len(records(tmp_path / "out")) == 7
    assert len({r.weighting for r in last.values()}) == 6


def test_wrong_numbers_of_workers_are_one_sentence(tmp_path):
    with pytest.raises(ValueError, match="how many trainings run at a time, 0 for in this process; got -1"):
        study(tmp_path).run(workers=-1)


def test_a_control_whose_run_has_lost_its_history_says_so(tmp_path):
    study(tmp_path, plans=["one-shot"]).run(workers=0, show=False)
    for file in tmp_path.rglob("history.jsonl"):
        file.unlink()
    study(tmp_path, plans=["final", "replay"]).run(workers=0, show=False)
    messages = [r.error["message"] for r in records(tmp_path) if r.status == "failed"]
    assert len(messages) == 4
    assert all("needs the history of a one-shot run" in message for message in messages)


# Killed, and shared


def _run_noted(path, notes, seeds, workers):
    os.setpgrp()
    _noted(path, notes, seeds).run(workers=workers, show=False, start="fork")


def _noted(path, notes, seeds):
    return study(path, _tasks.noted, plans=["one-shot", "grid(0.1,1)", "replay"], seeds=seeds, notes=str(notes))


def _starts(notes):
    """When each trial was started."""
    found = collections.defaultdict(list)
    for line in Path(notes).read_text().splitlines() if Path(notes).exists() else ():
        key, _, when = line.partition(" ")
        found[key].append(float(when))
    return found


def _check_nothing_lost_or_repeated(made, notes):
    found = records(made.store.path)
    assert collections.Counter(r.key for r in found) == dict.fromkeys(keys_of(made), 1)
    ended = {r.key: r.ended for r in found}
    late = {key: when for key, times in _starts(notes).items() for when in times if when > ended[key]}
    assert not late  # no trial was started again after it had been recorded


@pytest.mark.parametrize("whole_group", [False, True], ids=["the study alone", "its workers too"])
def test_killed_at_random_moments_nothing_is_lost_and_nothing_repeated(whole_group, tmp_path):
    """25 kills with SIGKILL in each of two ways, 50 in all, then one run to the end."""
    notes, out, rng = tmp_path / "notes", tmp_path / "out", random.Random(int(whole_group))
    seeds, kills, progress = 30, 0, []
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["trainonce.study.executors.run_trial", "torch._dynamo", "_tasks"])
    while kills < 25:
        process = context.Process(target=_run_noted, args=(out, notes, seeds, rng.choice([0, 1, 2])))
        process.start()
        time.sleep(rng.uniform(0.02, 0.5))
        if not process.is_alive():
            break
        if whole_group:
            with contextlib.suppress(ProcessLookupError):  # it has not become a group yet
                os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.join()
        kills += 1
        progress.append(len(records(out)) if (out / "trials.jsonl").exists() else 0)
    assert kills == 25, "the study is too small for this machine: it ended before it was killed often enough"
    assert progress == sorted(progress)
    assert len(set(progress)) > 5  # it did go on between the kills
    made = _noted(out, notes, seeds)
    made.run(workers=2, show=False)
    _check_nothing_lost_or_repeated(made, notes)
    assert len(records(out)) == 6 * seeds


def test_two_processes_on_one_store_share_the_work(tmp_path):
    notes, out = tmp_path / "notes", tmp_path / "out"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["trainonce.study.executors.run_trial", "torch._dynamo", "_tasks"])
    pair = [context.Process(target=_run_noted, args=(out, notes, 8, workers)) for workers in (1, 2)]
    for process in pair:
        process.start()
    for process in pair:
        process.join()
    assert [process.exitcode for process in pair] == [0, 0]
    _check_nothing_lost_or_repeated(_noted(out, notes, 8), notes)
    assert all(len(times) == 1 for times in _starts(notes).values())


def test_two_processes_try_a_failing_trial_once(tmp_path):
    context = multiprocessing.get_context("forkserver")
    pair = [context.Process(target=_run_troubled, args=(tmp_path, workers)) for workers in (1, 0)]
    for process in pair:
        process.start()
    for process in pair:
        process.join()
    found = collections.Counter((r.seed, r.status) for r in records(tmp_path))
    assert found[1, "failed"] == 1
    assert len(found) == 6


def _run_troubled(path, workers):
    made = study(path, _tasks.troubled, plans=["uniform"], seeds=6, how="slow")
    made.run(workers=workers, show=False, start="fork")


def test_plans_that_two_processes_add_at_once_are_all_kept(tmp_path):
    one, other = study(tmp_path, plans=["uniform"]), study(tmp_path, plans=["base"])
    one.run(workers=0, show=False)
    summary = other.run(workers=0, show=False)
    assert [row.plan for row in summary.rows] == ["uniform", "base"]


def test_a_script_without_a_guard_is_told_so(tmp_path):
    """Its workers load it, and would start the study again, and so on."""
    script = tmp_path / "script.py"
    text = (Path(__file__).parent / "_tasks.py").read_text()
    script.write_text(
        f"{text}\nfrom trainonce.study import Study\nStudy(line, 'out', seeds=1).add('uniform').run(workers=1)\n"
    )
    command = [sys.executable, str(script)]
    done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True, timeout=120)
    assert 'Put the study under if __name__ == "__main__":' in done.stderr
    (record,) = records(tmp_path / "out")
    assert record.status == "failed"
    assert record.error["message"] == "The trial's process died (exit code 1)."


def test_workers_end_with_the_study_that_was_killed(tmp_path):
    notes, out = tmp_path / "notes", tmp_path / "out"
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import _tasks
from trainonce.study import Study
if __name__ == "__main__":
    task = _tasks.noted.using(notes={str(notes)!r}, pause=60.0)
    Study(task, {str(out)!r}, seeds=2).add("uniform").run(workers=2, show=False)
"""
    script = tmp_path / "script.py"
    script.write_text(code)
    process = subprocess.Popen([sys.executable, str(script)])
    deadline = time.monotonic() + 60
    while len(_starts(notes)) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    keys = list(_starts(notes))
    assert len(keys) == 2
    process.kill()
    process.wait()
    store = Store(out)
    while time.monotonic() < deadline:
        free = []
        for key in keys:
            with store.claim(key) as mine:
                free.append(mine)
        if all(free):
            break
        time.sleep(0.05)
    assert free == [True, True]
    assert records(out) == []
