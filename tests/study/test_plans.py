"""Plans: what each name means, and one sentence for each mistake in writing one."""

import math
import random
from pathlib import Path
from typing import get_args

import _tasks
import numpy as np
import pytest
from _stores import balance, final, replay

from trainonce.report.drawing.style import COLOURS
from trainonce.study import task
from trainonce.study.plans import KINDS, PLANS, Kind, build, parse, split
from trainonce.study.rules import fixed, labels, make

THREE = _tasks.line


@task(terms=["a", "b"], metric="error", direction="minimize", yoto={"init": 0.3, "decay": 7.0, "lr": 0.5})
def two(trial, *, steps=90):
    """Two terms."""


def yoto(**settings):
    return make("CompositeLoss", settings)


def ratios(plan):
    return [tuple(round(r, 9) for r in rule.ratios) for rule in plan.rules]


def test_every_kind_of_plan_has_a_title_and_a_colour():
    assert set(KINDS) == set(get_args(Kind)) == {plan.kind for plan in PLANS.values()}
    assert set(KINDS) - {"sweep"} <= set(COLOURS)


def test_every_plan_is_on_the_page_about_comparing():
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "compare.md").read_text(encoding="utf-8")
    missing = [name for name in PLANS if f"`{name}`" not in page and f"`{name}(" not in page]
    assert not missing


def test_every_plan_has_a_line_of_help():
    assert all(plan.about and len(plan.about) < 150 and not plan.about.endswith(".") for plan in PLANS.values())


def test_rules_take_the_tasks_settings_and_ones_own():
    assert parse("yoto", THREE).rules == (yoto(),)
    assert parse("yoto", two).rules == (yoto(init=0.3, decay=7, lr=0.5),)
    plan = parse("yoto(init=1, regularizer=softplus)", two)
    assert plan.rules == (yoto(init=1, decay=7, regularizer=["softplus"], lr=0.5),)
    assert plan.name == "yoto(init=1,regularizer=softplus)"
    assert parse("balance(at=last)", two).rules == (balance(at="last"),)
    assert parse("replay(decay=0)", THREE).rules == (replay(yoto(decay=0)),)
    assert parse("final", two).rules == (final(yoto(init=0.3, decay=7, lr=0.5)),)
    assert parse("final(of=balance,travel=0)", two).rules == (final(balance(travel=0)),)


def test_fixed_weights_sum_to_one():
    for text in ("uniform", "base", "fixed(1,10,0.1)", "fixed(flat=0.1,small=10,fit=1)", "grid", "random", "grid-3x3"):
        for rule in parse(text, THREE).rules:
            assert sum(rule.coefficients) == pytest.approx(1)
    assert parse("fixed(1,10,0.1)", THREE).rules == parse("fixed(flat=0.1,small=10,fit=1)", THREE).rules
    assert parse("base", THREE).rules == (fixed((1.0, 0.0, 0.0)),)


def test_grids_are_every_combination_of_ratios():
    assert ratios(parse("grid(0.1,1)", THREE)) == [(0.1, 0.1), (0.1, 1), (1, 0.1), (1, 1)]
    assert len(parse("grid", THREE).rules) == 9
    assert ratios(parse("grid", two)) == [(0.01,), (0.1,), (1,), (10,), (100,)]
    assert ratios(parse("grid(small=0.1/1, flat=5)", THREE)) == [(0.1, 5), (1, 5)]
    assert len(parse("grid(1,1)", THREE).rules) == 1  # a point is a point once


def test_the_papers_grids():
    expected = [(a, b) for a in (0.01, 0.25, 1) for b in (0.01, 0.1, 1)]
    assert ratios(parse("grid-3x3", THREE)) == expected
    line = [rule.ratios[0] for rule in parse("grid-13", two).rules]
    assert line[0] == 0
    logs = [-2, -1.5, -1, -0.5, 0, 0.5, 0.75, 1, 1.25, 1.5, 1.75, 2]
    assert [math.log10(r) for r in line[1:]] == pytest.approx(logs)


def test_random_points_are_the_same_every_time_and_within_their_range():
    plan = parse("random(trials=50,low=0.1,high=10)", THREE)
    assert plan.rules == parse("random(trials=50,low=0.1,high=10)", THREE).rules
    assert plan.rules != parse("random(trials=50,low=0.1,high=10,seed=1)", THREE).rules
    values = [r for pair in ratios(plan) for r in pair]
    assert len(values) == 100
    assert 0.0999 < min(values) < 0.2
    assert 5 < max(values) < 10.001


def test_sweeps_change_one_setting_of_the_papers_rule():
    def swept(text, *names, of=two):
        return [tuple(rule.settings[name] for name in names) for rule in parse(text, of).rules]

    assert swept("sweep-init", "init") == [(0.001,), (0.01,), (0.1,), (1.0,), (10.0,)]
    assert set(swept("sweep-init", "decay", "lr")) == {(7.0, 0.5)}
    assert swept("sweep-decay(1,2)", "decay") == [(1,), (2,)]
    assert swept("sweep-init(0.1,1,decay=3)", "init", "decay") == [(0.1, 3), (1, 3)]
    assert [lr for (lr,) in swept("sweep-lr", "lr", of=THREE)] == pytest.approx([0.01, 0.1, 1.0, 10.0])


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("fixed", "uniform"),
        ("grid", "grid(0.1,1,10)"),
        ("random", "random(trials=9,low=0.01,high=100,seed=0)"),
        ("tpe", "tpe(trials=20,low=0.01,high=100)"),
        ("sha", "sha(trials=27,eta=3,low=0.01,high=100)"),
        ("sha(9)", "sha(trials=9)"),
        ("sweep-init", "sweep-init(0.001,0.01,0.1,1,10)"),
        ("sweep-decay", "sweep-decay(0.02,0.2,2,20,200)"),
        ("yoto", "yoto(init=1,decay=4,regularizer=paper,lr=None)"),
        ("balance", "balance(at=all,follow=0.75,every=0.05)"),
        ("replay", "replay(of=yoto)"),
    ],
)
def test_what_a_plan_is_without_settings(short, long):
    one, other = parse(short, THREE), parse(long, THREE)
    assert (one.rules, one.search) == (other.rules, other.search)


def test_a_setting_of_none_is_the_tasks_own():
    assert parse("yoto(init=None,lr=None,decay=1)", two).rules == (yoto(init=0.3, decay=1, lr=0.5),)


def test_searches_and_peers():
    assert parse("tpe(trials=3)", THREE).search.trials == 3
    assert parse("sha(16,eta=2)", two).search.rungs == ((1 / 4, 8), (1 / 2, 4))
    assert parse("dwa(temperature=3,epoch=4)", two).rules == (make("dwa", {"temperature": 3, "epoch": 4}),)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("random(seed=20240601)", "random(seed=20240602)"),
        ("yoto(decay=2.00000001)", "yoto(decay=2.00000002)"),
        ("grid(0.1234567)", "grid(0.1234568)"),
        ("grid(small=1/1.0000001,flat=1)", "grid(small=1/1.0000002,flat=1)"),
        ("tpe(high=1000001)", "tpe(high=1000002)"),
        ("dwa(temperature=2.0000001)", "dwa(temperature=2.0000002)"),
    ],
)
def test_different_plans_have_different_names(one, other):
    assert parse(one, THREE).name == one
    assert parse(other, THREE).name == other


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("grid(0.1, 1.0, 10)", "grid(0.1,1,10)"),
        ("yoto(init=1)", "yoto(init=1)"),
        ("yoto(init=1.0,decay=2e0)", "yoto(init=1,decay=2)"),
        ("grid(1e-5,100.)", "grid(1e-05,100)"),
        ("tpe(trials=30)", "tpe(trials=30)"),
    ],
)
def test_names_are_short_where_that_says_all(text, name):
    assert parse(text, THREE).name == name


def test_a_name_reads_back_as_the_same_plan():
    rng = random.Random(0)
    values = [rng.uniform(0, 1) * 10.0 ** rng.randint(-12, 12) for _ in range(50)] + [
        1e-300,
        1e22,
        0.1 + 0.2,
        3_000_000,
    ]
    for value in [*values, np.float32(0.1), np.int64(20240601)]:
        plan = build("yoto", [], {"decay": value}, THREE)
        again = parse(plan.name, THREE)
        assert (again.name, again.rules) == (plan.name, plan.rules)


@pytest.mark.parametrize("text", ["tpe(trials=2000000)", "dwa(epoch=2000000)"])
def test_a_large_whole_number_reads_back_as_one(text):
    assert parse(parse(text, THREE).name, THREE) == parse(text, THREE)


def test_labels_within_a_plan_differ():
    grid = parse("grid(small=1.0001/1.0002/3,flat=1)", THREE)
    assert labels(grid.rules) == ["1 : 1.0001 : 1", "1 : 1.0002 : 1", "1 : 3 : 1"]
    sweep = parse("sweep-decay(2,2.0000001,2.00000000001,5)", THREE)
    assert labels(sweep.rules)[-1] == "init 1, decay 5"
    peers = [make("dwa", {"temperature": t}) for t in (1.0, 1 + 1e-13)]
    for rules in (sweep.rules, peers, [final(p) for p in sweep.rules]):
        assert len(set(labels(rules))) == len(rules)
    assert labels([fixed((0.5, 0.5))] * 2) == ["1 : 1"] * 2  # the same in two seeds of a search


def test_a_value_given_twice_is_one_point_in_sweeps_too():
    assert [p.settings["init"] for p in parse("sweep-init(0.1,1,0.1)", THREE).rules] == [0.1, 1]


def test_commas_inside_brackets_do_not_separate_plans():
    assert split("yoto(init=1,decay=2), grid(0.1,1),uniform") == [
        "yoto(init=1,decay=2)",
        "grid(0.1,1)",
        "uniform",
    ]
    assert split("") == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gird", r"There is no plan 'gird'; there are: yoto, .*Did you mean 'grid'\?"),
        ("grid(1", r"A plan is a name with settings in brackets"),
        ("yoto(inti=1)", r"The rule yoto has no setting 'inti'; .*Did you mean 'init'\?"),
        ("yoto(init=0)", r"init must be a positive number, .*; got 0\.0"),
        ("yoto(init=big)", r"init must be a positive number, .*; got 'big'"),
        ("yoto(decay=-1)", r"decay must be a number of at least 0; got -1"),
        ("yoto(decay=1/2)", r"decay must be a number of at least 0; got \[1, 2\]"),
        ("yoto(regularizer=best)", r"got 'best'"),
        ("yoto(init=1,init=2)", r"'yoto' gets the setting 'init' twice, in 'yoto\(init=1,init=2\)'\."),
        ("balance(follow=2)", r"BalancedLoss needs follow between 0 and 1; got 2"),
        ("balance(every=x)", r"BalancedLoss needs every between 0 and 1; got 'x'"),
        ("balance(at=first)", r"at 'all' shared parameters or at the 'last'; got 'first'"),
        ("balance(travel=-1)", r"travel of at least 0; got -1"),
        ("balance(travel=inf)", r"travel of at least 0; got inf"),
        ("balance(validation=x)", r"The rule balance has no setting 'validation'"),
        ("one-shot", r"There is no plan 'one-shot'; there are: yoto, balance"),
        ("replay(x=1)", r"The rule yoto has no setting 'x'"),
        ("replay(of=uniform)", r"A control is of one of the rules yoto, balance, .*; got of=uniform"),
        ("final(of=balance,decay=2)", r"The rule balance has no setting 'decay'"),
        ("nowhere.py:GradNorm", r"There is no file .*nowhere\.py for the rule 'nowhere\.py:GradNorm'"),
        ("uniform(3)", r"The plan 'uniform' takes no settings; got 3\. Write uniform\."),
        (
            "tpe(5,0.1)",
            r"settings by name, but for the first; got 5, 0\.1\. It is written tpe\(trials=.*, low=.*, high=.*\)\.",
        ),
        ("yoto(1)", r"by name alone; got 1\. It is written yoto\(init=.*, decay=.*, regularizer=.*, lr=.*\)\."),
        ("fixed(1,2)", r"need one value for each of 'fit', 'small', 'flat'; got 2"),
        ("fixed(1,-2,1)", r"numbers of at least 0"),
        ("fixed(0,0,0)", r"not all 0"),
        ("fixed(fit=1,smal=2,flat=1)", r"Did you mean 'small' for 'smal'\?"),
        ("grid(a)", r"ratios to the base weight, numbers of at least 0; got 'a'"),
        ("grid(inf)", r"ratios to the base weight, numbers of at least 0; got inf"),
        ("grid(smal=1/2,flat=1)", r"Did you mean 'small' for 'smal'\?"),
        ("grid-13", r"is the paper's grid for 2 terms; the task 'line' has 3"),
        ("random(trials=0)", r"takes a whole number of trials, at least 1; got 0"),
        ("tpe(low=2,high=1)", r"between two numbers above 0; got 2 and 1"),
        ("tpe(low=a)", r"between two numbers above 0; got a and 100"),
        ("random(low=a)", r"between two numbers above 0; got a and 100"),
        ("sha(eta=1)", r"eta of at least 2"),
        ("sha(eta=0)", r"eta of at least 2"),
        ("sha(eta=x)", r"eta of at least 2"),
        ("cosmos", r"TorchJD's cosmos is not among the plans: it needs a preference"),
        ("famo(lr=x)", r"takes numbers; got 'x' for 'lr'"),
        ("dwa(epoch=0)", r"epochs of at least 1 step; got 0"),
        ("dwa(epoch=x)", r"takes numbers; got 'x' for 'epoch'"),
        (
            "dwa(temperatur=1)",
            r"no setting 'temperatur'; it has: 'temperature', 'epoch'\. Did you mean 'temperature'\?",
        ),
        ("dwa(temperature=-1)", r"strictly positive"),
        ("uw(epoch=3)", r"no setting 'epoch'; it has: none"),
        ("uw(3)", r"The plan 'uw' takes settings by name alone; got 3\. It is written uw"),
    ],
)
def test_a_plan_that_does_not_fit_is_one_sentence(text, message):
    with pytest.raises(ValueError, match=message):
        parse(text, THREE)


def test_numbers_written_in_two_ways_are_one_point():
    assert parse("yoto(init=1)", THREE).rules == parse("yoto(init=1.0)", THREE).rules
    one, other = (parse(f"dwa(temperature={t})", THREE).rules[0] for t in ("3", "3.0"))
    assert one.to_json() == other.to_json()
    assert repr(one.to_json()) == repr(other.to_json())


def test_terms_may_have_any_name():
    made = task(terms=["task", "init"], metric="error", direction="minimize")(lambda trial: None)
    assert parse("fixed(task=1,init=3)", made).rules == (fixed((0.25, 0.75)),)
    assert ratios(parse("grid(init=1/2)", made)) == [(1,), (2,)]


@pytest.mark.parametrize(
    ("module", "plan", "message"),
    [
        ("optuna", "tpe", r'This needs Optuna, which is not installed: pip install "trainonce\[search\]"'),
        (
            "torchjd.scalarization",
            "uw",
            r'This needs TorchJD, which is not installed: pip install "trainonce\[peers\]"',
        ),
    ],
)
def test_a_missing_extra_is_one_sentence(module, plan, message, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=message):
        parse(plan, THREE)
