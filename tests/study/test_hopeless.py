"""A study in which everything fails the same way stops early."""

import _tasks
import pytest
from _runs import records, study

from trainonce.errors import SameFailureError
from trainonce.study import Record, task
from trainonce.study.runner import Failures
from trainonce.study.weightings import Fixed


@task(terms=_tasks.TERMS, metric="error", direction="minimize")
def hopeless(trial, *, good=-1, differ=False):
    """Fails in all seeds but one."""
    if trial.seed == good:
        return _tasks.train(trial, 2)
    raise KeyError(f"label {trial.seed}" if differ else "label")


@pytest.mark.parametrize("workers", [0, 2])
def test_three_failures_of_one_kind_stop_the_study(workers, tmp_path):
    made = study(tmp_path, hopeless, plans=["uniform", "base"], seeds=20)
    with pytest.raises(SameFailureError, match=r"^The first 3 trials failed in the same way, .* KeyError: 'label'"):
        made.run(workers=workers, show=False)
    assert 3 <= len(records(tmp_path)) <= 3 + workers
    with pytest.raises(SameFailureError):  # they are tried again, and no more
        made.run(workers=workers, show=False)
    assert len(records(tmp_path)) <= 2 * (3 + workers)


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
    return Record("k", "t", Fixed((1.0,)), 0, status, error={"type": kind, "message": message} if error else None)


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
