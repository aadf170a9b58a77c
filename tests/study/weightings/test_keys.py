"""Keys: a new setting with a default leaves stored results valid, and any other value is another trial."""

import dataclasses

import _stores
import pytest

from trainonce.study import Summary, record
from trainonce.study.search import Search
from trainonce.study.weightings import Final, Fixed, Learned, Replay, key_of, without_defaults
from trainonce.study.weightings.peers import Peer


@dataclasses.dataclass(frozen=True)
class Grown(Learned):
    """Learned weights in some later version, with one more setting."""

    warmup: int = 0
    notes: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class GrownSearch(Search):
    startup: int = 10


@pytest.mark.parametrize("settings", [{}, {"init": 0.5, "lr": 0.1}, {"preset": "softplus"}])
def test_a_new_setting_at_its_default_has_the_key_of_before(settings):
    assert key_of("task", Grown(**settings), 3) == key_of("task", Learned(**settings), 3)
    assert key_of("task", Replay(Grown(**settings)), 3) == key_of("task", Replay(Learned(**settings)), 3)
    assert key_of("task", Grown(**settings, warmup=5), 3) != key_of("task", Learned(**settings), 3)
    assert key_of("task", Final(Grown(warmup=5)), 3) != key_of("task", Final(Learned()), 3)


def test_a_search_with_a_new_setting_goes_on_with_its_trials():
    before, after = Search("tpe", 20, 0.01, 100.0), GrownSearch("tpe", 20, 0.01, 100.0)
    assert after.key("task", 1, 7) == before.key("task", 1, 7)
    assert GrownSearch("tpe", 20, 0.01, 100.0, startup=5).key("task", 1, 7) != before.key("task", 1, 7)
    assert dataclasses.replace(before, trials=30).key("task", 1, 7) == before.key("task", 1, 7)


def test_a_study_finds_its_old_records_after_a_setting_was_added(tmp_path, monkeypatch):
    path = _stores.build(tmp_path, histories=False)
    before = Summary.read(path)
    monkeypatch.setattr(record, "Learned", Grown)
    after = Summary.read(path)
    assert isinstance(after.one_shot.chosen.weighting, Grown)
    assert [(row.plan, row.counts, row.cost) for row in after.rows] == [
        (row.plan, row.counts, row.cost) for row in before.rows
    ]
    assert all("missing" not in row.counts for row in after.rows)


def test_only_what_differs_from_its_default_counts():
    assert without_defaults(Learned()) == {}
    assert without_defaults(Replay(Learned(decay=3))) == {"of": {"decay": 3.0}}
    assert without_defaults(Peer("dwa", {"temperature": 2}, 5)) == {
        "method": "dwa",
        "settings": {"temperature": 2.0},
        "epoch": 5,
    }


def test_keys_stay_what_they_are():
    """A change of a key orphans every stored result, and a changed default gives old keys a new meaning.

    If it has to be, re-key the kept records with benchmarks/records.py.
    """
    found = [
        key_of("task", weighting, 0) for weighting in (Fixed.of((1.0, 10.0)), Learned(), Replay(Learned()), Peer("uw"))
    ]
    assert found == PINNED
    settings = {"init": 0.1, "decay": 2.0, "preset": "paper", "lr": None}
    units = {"units": "raw", "blend": None, "limit": None, "at": "all", "drift": 0.0, "signal": "held_out"}
    assert dataclasses.asdict(Learned()) == settings | units
    assert Learned().to_json() == {"kind": "learned"} | settings  # as trainonce 0.1.0 writes and reads it
    assert Final(Learned()).to_json() == {"kind": "final", "of": settings}


BEFORE_UNITS = [
    (Learned(1.0, 20.0), "9578bc3eb80aa0e3f78b"),
    (Learned({"small": 0.5, "flat": 2}, lr=0.1), "cb642cccbad06a4a60c1"),
    (Learned(preset="softplus"), "b0c00a7faa7a1656e98a"),
    (Replay(Learned(decay=3)), "0ebbe51fb8179f8ada70"),
    (Final(Learned(init=1)), "a8b6d59c40a0c45ca6b0"),
]


@pytest.mark.parametrize(("weighting", "key"), BEFORE_UNITS)
def test_points_without_units_have_the_key_that_they_had_before_there_were_any(weighting, key):
    assert key_of("task", weighting, 3) == key


PINNED = ["9f9a04d27c57644b5fa9", "8bc15ee7d7ec798206cb", "0e4c1a5339236ef797d2", "518f209bd2bcc46fe6ed"]
