"""Records as JSON: older formats are read, newer ones are refused in one sentence."""

import json
import math

import _runs
import pytest
import torch

import trainonce
from trainonce.study import Record, Summary
from trainonce.study.record import FORMAT, NEWEST, as_json, read_weighting
from trainonce.study.store import Store
from trainonce.study.weightings import Final, Fixed, Learned, Replay, key_of


def line(weighting, **more):
    """A line of the store as format 1 wrote it."""
    plain = {"key": "0" * 20, "task": "line", "seed": 3, "status": "done", "metrics": {"test/error": 1.5}}
    return json.dumps({"format": 1, **plain, "point": weighting} | more) + "\n"


LEARNED = {"init": 0.5, "decay": 2.0, "lr": None}


@pytest.mark.parametrize(
    ("content", "weighting"),
    [
        ({"kind": "learned", **LEARNED, "preset": "printed"}, Learned(init=0.5, preset="paper")),
        ({"kind": "learned", **LEARNED, "preset": "consistent"}, Learned(init=0.5, preset="softplus")),
        ({"kind": "replay", "of": {**LEARNED, "preset": "printed"}}, Replay(Learned(init=0.5))),
        ({"kind": "final", "of": {**LEARNED, "preset": "consistent"}}, Final(Learned(init=0.5, preset="softplus"))),
        ({"kind": "learned"}, Learned()),
    ],
)
def test_presets_of_the_first_format_have_their_new_names(content, weighting, tmp_path):
    assert read_weighting(content) == weighting
    store = Store(tmp_path)
    store.trials.write_text(line(content))
    (record,) = store.read_all()
    assert record.weighting == weighting
    assert (record.seed, record.metrics) == (3, {"test/error": 1.5})


def test_what_an_older_record_does_not_say(tmp_path):
    store = Store(tmp_path)
    store.trials.write_text(line({"kind": "learned"}))
    (record,) = store.read_all()
    assert (record.seconds, record.fraction, record.ended, record.device) == (0, 1, 0, "cpu")
    assert (record.reports, record.weights, record.versions, record.warnings, record.error) == ((), (), {}, (), None)


def test_a_record_names_the_versions_that_made_it(tmp_path):
    _runs.study(tmp_path, plans=["uniform"], seeds=1).run(workers=0, show=False)
    (record,) = Store(tmp_path).read_all()
    assert record.versions == {"trainonce": trainonce.__version__, "torch": torch.__version__}


def test_records_are_written_in_the_present_format_with_present_names():
    content = Record("k", "line", Learned(preset="softplus"), 0, "done").to_json()
    assert (content["format"], content["point"]["preset"]) == (FORMAT, "softplus")


def test_gradient_units_are_of_a_format_that_says_so(tmp_path):
    """trainonce 0.1.0 would take their lines for damaged ones."""
    units = Learned(1.0, units="gradient", drift=4)
    for weighting in (units, Replay(units), Final(units)):
        record = Record("a" * 20, "line", weighting, 0, "done", weights=[0.5, 0.5], total=3.0)
        content = json.loads(json.dumps(record.to_json()))
        assert content["format"] == NEWEST
        found = Record.from_json(content)
        assert (found.weighting, found.weights, found.total) == (weighting, (0.5, 0.5), 3.0)
        plan = {"name": "p", "kind": "learned", "points": [weighting.to_json()]}
        Store(tmp_path).write_manifest({"task": {}, "plans": [plan]})
        assert Store(tmp_path).read_manifest()["format"] == NEWEST


def test_a_record_of_a_newer_trainonce_is_one_sentence_and_not_a_damaged_line(tmp_path):
    store = Store(tmp_path)
    store.append(Record("a" * 20, "line", Fixed.of((1.0, 1.0)), 0, "done"))
    with store.trials.open("a") as file:
        file.write(line({"kind": "not known yet"}, format=NEWEST + 1))
    with pytest.raises(ValueError, match=r"trials\.jsonl: line 2 was written by a newer trainonce .*Update trainonce"):
        store.read_all()


@pytest.mark.parametrize("found", ["2", None, [1]])
def test_a_format_that_is_no_number_is_a_damaged_line(found, tmp_path):
    store = Store(tmp_path)
    store.trials.write_text(line({"kind": "learned"}, format=found))
    with pytest.warns(UserWarning, match="line 1 cannot be read"):
        assert store.read_all() == []


def test_a_manifest_of_a_newer_trainonce_is_the_same_sentence(tmp_path):
    Store(tmp_path).write_manifest({"task": {}, "plans": []})
    path = tmp_path / "study.json"
    path.write_text(path.read_text().replace(f'"format": {FORMAT}', f'"format": {NEWEST + 1}'))
    with pytest.raises(ValueError, match=r"study\.json was written by a newer trainonce .*Update trainonce"):
        Summary.read(tmp_path)


def test_numbers_that_are_not_finite_are_words():
    assert as_json({1: (math.inf, -math.inf, 2.5)}) == {"1": ["inf", "-inf", 2.5]}


def test_a_key_is_the_same_before_and_after_a_record_is_written():
    weighting = Learned(init={"b": 0.1, "c": 3}, lr=0.1)
    written = json.loads(json.dumps(weighting.to_json()))
    assert key_of("task", read_weighting(written), 0) == key_of("task", weighting, 0)
