"""The arena's tasks under the study: one by one and stacked they give the same."""

import pytest

pytest.importorskip("sklearn")

import arena_study

from benchmarks.arena import points, searches
from benchmarks.arena.stack import Stack
from benchmarks.arena.variant import Variant
from trainonce import halving
from trainonce.study import Study
from trainonce.study.executors.stacked import Stacked

MADE = ["regression", "forecast", "burgers", "pendulum"]  # of made data, of two and of four terms


def outcomes(folder, task, **how):
    study = Study(task.using(steps=6), folder, seeds=2).add("uniform").add("fixed", 1.0, *[0.1] * (len(task.terms) - 1))
    study.add("units").run(**how, show=False, report=False)
    return {(str(r.weighting), r.seed): r for r in study.store.read_all()}


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
        assert stacked[key].weights == pytest.approx(record.weights, rel=1e-3)


@pytest.mark.parametrize("name", ["regression", "digits"])
def test_halving_in_the_study_is_what_the_arena_reads_from_full_trainings(tmp_path, name):
    task, arena = getattr(arena_study, name), arena_study.tasks.get(name)
    study = Study(task.using(steps=36), tmp_path, seeds=[3]).add("halving")
    study.run(workers=0, show=False, report=False)
    (record,) = study.store.read_all()
    stack = Stack(arena, points.halved(len(task.terms) - 1, points.TRAVEL), [3], variant=Variant(steps=36))
    curves = stack.train().curve[0].tolist()
    found = searches.halve(curves, arena.higher, halving.ROUNDS, halving.KEEP, seat=True)
    names = [start.name for start in halving.starts(task.terms, halving.FACTORS)]
    assert record.answers[-1]["chosen"] == names[found.best]
    assert record.fraction == pytest.approx(found.cost, abs=1e-3)
    assert record.metrics[task.select_key] == pytest.approx(curves[found.best][-1], rel=1e-2)
