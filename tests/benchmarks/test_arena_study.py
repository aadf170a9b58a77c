"""The arena's tasks under the study: one by one and stacked they give the same."""

import pytest

pytest.importorskip("sklearn")

import arena_study

from trainonce.study import Study
from trainonce.study.executors.stacked import Stacked

MADE = ["regression", "forecast", "burgers", "pendulum"]  # of made data, of two and of four terms


def outcomes(folder, task, **how):
    study = Study(task.using(steps=6), folder, seeds=2).add("uniform").add("fixed", 1.0, *[0.1] * (len(task.terms) - 1))
    study.add("balance").run(**how, show=False)
    return {(str(r.rule), r.seed): r for r in study.store.read_all()}


@pytest.mark.parametrize("name", MADE)
def test_a_task_of_the_arena_gives_the_same_stacked(tmp_path, name, monkeypatch):
    monkeypatch.delattr(Stacked, "_leave")  # without which nothing can be left to other executors
    task = getattr(arena_study, name)
    alone = outcomes(tmp_path / "alone", task, workers=0)
    stacked = outcomes(tmp_path / "stacked", task, executor="stacked")
    assert alone.keys() == stacked.keys()
    assert len(alone) == 6
    for key, record in alone.items():
        assert stacked[key].status == record.status == "done"
        assert stacked[key].metrics == pytest.approx(record.metrics, rel=1e-3)
        assert stacked[key].coefficients == pytest.approx(record.coefficients, rel=1e-3)
