"""Branches of a plain training loop: what is repeated, what is kept, what is chosen."""

import copy
import math

import pytest
import torch

import trainonce
from tests.units._task import TERMS, batches, make
from trainonce.scouts import Scouts, choose, reading_steps

STEPS = 100


def loop(made, data, scouts, score, seen=None):
    model, criterion, optimizer = made
    for step in scouts:
        if seen is not None:
            seen.append(step)
        optimizer.zero_grad()
        criterion(model(data[step])).backward()
        optimizer.step()
        if scouts.wants_score:
            scouts.score(score(criterion))


def scouts_of(made, **options):
    model, criterion, optimizer = made
    return Scouts(criterion, STEPS, [model, optimizer], higher=True, **options)


def is_lowered(criterion, term):
    return criterion.meter.asked[TERMS.index(term) - 1] != 0


def test_the_steps_of_a_branch_come_once_for_each_change():
    made, seen = make(), []
    loop(made, batches(STEPS), scouts_of(made, at=(0.1,), length=0.1), lambda criterion: 1.0, seen)
    branch = list(range(10, 20))
    assert seen == [*range(10), *branch, *branch, *branch, *range(20, STEPS)]


@pytest.mark.parametrize(
    ("length", "readings", "expected"),
    [
        (80, 5, [47, 55, 63, 71, 79]),
        (20, 2, [14, 19]),
        (10, 5, [5, 6, 7, 8, 9]),
        (9, 4, [5, 6, 7, 8]),
        (4, 5, [1, 2, 3]),
    ],
)
def test_the_score_is_read_over_the_second_half_of_a_branch(length, readings, expected):
    assert sorted(reading_steps(length, readings)) == expected


def test_a_score_is_asked_for_at_the_same_steps_of_each_branch():
    made, seen, asked = make(), [], []
    scouts = scouts_of(made, at=(0.1, 0.5), length=0.2, readings=4)
    loop(made, batches(STEPS), scouts, lambda criterion: asked.append(seen[-1]) or 1.0, seen)
    assert asked == 3 * [21, 24, 27, 29] + 3 * [61, 64, 67, 69]


def test_without_a_better_change_the_training_is_the_plain_one_bit_for_bit():
    data = batches(STEPS)
    with_scouts, plain = make(), make()
    scouts = scouts_of(with_scouts)
    loop(with_scouts, data, scouts, lambda criterion: 1.0)
    for x in data:
        plain[2].zero_grad()
        plain[1](plain[0](x)).backward()
        plain[2].step()
    for a, b in zip(with_scouts[0].parameters(), plain[0].parameters(), strict=True):
        assert torch.equal(a, b)
    assert [answer.chosen for answer in scouts.answers] == ["as it is"] * 3


def test_a_better_change_is_taken_and_later_taken_back():
    made = make()
    scouts = scouts_of(made, at=(0.1, 0.4))
    kept = []

    def score(criterion):
        first = not scouts.answers
        kept.append(criterion.weights[0].item() * criterion.total.item())
        return float(is_lowered(criterion, "flat") == first)

    loop(made, batches(STEPS), scouts, score)
    assert [answer.chosen for answer in scouts.answers] == ["with flat at 1/30", "with flat again"]
    assert made[1].meter.asked.tolist() == [0, 0]
    assert kept == pytest.approx([1 / 3] * len(kept))  # the base's weight, in every branch


def test_a_lowered_term_has_a_thirtieth_of_its_weight():
    made = make()
    scouts = scouts_of(made, at=(0.1,))
    loop(made, batches(STEPS), scouts, lambda criterion: float(is_lowered(criterion, "twice")))
    _, criterion, _ = made
    assert criterion.meter.asked.tolist() == pytest.approx([math.log(1 / 30), 0])
    weights = criterion.weights.clone()
    criterion.meter.asked.zero_()
    ratio = (weights[1] / weights[0]) / (criterion.weights[1] / criterion.weights[0])
    assert ratio.item() == pytest.approx(1 / 30)
    assert scouts.answers[0].scores == {"as it is": 0.0, "with twice at 1/30": 1.0, "with flat at 1/30": 0.0}


def test_each_level_that_a_term_is_not_at_is_tried():
    made = make()
    scouts = scouts_of(made, at=(0.1, 0.4), levels=(0.2, 2.5))
    loop(made, batches(STEPS), scouts, lambda criterion: criterion.meter.asked[0].item())
    first, second = (list(answer.scores) for answer in scouts.answers)
    assert first == ["as it is", *(f"with {term} {level}" for term in TERMS[1:] for level in ("at 1/5", "times 2.5"))]
    assert scouts.answers[0].chosen == "with twice times 2.5"
    assert second[:3] == ["as it is", "with twice again", "with twice at 1/5"]


def test_the_history_holds_the_branch_that_was_taken(tmp_path):
    made = make()
    _model, criterion, optimizer = made
    criterion.attachment.remove()
    history = trainonce.History(tmp_path / "history.jsonl")
    trainonce.attach(optimizer, criterion, history=history)
    loop(made, batches(STEPS), scouts_of(made, at=(0.1,)), lambda criterion: float(is_lowered(criterion, "twice")))
    history.flush()
    for columns in (history.columns(), trainonce.History.load(tmp_path / "history.jsonl").columns()):
        assert columns["step"] == list(range(1, STEPS + 1))
        weights = columns["weight/twice"]
        assert weights[9] > 10 * weights[10] > 0


def test_random_states_are_those_of_the_start_in_every_branch():
    made = make()
    drawn = {}
    model, criterion, optimizer = made
    scouts = scouts_of(made, at=(0.1,), length=0.1)
    for step in scouts:
        drawn.setdefault(step, []).append(torch.rand(()).item())
        criterion(model(batches(1)[0])).backward()
        optimizer.step()
        optimizer.zero_grad()
        if scouts.wants_score:
            scouts.score(1.0)
    assert all(len(set(values)) == 1 for values in drawn.values())
    assert len(drawn[15]) == 3
    assert len({values[0] for values in drawn.values()}) == STEPS


def test_a_saved_training_goes_on_between_branches():
    data = batches(STEPS)

    def score(criterion):
        return float(is_lowered(criterion, "twice"))

    whole = make()
    loop(whole, data, scouts_of(whole), score)
    first = make()
    scouts = scouts_of(first)
    model, criterion, optimizer = first
    for step in scouts:
        optimizer.zero_grad()
        criterion(model(data[step])).backward()
        optimizer.step()
        if scouts.wants_score:
            scouts.score(score(criterion))
        if step == 25:
            saved = copy.deepcopy([part.state_dict() for part in first])
            place = scouts.state_dict()
            break
    second = make()
    again = scouts_of(second)
    for part, state in zip(second, saved, strict=True):
        part.load_state_dict(state)
    again.load_state_dict(place)
    loop(second, data, again, score)
    for a, b in zip(whole[0].parameters(), second[0].parameters(), strict=True):
        assert torch.equal(a, b)
    assert len(again.answers) == 3


@pytest.mark.parametrize(
    ("readings", "higher", "expected"),
    [
        ([[80, 81, 82], [90, 91, 92]], True, 1),
        ([[80, 81, 82], [90, 91, 92]], False, 0),
        ([[80, 81, 82], [80.1, 81.1, 82.1]], True, 0),  # within the margin
        ([[80, 81, 82], [70, 90, 110]], True, 0),  # better in the mean, but not clearly
        ([[80, 81, 82], [90, 91, 92], [95, 96, 97]], True, 2),
        ([[5.0, 5.1, 5.2], [4.0, 4.1, 4.2]], False, 1),
        ([[80, 81], [float("nan"), 99]], True, 0),
        ([[float("nan"), 81], [float("inf"), 99], [1, 2]], True, 2),
    ],
)
def test_what_is_clearly_better(readings, higher, expected):
    assert choose(readings, higher, errors=2.0, margin=0.01) == expected


def test_a_loop_that_is_left_in_a_branch_is_back_where_the_branch_began(tmp_path):
    made = make()
    model, criterion, optimizer = made
    criterion.attachment.remove()
    history = trainonce.History(tmp_path / "history.jsonl")
    trainonce.attach(optimizer, criterion, history=history)
    data = batches(STEPS)
    scouts = scouts_of(made, at=(0.1,))
    for calls, step in enumerate(scouts):
        optimizer.zero_grad()
        criterion(model(data[step])).backward()
        optimizer.step()
        if scouts.wants_score:
            scouts.score(1.0)
        if calls == 22:
            assert criterion.meter.asked[0] != 0  # in the branch with less of the first term
            break
    assert criterion.meter.asked.tolist() == [0, 0]
    assert not scouts.is_branching
    assert scouts.state_dict()["done"] == 10
    assert len(history) == 10


# Misuse


def test_scouts_need_units_that_the_loss_does_not_move():
    for options in ({"units": "raw"}, {"signal": "loss"}):
        made = make(**options)
        with pytest.raises(ValueError, match="Scouts need a criterion with units='gradient'"):
            scouts_of(made)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"at": (1.0,)}, "between 0 and 1"),
        ({"length": 0.0}, "between 0 and 1"),
        ({"readings": 1}, "two readings at least"),
        ({"at": (0.1, 0.15)}, "overlap"),
        ({"at": (0.95,)}, "reach beyond the 100 steps"),
        ({"levels": 1.0}, "different positive numbers other than 1; got 1.0"),
        ({"levels": (0.1, 0.1)}, "different positive numbers"),
        ({"levels": (0.1, 0.0)}, "different positive numbers"),
        ({"levels": ()}, "different positive numbers"),
    ],
)
def test_wrong_settings(options, message):
    with pytest.raises(ValueError, match=message):
        scouts_of(make(), **options)


@pytest.mark.parametrize(
    ("choose_parts", "message"),
    [
        (lambda model, optimizer: model, r"a list of parts, such as \[model, optimizer\]; got Heads"),
        (lambda model, optimizer: [model], "lack the optimizer"),
        (lambda model, optimizer: [optimizer], "lack a model that the optimizer trains"),
        (lambda model, optimizer: [model, optimizer, 3], "parts with a state_dict, or generators; got int"),
    ],
)
def test_parts_that_cannot_be_put_back(choose_parts, message):
    model, criterion, optimizer = make()
    with pytest.raises((TypeError, ValueError), match=message):
        Scouts(criterion, STEPS, choose_parts(model, optimizer), higher=True)


def test_a_score_that_is_not_given_or_not_asked_for():
    made = make()
    model, criterion, optimizer = made
    scouts = scouts_of(made, at=(0.0,))

    def run():
        for _step in scouts:
            optimizer.zero_grad()
            criterion(model(batches(1)[0])).backward()
            optimizer.step()

    with pytest.raises(RuntimeError, match="was not given"):
        run()
    with pytest.raises(RuntimeError, match="for the steps at which"):
        scouts_of(make()).score(1.0)
