"""A store that is killed at any moment or shared by processes: nothing is lost, nothing repeated."""

import collections
import contextlib
import multiprocessing
import os
import random
import signal
import time

import _tasks
import pytest
import torch._dynamo  # noqa: F401 or each forked trial would load it
from _runs import keys_of, records, starts, study


def _run_noted(path, notes, seeds, workers):
    os.setpgrp()
    _noted(path, notes, seeds).run(workers=workers, show=False, start="fork")


def _noted(path, notes, seeds):
    return study(path, _tasks.noted, plans=["yoto", "grid(0.1,1)", "replay"], seeds=seeds, notes=str(notes))


def _check_nothing_lost_or_repeated(made, notes):
    found = records(made.store.path)
    assert collections.Counter(r.key for r in found) == dict.fromkeys(keys_of(made), 1)
    ended = {r.key: r.ended for r in found}
    late = {key: when for key, times in starts(notes).items() for when in times if when > ended[key]}
    assert not late  # no trial was started again after it had been recorded


@pytest.mark.parametrize("whole_group", [False, True], ids=["the study alone", "its workers too"])
def test_killed_at_random_moments_nothing_is_lost_and_nothing_repeated(whole_group, tmp_path):
    """25 kills with SIGKILL in each of two ways, 50 in all, then one run to the end."""
    notes, out, rng = tmp_path / "notes", tmp_path / "out", random.Random(int(whole_group))
    seeds, kills, progress, longest = 30, 0, [], 0.5
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["trainonce.study.executors.worker_process", "torch._dynamo", "_tasks"])
    while kills < 25:
        process = context.Process(target=_run_noted, args=(out, notes, seeds, rng.choice([0, 1, 2])))
        process.start()
        time.sleep(rng.uniform(0.02, longest))
        if not process.is_alive():
            break
        if whole_group:
            with contextlib.suppress(ProcessLookupError):  # it has not become a group yet
                os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.join()
        kills += 1
        progress.append(len(records(out)) if (out / "trials.jsonl").exists() else 0)
        if progress[-3:] == progress[-1:] * 3:
            longest *= 1.5  # on a busy machine nothing ends that soon
    assert kills == 25, "the study is too small for this machine: it ended before it was killed often enough"
    assert progress == sorted(progress)
    assert len(set(progress)) > 5  # it did go on between the kills
    made = _noted(out, notes, seeds)
    made.run(workers=2, show=False)
    _check_nothing_lost_or_repeated(made, notes)
    assert len(records(out)) == 6 * seeds


def test_two_processes_try_a_failing_trial_once(tmp_path):
    context = multiprocessing.get_context("forkserver")
    together = context.Barrier(2)  # a study that starts after the failure tries it again, and rightly
    pair = [context.Process(target=_run_troubled, args=(tmp_path, workers, together)) for workers in (1, 0)]
    for process in pair:
        process.start()
    for process in pair:
        process.join()
    found = collections.Counter((r.seed, r.status) for r in records(tmp_path))
    assert found[1, "failed"] == 1
    assert len(found) == 6


def _run_troubled(path, workers, together):
    made = study(path, _tasks.troubled, plans=["uniform"], seeds=6, how="slow")
    together.wait(60)
    made.run(workers=workers, show=False, start="fork")


def test_plans_that_two_processes_add_at_once_are_all_kept(tmp_path):
    one, other = study(tmp_path, plans=["uniform"]), study(tmp_path, plans=["base"])
    one.run(workers=0, show=False)
    summary = other.run(workers=0, show=False)
    assert [row.plan for row in summary.rows] == ["uniform", "base"]
