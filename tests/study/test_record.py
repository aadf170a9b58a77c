"""Records as JSON: older formats are read, newer ones are refused in one sentence."""

import inspect
import json
import math
from inspect import Parameter

import _runs
import pytest
import torch
from _records import RULES
from _stores import balance, replay, yoto

import trainonce
from trainonce.study import Record, Summary, rule_classes
from trainonce.study.record import FORMAT, as_json
from trainonce.study.rules import Rule, fixed, key_of, read_rule
from trainonce.study.store import Store


def line(**more):
    """A line of the store."""
    rule = {"rule": "FixedLoss", "version": 1, "settings": {"weights": [0.5, 0.5]}}
    plain = {"key": "0" * 20, "task": "line", "seed": 3, "status": "done", "rule": rule, "format": FORMAT}
    return json.dumps(plain | more) + "\n"


def test_what_a_record_does_not_say(tmp_path):
    store = Store(tmp_path)
    store.trials.write_text(line())
    (record,) = store.read_all()
    assert (record.seconds, record.fraction, record.ended, record.device) == (0, 1, 0, "cpu")
    assert (record.reports, record.coefficients, record.ratios, record.versions) == ((), (), (), {})
    assert (record.metrics, record.warnings, record.error) == ({}, (), None)


def test_a_record_names_the_versions_that_made_it(tmp_path):
    _runs.study(tmp_path, plans=["uniform"], seeds=1).run(workers=0, show=False)
    (record,) = Store(tmp_path).read_all()
    assert record.versions == {"trainonce": trainonce.__version__, "torch": torch.__version__}


def test_records_hold_the_rule_with_all_its_settings_and_its_version():
    content = Record("k", "line", balance(at="last"), 0, "done", coefficients=[0.5, 2.0]).to_json()
    settings = {"at": "last", "follow": 0.75, "every": 0.05, "travel": None}
    assert content["rule"] == {"rule": "BalancedLoss", "version": 1, "settings": settings}
    assert (content["format"], content["coefficients"]) == (FORMAT, [0.5, 2.0])
    settings = {"init": 0.1, "decay": 4.0, "regularizer": ["negentropy", "softplus"], "lr": None, "travel": None}
    assert yoto().to_json() == {"rule": "CompositeLoss", "version": 2, "settings": settings}


@pytest.mark.parametrize(
    ("coefficients", "ratios"),
    [((2.0, 1.0, 0.0), (1.0, 0.5, 0.0)), ((0.0, 1.0, 0.0), (1.0, math.inf, 0.0)), ((), ())],
)
def test_ratios_are_relative_to_the_base(coefficients, ratios):
    assert Record("k", "line", yoto(), 0, "done", coefficients=coefficients).ratios == ratios


OTHERS = {FORMAT + 1: "was written by a newer trainonce .*Update it", FORMAT - 1: "by an older trainonce .*new folder"}


@pytest.mark.parametrize(("found", "sentence"), OTHERS.items())
def test_what_another_trainonce_wrote_is_one_sentence_and_not_a_damaged_line(found, sentence, tmp_path):
    store = Store(tmp_path)
    store.append(Record("a" * 20, "line", fixed((1.0, 1.0)), 0, "done"))
    with store.trials.open("a") as file:
        file.write(line(rule={"kind": "not known"}, format=found))
    with pytest.raises(ValueError, match=rf"trials\.jsonl: line 2 .*{sentence}"):
        store.read_all()
    store.write_manifest({"task": {}, "plans": []})
    store.manifest.write_text(store.manifest.read_text().replace(f'"format": {FORMAT}', f'"format": {found}'))
    with pytest.raises(ValueError, match=rf"study\.json .*{sentence}"):
        Summary.read(tmp_path)


@pytest.mark.parametrize("found", ["2", None, [1]])
def test_a_format_that_is_no_number_is_a_damaged_line(found, tmp_path):
    store = Store(tmp_path)
    store.trials.write_text(line(format=found))
    with pytest.warns(UserWarning, match="line 1 cannot be read"):
        assert store.read_all() == []


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
    rules = [fixed((1.0, 10.0)), yoto(decay=2), balance(), replay(yoto(decay=2)), Rule("uw")]
    assert [key_of("task", rule, 0) for rule in rules] == PINNED


PINNED = [
    "6c06be042edd5b4822fb",
    "a30acf11b6c308c3f98e",
    "31c047db21f272cd8be7",
    "d08ddf76388bbf1cf01e",
    "8ca4b8255ce2c309034e",
]


@pytest.fixture
def changed(monkeypatch):
    """Change the defaults of a rule, or add settings to it, as a later version of the package might."""

    today = inspect.signature(trainonce.BalancedLoss)

    def change(**defaults):
        new = {key: Parameter(key, Parameter.KEYWORD_ONLY, default=value) for key, value in defaults.items()}
        changed = today.replace(parameters=(today.parameters | new).values())
        monkeypatch.setattr(trainonce.BalancedLoss, "__signature__", changed, raising=False)

    return change


@pytest.mark.parametrize("of", [balance, lambda **given: replay(balance(**given))])
def test_a_changed_default_gives_a_new_key(changed, of):
    before, given = key_of("task", of(), 0), key_of("task", of(follow=0.25), 0)
    changed(follow=0.25)
    assert key_of("task", of(), 0) == given != before
    assert key_of("task", of(follow=0.75), 0) == before


@pytest.mark.parametrize("of", [balance, lambda **given: replay(balance(**given))])
def test_a_setting_that_is_added_later_is_left_out_at_the_default_it_came_with(changed, of, monkeypatch):
    before = of()
    changed(later=1.5)
    monkeypatch.setitem(rule_classes.ADDED, "BalancedLoss", {"later": 1.5})
    assert key_of("task", of(), 0) == key_of("task", before, 0) != key_of("task", of(later=2), 0)
    assert read_rule(json.loads(json.dumps(before.to_json()))) == of()
    changed(later=2.0)  # whose default changes later still
    assert key_of("task", of(), 0) != key_of("task", before, 0) == key_of("task", of(later=1.5), 0)
