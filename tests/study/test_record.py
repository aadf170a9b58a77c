"""Records as JSON: older formats are read, newer ones are refused in one sentence."""

import functools
import json
import math

import _runs
import pytest
import torch
from _records import RULES
from _stores import balance, final, replay, yoto

import trainonce
from trainonce.study import Record, Summary
from trainonce.study.record import FORMAT, as_json
from trainonce.study.rules import Rule, fixed, key_of, read_rule
from trainonce.study.store import Store


def line(rule, **more):
    """A line of the store as format 1 wrote it."""
    plain = {"key": "0" * 20, "task": "line", "seed": 3, "status": "done", "metrics": {"test/error": 1.5}}
    return json.dumps({"format": 1, **plain, "point": rule} | more) + "\n"


LEARNED = {"init": 0.5, "decay": 2.0, "lr": None}
UNITS = {"init": 1.0, "units": "gradient", "at": "last", "drift": 4.0}
model_rate = functools.partial(yoto, lr="model")
BALANCE = Rule("BalancedLoss", {"at": "last", "every": 0.05, "travel": 4.0, "follow": 0.75}, 0)
#: What records before format 4 hold, what it is today, and the key that its trial of seed 3 had then.
FORMER = [
    ({"kind": "fixed", "weights": [0.25, 0.75]}, fixed((1, 3)), ""),
    ({"kind": "learned"}, model_rate(), ""),
    ({"kind": "learned", **LEARNED, "preset": "printed"}, model_rate(init=0.5), ""),
    ({"kind": "learned", **LEARNED, "preset": "consistent"}, model_rate(init=0.5, regularizer=["softplus"]), ""),
    (
        {"kind": "learned", "init": 1.0, "decay": 20.0, "preset": "paper"},
        model_rate(init=1, decay=20),
        "9578bc3eb80aa0e3f78b",
    ),
    ({"kind": "learned", "preset": "softplus"}, model_rate(regularizer=["softplus"]), "b0c00a7faa7a1656e98a"),
    ({"kind": "learned", **UNITS}, BALANCE, ""),
    ({"kind": "replay", "of": {"decay": 3.0}}, replay(model_rate(decay=3)), "0ebbe51fb8179f8ada70"),
    ({"kind": "final", "of": {"init": 1.0, "preset": "printed"}}, final(model_rate(init=1)), "a8b6d59c40a0c45ca6b0"),
    ({"kind": "final", "of": UNITS}, final(BALANCE), ""),
    (
        {"kind": "peer", "method": "dwa", "settings": {"temperature": 2.0}, "epoch": 5},
        Rule("dwa", {"temperature": 2.0, "epoch": 5}),
        "",
    ),
]


@pytest.mark.parametrize(("content", "rule", "key"), FORMER)
def test_rules_of_older_formats_are_read_and_keep_their_keys(content, rule, key, tmp_path):
    assert read_rule(content) == rule
    assert key_of("task", read_rule(content), 3) == key or not key
    assert key_of("task", rule, 3) != key
    store = Store(tmp_path)
    store.trials.write_text(line(content, weights=[0.25, 0.75], total=4))
    (record,) = store.read_all()
    assert (record.rule, record.seed, record.metrics) == (rule, 3, {"test/error": 1.5})
    assert (record.coefficients, record.ratios) == ((1.0, 3.0), (1.0, 3.0))
    kind = "learned" if content["kind"] == "learned" else "control"
    store.manifest.write_text(
        json.dumps({"format": 2, "task": {}, "plans": [{"name": "p", "kind": kind, "points": [content]}]})
    )
    (plan,) = store.read_manifest()["plans"]
    assert (plan["kind"], plan["rules"]) == ({"learned": "rule"}.get(kind, kind), [content])


def test_what_an_older_record_does_not_say(tmp_path):
    store = Store(tmp_path)
    store.trials.write_text(line({"kind": "learned"}))
    (record,) = store.read_all()
    assert (record.seconds, record.fraction, record.ended, record.device) == (0, 1, 0, "cpu")
    assert (record.reports, record.coefficients, record.ratios, record.versions) == ((), (), (), {})
    assert (record.warnings, record.error) == ((), None)


def test_a_record_names_the_versions_that_made_it(tmp_path):
    _runs.study(tmp_path, plans=["uniform"], seeds=1).run(workers=0, show=False)
    (record,) = Store(tmp_path).read_all()
    assert record.versions == {"trainonce": trainonce.__version__, "torch": torch.__version__}


def test_records_hold_the_rule_with_all_its_settings_and_its_version():
    content = Record("k", "line", balance(at="last"), 0, "done", coefficients=[0.5, 2.0]).to_json()
    settings = {"at": "last", "follow": 0.75, "every": 0.05, "travel": None}
    assert content["rule"] == {"rule": "BalancedLoss", "version": 1, "settings": settings}
    assert (content["format"], content["coefficients"]) == (FORMAT, [0.5, 2.0])
    settings = {"init": 0.1, "decay": 2.0, "regularizer": ["negentropy", "softplus"], "lr": None, "travel": None}
    assert yoto().to_json() == {"rule": "CompositeLoss", "version": 2, "settings": settings}


@pytest.mark.parametrize(
    ("coefficients", "ratios"),
    [((2.0, 1.0, 0.0), (1.0, 0.5, 0.0)), ((0.0, 1.0, 0.0), (1.0, math.inf, 0.0)), ((), ())],
)
def test_ratios_are_relative_to_the_base(coefficients, ratios):
    assert Record("k", "line", yoto(), 0, "done", coefficients=coefficients).ratios == ratios


def test_a_record_of_a_newer_trainonce_is_one_sentence_and_not_a_damaged_line(tmp_path):
    store = Store(tmp_path)
    store.append(Record("a" * 20, "line", fixed((1.0, 1.0)), 0, "done"))
    with store.trials.open("a") as file:
        file.write(line({"kind": "not known yet"}, format=FORMAT + 1))
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
    path.write_text(path.read_text().replace(f'"format": {FORMAT}', f'"format": {FORMAT + 1}'))
    with pytest.raises(ValueError, match=r"study\.json was written by a newer trainonce .*Update trainonce"):
        Summary.read(tmp_path)


def test_numbers_that_are_not_finite_are_words():
    assert as_json({1: (math.inf, -math.inf, 2.5)}) == {"1": ["inf", "-inf", 2.5]}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.plan)
def test_a_rule_and_its_key_are_the_same_before_and_after_a_record_is_written(rule):
    found = read_rule(json.loads(json.dumps(rule.to_json())))
    assert (found, found.label, found.plan, type(found)) == (rule, rule.label, rule.plan, type(rule))
    assert key_of("task", found, 0) == key_of("task", rule, 0)
    assert getattr(found, "of", None) == getattr(rule, "of", None)


def test_keys_stay_what_they_are():
    """A change of a key orphans every stored result."""
    rules = [fixed((1.0, 10.0)), yoto(), balance(), replay(yoto()), Rule("uw")]
    assert [key_of("task", rule, 0) for rule in rules] == PINNED


PINNED = [
    "6c06be042edd5b4822fb",
    "a30acf11b6c308c3f98e",
    "31c047db21f272cd8be7",
    "d08ddf76388bbf1cf01e",
    "8ca4b8255ce2c309034e",
]


def test_keys_of_older_records_stay_what_they_were():
    former = [
        {"kind": "fixed", "weights": [0.0909090909091, 0.909090909091]},
        {"kind": "learned", "init": 0.1, "decay": 2.0, "preset": "paper", "lr": None},
        {"kind": "replay", "of": {"init": 0.1, "decay": 2.0, "preset": "paper", "lr": None}},
        {"kind": "peer", "method": "uw", "settings": {}, "epoch": None},
    ]
    assert [key_of("task", read_rule(content), 0) for content in former] == FORMER_KEYS


FORMER_KEYS = ["9f9a04d27c57644b5fa9", "8bc15ee7d7ec798206cb", "0e4c1a5339236ef797d2", "518f209bd2bcc46fe6ed"]
