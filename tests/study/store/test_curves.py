"""The thinned history that is written when a trial has ended: exact, small, and never in the way."""

import dataclasses

import _stores
import pytest
import torch
from _records import record
from _stores import yoto
from _tasks import line

import trainonce
from trainonce.history import History
from trainonce.study import Study, layout
from trainonce.study.store import Store, curves

TERMS = ("a", "b")


@pytest.fixture
def folder(tmp_path):
    _stores.write_history(tmp_path / layout.HISTORY, TERMS, yoto(), 0, steps=1003)
    return tmp_path


def same(one, other):
    return list(one) == list(other) and all(torch.equal(one[name], other[name]) for name in one)


def test_what_is_written_is_what_the_history_gives_to_the_last_bit(folder):
    expected = curves.thin(History.load(folder / layout.HISTORY))
    curves.write(folder)
    assert same(curves.read(folder), expected)
    assert len(expected["step"]) <= curves.POINTS
    assert expected["rows"].sum() == 1003


def test_each_value_is_the_mean_of_successive_steps(folder):
    whole, found = History.load(folder / layout.HISTORY).tensors(), curves.read(folder)
    assert found["rows"][:2].tolist() == [5, 5]
    assert torch.allclose(found["loss/a"][1], whole["loss/a"][5:10].mean())
    assert found["step"][1] == 8


def test_the_history_is_not_parsed_where_the_small_file_is_there(folder, monkeypatch):
    curves.write(folder)
    monkeypatch.setattr(History, "load", lambda path: pytest.fail("the history was read"))
    assert curves.read(folder) is not None
    (folder / layout.HISTORY).unlink()
    assert curves.read(folder) is not None


def test_a_file_of_another_history_does_not_count(folder):
    curves.write(folder)
    _stores.write_history(folder / layout.HISTORY, TERMS, yoto(), 0, steps=20)
    assert len(curves.read(folder)["step"]) == 20


@pytest.mark.parametrize(
    "spoil", [lambda c: c[:-8], lambda c: b"", lambda c: c[10:], lambda c: c.replace(b": 1", b": 2", 1)]
)
def test_a_file_that_cannot_be_read_does_not_count(folder, spoil):
    expected = curves.read(folder)
    curves.write(folder)
    path = folder / layout.CURVES
    path.write_bytes(spoil(path.read_bytes()))
    assert same(curves.read(folder), expected)


def test_without_rows_there_is_nothing(tmp_path):
    curves.write(tmp_path)
    assert curves.read(tmp_path) is None
    History(tmp_path / layout.HISTORY).bind(trainonce.CompositeLoss(TERMS))
    curves.write(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [layout.HISTORY]
    assert curves.read(tmp_path) is None


def test_a_trial_that_has_ended_is_thinned_and_one_that_failed_is_not(tmp_path):
    store, one = Store(tmp_path), record()
    _stores.write_history(store.folder(one.key) / layout.HISTORY, TERMS, yoto(), 0)
    store.append(dataclasses.replace(one, status="failed"))
    assert not (store.folder(one.key) / layout.CURVES).exists()
    store.append(one)
    assert (store.folder(one.key) / layout.CURVES).is_file()


def test_a_record_is_kept_where_the_history_cannot_be_thinned(tmp_path, monkeypatch):
    store, one = Store(tmp_path), record()
    _stores.write_history(store.folder(one.key) / layout.HISTORY, TERMS, yoto(), 0)
    monkeypatch.setattr(curves, "_encode", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    store.append(one)
    assert set(store.read()) == {one.key}
    assert [path.name for path in store.folder(one.key).iterdir()] == [layout.HISTORY]


def test_a_study_writes_both_and_controls_read_every_step(tmp_path):
    study = Study(line.using(steps=300), tmp_path, seeds=2).add("yoto").add("replay").add("final")
    summary = study.run(workers=0, device="cpu", show=False)
    assert {row.plan: dict(row.counts) for row in summary.rows} == {
        plan: {"done": 2 if plan == "yoto" else 4} for plan in ("yoto", "replay", "final")
    }
    for one in study.store.read().values():
        folder = study.store.folder(one.key)
        assert len(History.load(folder / layout.HISTORY)) == 300
        assert len(curves.read(folder)["step"]) == 150
