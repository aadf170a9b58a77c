"""A study in which everything fails the same way stops early."""

from pathlib import Path

import _tasks
import pytest
from _runs import records, study

from trainonce.errors import SameFailureError
from trainonce.study import Record, task
from trainonce.study.rules import fixed
from trainonce.study.runner import Failures, is_same


@task(terms=_tasks.TERMS, metric="error", direction="minimize")
def hopeless(trial, *, good=-1, differ=False):
    """Fails in all seeds but one."""
    if trial.seed == good:
        return _tasks.train(trial, 2)
    if differ and trial.seed % 2:
        raise KeyError("other")
    raise KeyError("label")


@task(terms=_tasks.TERMS, metric="error", direction="minimize")
def lost(trial):
    """Fails each time with another message."""
    Path(f"/none/{trial.seed}").read_text()


@pytest.mark.parametrize("workers", [0, 2])
def test_three_failures_of_one_kind_stop_the_study(workers, tmp_path):
    made = study(tmp_path, hopeless, plans=["uniform", "base"], seeds=20)
    with pytest.raises(SameFailureError, match=r"^The first 3 trials failed in the same way, .* KeyError: 'label'"):
        made.run(workers=workers, show=False)
    assert 3 <= len(records(tmp_path)) <= 3 + workers
    with pytest.raises(SameFailureError):  # they are tried again, and no more
        made.run(workers=workers, show=False)
    assert len(records(tmp_path)) <= 2 * (3 + workers)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_path_in_the_message_does_not_make_another_failure(workers, tmp_path):
    made = study(tmp_path, lost, plans=["uniform"], seeds=10)
    with pytest.raises(SameFailureError, match=r"FileNotFoundError: .*none"):
        made.run(workers=workers, show=False)
    messages = [found.error["message"] for found in records(tmp_path)]
    assert len(set(messages)) == len(messages) <= 3 + workers


def test_a_study_may_keep_going(tmp_path):
    study(tmp_path, hopeless, plans=["uniform"], seeds=6).run(workers=0, show=False, keep_going=True)
    assert [r.status for r in records(tmp_path)] == ["failed"] * 6


@pytest.mark.parametrize("settings", [{"good": 0}, {"good": 2}, {"differ": True}])
def test_a_success_or_another_failure_is_hope(settings, tmp_path):
    study(tmp_path, hopeless, plans=["uniform"], seeds=6, **settings).run(workers=0, show=False)
    assert len(records(tmp_path)) == 6


def test_a_success_of_an_earlier_run_counts(tmp_path):
    study(tmp_path, hopeless, plans=["uniform"], seeds=1, good=0).run(workers=0, show=False)
    study(tmp_path, hopeless, plans=["uniform"], seeds=6, good=0).run(workers=0, show=False)
    assert len(records(tmp_path)) == 6


def test_three_failures_that_were_all_there_is_are_a_result(tmp_path):
    summary = study(tmp_path, hopeless, plans=["uniform"], seeds=3).run(workers=0, show=False)
    assert len(summary.records) == 3


def record(error=None):
    kind, _, message = (error or "").partition(":")
    status = "failed" if error else "diverged"
    return Record("k", "t", fixed((1.0,)), 0, status, error={"type": kind, "message": message} if error else None)


@pytest.mark.parametrize(
    ("errors", "hopeless"),
    [
        (["A:x", "A:x"], False),
        (["A:x", "A:x", "A:x"], True),
        (["A:x", "A:y", "A:x", "A:x"], False),
        (["A:x", "B:x", "B:x", "B:x"], True),
        ([None, "A:x", "A:x", "A:x"], False),
    ],
)
def test_only_the_same_failure_in_a_row_counts(errors, hopeless):
    failures = Failures([])
    assert bool([failures.add(record(error)) for error in errors][-1]) == hopeless


def error(message, line=None, kind="ValueError"):
    frames = [("run.py", 3), line] if line else []
    traceback = "\n".join(f'  File "{file}", line {number}, in f' for file, number in frames)
    return {"type": kind, "message": message, "traceback": traceback}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (error("CUDA out of memory. Tried 2.50 GiB"), error("CUDA out of memory. Tried 312.00 GiB")),
        (error("no file '/tmp/a1/x.npy'"), error("no file '/tmp/b2/y.npy'")),
        (error(r"no file C:\runs\a"), error(r"no file C:\runs\b")),
        (error("bad value -1e-05 at step 7"), error("bad value 0.25 at step 12")),
        (error("<Loader object at 0x7f3a>"), error("<Loader object at 0x8b2c>")),
        (error("no label cat", ("task.py", 8)), error("no label dog", ("task.py", 8))),
        (error("seed 3 is bad", ("task.py", 8)), error("seed 4 is bad", ("task.py", 11))),
    ],
)
def test_two_failures_are_the_same(one, other):
    assert is_same(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (error("no label cat", ("task.py", 8)), error("no label dog", ("task.py", 9))),
        (error("no label cat", ("task.py", 8)), error("no label dog", ("other.py", 8))),
        (error("no label", ("task.py", 8)), error("no label", ("task.py", 8), kind="KeyError")),
        (error("no label cat"), error("no label dog")),
        (error("process died: signal"), error("process died: exit")),
    ],
)
def test_two_failures_differ(one, other):
    assert not is_same(one, other)
