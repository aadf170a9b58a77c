"""asha, of tasks that count epochs, and of tasks that it cannot stop."""

import _tasks
import pytest
from _runs import records, study

from trainonce.study import task
from trainonce.study.plans import parse


@task(terms=_tasks.TERMS, metric="error", direction="minimize")
def in_epochs(trial, *, epochs=9, every=1):
    """Two steps an epoch, with a report after some epochs."""

    def each(step, value):
        if step % (2 * every) == 0:
            trial.report(step // 2, error=value)
        return trial.should_prune()

    return _tasks.train(trial, 2 * epochs, each=each)


@task(terms=_tasks.TERMS, metric="error", direction="minimize")
def silent(trial, *, steps=9):
    """Reports nothing."""
    return _tasks.train(trial, steps)


@task(terms=_tasks.TERMS, metric="error", direction="minimize")
def other_unit(trial, *, steps=90):
    """Reports its nine epochs, and says how many steps it takes."""

    def each(step, value):
        if step % 10 == 0:
            trial.report(step // 10, error=value)
        return trial.should_prune()

    return _tasks.train(trial, steps, each=each)


def test_asha_decides_at_a_ninth_and_a_third_of_the_epochs():
    assert parse("asha", in_epochs).search.rung == 1
    assert parse("asha", in_epochs.using(epochs=90)).search.rung == 10
    assert parse("asha", _tasks.line).search.rung == 2  # steps, where there are both


def test_asha_stops_trainings_that_count_epochs_and_counts_what_they_cost(tmp_path):
    study(tmp_path, in_epochs, plans=["asha(trials=9)"], seeds=1).run(workers=0, show=False)
    pruned = [r for r in records(tmp_path) if r.status == "pruned"]
    assert pruned
    assert {round(r.fraction * 9) for r in pruned} <= {1, 3}
    assert all(r.fraction == pytest.approx(r.reports[-1][0] / 9, abs=1e-3) for r in pruned)


@pytest.mark.parametrize(
    ("made", "note"),
    [
        (silent, "The task never calls trial.report, so the plan 'asha' stops no training early."),
        (other_unit, "The task's last report was at 9, so the plan 'asha' stops no training early: it first decides"),
    ],
)
def test_a_task_that_cannot_be_stopped_is_told_so_after_its_first_trial(made, note, tmp_path, capsys):
    study(tmp_path, made, plans=["asha(trials=3)"], seeds=2).run(workers=0)
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.count(note) == 1
    assert shown.index(note) < shown.index("asha(trials=3) 2/3")


def test_a_task_that_can_be_stopped_gets_no_note(tmp_path, capsys):
    study(tmp_path, in_epochs, plans=["asha(trials=3)", "tpe(trials=2)"], seeds=1).run(workers=0)
    assert "stops no training early" not in capsys.readouterr().out
