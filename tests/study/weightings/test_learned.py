"""The plan with learned weights in gradient units: what its settings mean, how it is called, what makes it another."""

import itertools

import pytest
import torch
from _tasks import TERMS, line
from torch import nn

import trainonce
from trainonce.study import task
from trainonce.study.plans import name_of, parse
from trainonce.study.weightings import Final, Learned, Replay, key_of, labels
from trainonce.units.settings import TRAVEL, TRAVEL_PER_FOLD

TEXTS = {
    "one-shot": "init 0.1, decay 2",
    "one-shot(init=1)": "init 1, decay 2",
    "one-shot(units=gradient)": "gradient units",
    "one-shot(units=gradient,blend=0)": "gradient units, blend 0",
    "one-shot(units=gradient,limit=3)": "gradient units, limit 3",
    "one-shot(units=gradient,at=last)": "gradient units, at last",
    "one-shot(units=gradient,drift=4)": "gradient units, drift 4",
    "one-shot(units=gradient,init=0.5)": "gradient units, init 0.5",
    "one-shot(units=gradient,signal=loss)": "gradient units, signal loss, decay 2",
    "one-shot(units=gradient,init=0.5,signal=loss,decay=1,lr=0.1,preset=softplus)": (
        "gradient units, init 0.5, signal loss, decay 1, softplus, lr 0.1"
    ),
    "one-shot(units=gradient,blend=0.5,limit=3,drift=2)": "gradient units, blend 0.5, limit 3, drift 2",
}


def weighting(text, of=line):
    (found,) = parse(text, of).weightings
    return found


@task(terms=TERMS, metric="error", direction="minimize", one_shot={"init": 0.3, "decay": 7.0, "lr": 0.5})
def raw(trial, *, steps=90):
    """Has settings for raw units."""


@task(terms=TERMS, metric="error", direction="minimize", one_shot={"units": "gradient", "drift": 4})
def in_units(trial, *, epochs=2):
    """Has settings for gradient units."""


@pytest.mark.parametrize(("text", "label"), TEXTS.items())
def test_labels_say_what_differs_from_the_usual(text, label):
    assert weighting(text).label == label
    assert name_of(text) == text
    assert parse(name_of(text), line).weightings == parse(text, line).weightings


def test_other_settings_are_other_trials_with_other_names():
    found = [weighting(text) for text in TEXTS]
    found += [kind(one) for one in found for kind in (Replay, Final)]
    assert len({key_of("task", one, 0) for one in found}) == len(found)
    assert len({str(one.to_json()) for one in found}) == len(found)
    assert len(set(labels(found[: len(TEXTS)]))) == len(TEXTS)
    close = [Learned(1.0, units="gradient", drift=1 + x) for x in (0.0, 1e-9, 1e-12)]
    assert len(set(labels(close))) == 3


def test_numbers_written_in_two_ways_are_one_trial():
    one, other = (weighting(f"one-shot(units=gradient,blend={x},limit={y})") for x, y in (("1", "3"), ("1.0", "3e0")))
    assert one == other
    assert key_of("task", one, 0) == key_of("task", other, 0)


def test_what_a_task_proposes_for_raw_units_does_not_reach_others():
    assert weighting("one-shot(units=gradient)", raw) == Learned(1.0, units="gradient")
    assert weighting("one-shot(units=raw)", raw) == weighting("one-shot", raw) == Learned(0.3, 7.0, lr=0.5)
    assert weighting("replay(units=gradient,init=2)", raw) == Replay(Learned(2.0, units="gradient"))


def test_a_task_may_propose_gradient_units():
    assert weighting("one-shot", in_units) == Learned(1.0, units="gradient", drift=4)
    assert weighting("one-shot(drift=0)", in_units) == Learned(1.0, units="gradient")
    assert weighting("one-shot(units=raw)", in_units) == Learned()


def test_sweeps_go_through_starts_in_units():
    assert [w.init for w in parse("sweep-init(0.1,1,units=gradient)", line).weightings] == [0.1, 1.0]
    assert [w.decay for w in parse("sweep-decay(1,2,units=gradient,signal=loss)", line).weightings] == [1.0, 2.0]


def test_only_units_measure():
    for text, measures in (("one-shot", False), ("one-shot(units=gradient)", True), ("uniform", False)):
        assert weighting(text).measures == measures
    assert not weighting("replay(units=gradient)").measures  # it repeats what was measured


def make(text, of=line, steps=20):
    chosen, w = weighting(text, of), nn.Parameter(torch.ones(1))
    criterion = chosen.criterion(TERMS, 2.0, "skip", None)
    optimizer = torch.optim.SGD([w], lr=0.1)
    chosen.attach(optimizer, criterion, trainonce.History(), steps)
    return criterion, optimizer


def test_the_criterion_has_the_settings():
    criterion, _ = make("one-shot(units=gradient,blend=0.5,limit=3,at=last,drift=2,init=0.5)")
    settings = criterion.meter.settings
    assert (settings.blend, settings.limit, settings.shared) == (0.5, 3.0, "last")
    assert criterion.meter.drift.settings == trainonce.HeldOut(20, 2.0)
    assert (criterion.scale, criterion.nonfinite, criterion.learned) == (2.0, "skip", False)
    assert criterion.exponents.exp().tolist() == pytest.approx([0.5, 0.5])
    usual, _ = make("one-shot(units=gradient)")
    assert usual.meter.settings == trainonce.GradientUnits()
    learned, optimizer = make("one-shot(units=gradient,signal=loss,decay=3)")
    assert (learned.learned, learned.meter.drift) == (True, None)
    assert optimizer.param_groups[-1]["hyperparameter_decay"] == 3.0


def test_a_run_of_unknown_length_drifts_in_proportion():
    criterion, _ = make("one-shot(units=gradient,drift=8)", steps=None)
    assert criterion.meter.drift.settings.steps is None
    assert criterion.meter.drift.settings.travel == pytest.approx(8 * TRAVEL_PER_FOLD / TRAVEL)


@pytest.mark.parametrize(("drift", "evaluated"), [(0, False), (4, True)])
def test_held_out_data_costs_nothing_unless_it_moves_the_weights(drift, evaluated):
    criterion, optimizer = make(f"one-shot(units=gradient,drift={drift})")
    calls, w = itertools.count(), nn.Parameter(torch.ones(3))
    optimizer.add_param_group({"params": [w]})
    for _ in range(3):
        criterion.held_out(lambda: (next(calls) + 1) * w.sum())
        criterion(fit=w.sum(), small=w[0] ** 2, flat=w[:2].sum())
        optimizer.step()
    assert (next(calls) > 0) == evaluated
    assert (criterion.exponents.abs().sum() > 0) == evaluated
