"""Branches of a training: what is asked, what is answered, and that everything goes on from the winner."""

import dataclasses
import math

import pytest
import torch
from _arena_alone import Alone, distance, wide
from _arena_toy import TOY

import trainonce
from benchmarks.arena import records
from benchmarks.arena.draws import OFFSET
from benchmarks.arena.rules import Point
from benchmarks.arena.scouts import Scouting, Scouts
from benchmarks.arena.stack import Stack
from benchmarks.arena.variant import Variant

WEAK = math.log(1 / 30)
ONE = Scouts(at=(0.3,), length=(0.2,), errors=2.0, margin=0.01)


def scouting(scouts=ONE, settings=({},), task=TOY):
    return Scouting(task, scouts, list(settings), [1, 2], dtype=torch.float64)


def test_without_a_clear_answer_the_training_is_the_plain_one():
    """A margin that nothing can pass: each group's points are the training without scouts, bit for bit."""
    found = scouting(dataclasses.replace(ONE, margin=1e9), [{}, {"p": 0.25}])
    result = found.train()
    plain = Stack(TOY, [Point("units", {}), Point("units", {"p": 0.25})], [1, 2], dtype=torch.float64).train()
    assert all((answer == 0).all() for answer in found.answers)
    torch.testing.assert_close(result.test[:, :: found.changes], plain.test, rtol=0, atol=1e-12)


def test_a_weakened_term_stays_weak_and_the_base_keeps_its_weight():
    """With a margin that everything passes, the best of the changes is made."""
    found = scouting(dataclasses.replace(ONE, errors=0.0, margin=-1e9))
    found.train()
    chosen = found.answers[0][:, 0]
    assert set(chosen.tolist()) <= {0, 1, 2}
    for seed, change in enumerate(chosen.tolist()):
        if change:
            assert found.rule.asked[seed, 0, change - 1].item() == pytest.approx(WEAK)
            assert found.stack.weights[seed, 0, 0].item() == pytest.approx(1 / 3)


def test_the_winner_is_what_all_points_of_a_group_go_on_from():
    found = scouting(dataclasses.replace(ONE, errors=0.0, margin=-1e9), [{}, {"p": 0.25}])
    found.train()
    for value in found.stack.parameters.values():
        grouped = value.unflatten(1, (2, found.changes))
        torch.testing.assert_close(grouped, grouped[:, :, :1].expand_as(grouped), rtol=0, atol=0)
    first, second = (found.stack.parameters["head.weight"][:, at] for at in (0, found.changes))
    assert not torch.equal(first, second)


def test_a_harmful_term_is_weakened():
    """The last term pulls the output away from the target; without it the validation score is clearly better."""

    def losses(net, data, draw):
        values = TOY.losses(net, data, draw)
        return torch.stack([values[0], values[1], -3 * values[0]])

    task = dataclasses.replace(TOY, losses=losses, steps=100)
    found = scouting(task=task)
    found.train()
    assert (found.answers[0] == 2).all()


def test_put_back_is_asked_of_a_weakened_term():
    found = scouting(Scouts(at=(0.2, 0.6), length=(0.1, 0.1)))
    found.rule.asked[:, :, 0] = WEAK
    found._ask()
    assert found.rule.asked[0].tolist() == [pytest.approx(row) for row in ([WEAK, 0], [0, 0], [WEAK, WEAK])]


def test_each_level_but_the_one_a_term_is_at_is_asked():
    found = scouting(dataclasses.replace(ONE, levels=(0.2, 2.0)))
    found.rule.asked[:, :, 0] = math.log(0.2)
    found._ask()
    asked = found.rule.asked[0].exp().tolist()
    assert asked == [pytest.approx(row) for row in ([0.2, 1], [1, 1], [2, 1], [0.2, 0.2], [0.2, 2])]


def test_cost_counts_every_change():
    assert Scouts(at=(0.1, 0.35), length=(0.08, 0.08)).cost(terms=3) == pytest.approx(1 + 2 * 0.16)
    assert Scouts(at=(0.1,), length=(0.1,), levels=(0.2, 0.03)).cost(terms=3) == pytest.approx(1.4)


def test_records_name_the_answers():
    found = scouting(settings=[{}, {"travel": 4.0}])
    made = found.records(found.train(), Variant())
    assert [r["seed"] for r in made] == [1, 1, 2, 2]
    assert {r["rule"] for r in made} == {"scouts"}
    first, second = (r["settings"] for r in made[:2])
    assert first["at"] == [0.3]
    assert second == {"travel": 4.0, **first}
    assert all(r["cost"] == pytest.approx(1.4) and len(r["answers"]) == 1 for r in made)
    assert len({records.key(r) for r in made}) == 4


@pytest.mark.parametrize(("margin", "errors"), [(1e9, 2.0), (-1e9, 0.0)])
def test_the_library_s_scouts_are_the_arena_s(margin, errors):
    """A training with trainonce.Scouts against a group of the stack, without a change and with one."""
    arena = Scouts(at=(0.2, 0.6), length=(0.2, 0.2), errors=errors, margin=margin)
    found = Scouting(TOY, arena, [{}], [2], dtype=torch.float64)
    found.train()

    alone = Alone(2, TOY.steps)
    generator = torch.Generator().manual_seed(OFFSET + 2)
    draws = [wide(TOY.draw(generator)) for _ in range(TOY.steps)]
    criterion = trainonce.CompositeLoss(TOY.terms, units="gradient").double()
    step = torch.optim.Adam(alone.model.parameters(), lr=TOY.lr, betas=TOY.betas)
    trainonce.attach(step, criterion)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(step, TOY.steps)
    scouts = trainonce.Scouts(
        criterion,
        TOY.steps,
        [alone.model, step, schedule],
        higher=False,
        at=arena.at,
        length=0.2,
        errors=errors,
        margin=margin,
    )
    for at in scouts:
        step.zero_grad()
        criterion(TOY.losses(alone.model, alone.data, draws[at])).backward()
        step.step()
        schedule.step()
        if scouts.wants_score:
            with torch.no_grad():
                scouts.score(TOY.score(alone.model, alone.data, "validation").item())
    changes = ["as it is", *(f"with {term} at 1/30" for term in TOY.terms[1:])]
    first = changes[found.answers[0][0, 0]]
    assert scouts.answers[0].chosen == first
    assert distance(found.stack, 0, 0, alone.model) < 1e-9
