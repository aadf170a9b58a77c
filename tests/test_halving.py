"""Successive halving in a plain training loop: which steps come, what is kept, what goes on."""

import copy
import math
import random

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import trainonce
from tests.units._task import TERMS, Heads, batches, make
from trainonce.halving import Halving, round_ends

STEPS = 90
OPTIONS = {"factors": (0.1, 10.0), "rounds": (0.1, 0.3), "keep": (2, 1)}
NAMES = ["as it is", *(f"with {term} {factor}" for term in TERMS[1:] for factor in ("at 1/10", "times 10"))]


def halving_of(made, **options):
    model, criterion, optimizer = made
    return Halving(criterion, STEPS, [model, optimizer], higher=True, **{**OPTIONS, **options})


def loop(made, data, halving, score, after=lambda calls: False):
    model, criterion, optimizer = made
    for calls, step in enumerate(halving):
        optimizer.zero_grad()
        criterion(model(data[step])).backward()
        optimizer.step()
        if halving.wants_score:
            halving.score(score(criterion))
        if after(calls):
            return


def prefer(*wanted):
    """A score for a wish: the higher, the closer what was asked is to it."""
    return lambda criterion: -(criterion.meter.asked.cpu() - torch.tensor(wanted).log()).abs().sum().item()


def trained_alone(data, asked):
    """As a training that began with these factors."""
    made = model, criterion, optimizer = make()
    criterion.meter.asked.copy_(torch.tensor(asked).log())
    for x in data:
        optimizer.zero_grad()
        criterion(model(x)).backward()
        optimizer.step()
    return made


@pytest.mark.parametrize("asked", [(1.0, 1.0), (0.1, 1.0), (1.0, 10.0)])
def test_what_goes_on_is_the_training_that_began_with_these_weights_bit_for_bit(asked):
    data, made = batches(STEPS), make()
    halving = halving_of(made)
    loop(made, data, halving, prefer(*asked))
    for a, b in zip(made[0].parameters(), trained_alone(data, asked)[0].parameters(), strict=True):
        assert torch.equal(a, b)
    assert list(halving.answers[0].scores) == NAMES
    assert len(halving.answers[1].scores) == 2
    assert halving.answers[1].chosen in halving.answers[0].scores


def test_one_that_was_behind_at_first_can_win():
    made = make()
    halving = halving_of(made)

    def score(criterion):
        wanted = (0.1, 1.0) if not halving.answers else (1.0, 1.0)
        return prefer(*wanted)(criterion)

    loop(made, batches(STEPS), halving, score)
    assert [answer.chosen for answer in halving.answers] == ["with twice at 1/10", "as it is"]
    assert made[1].meter.asked.tolist() == [0, 0]


def test_the_training_as_it_is_stays_until_the_last_round():
    """Worst in all rounds but the last, it is still there to win."""
    made = make()
    halving = halving_of(made, rounds=(0.1, 0.2, 0.3), keep=(3, 2, 1))

    def score(criterion):
        wanted = (0.1, 1.0) if len(halving.answers) < 2 else (1.0, 1.0)
        return -1e9 if len(halving.answers) < 2 and not criterion.meter.asked.any() else prefer(*wanted)(criterion)

    loop(made, batches(STEPS), halving, score)
    assert [answer.chosen for answer in halving.answers] == ["with twice at 1/10"] * 2 + ["as it is"]
    assert [len(answer.scores) for answer in halving.answers] == [5, 3, 2]
    assert all("as it is" in answer.scores for answer in halving.answers)


def test_a_training_that_diverged_as_it_is_makes_room():
    made = make()
    halving = halving_of(made, rounds=(0.1, 0.2, 0.3), keep=(3, 2, 1))
    loop(made, batches(STEPS), halving, lambda c: prefer(0.1, 1.0)(c) if c.meter.asked.any() else float("nan"))
    assert "as it is" not in halving.answers[1].scores
    assert len(halving.answers[1].scores) == 3


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_one_that_diverged_does_not_go_on(bad):
    made = make()
    halving = halving_of(made)
    loop(made, batches(STEPS), halving, lambda criterion: bad if criterion.meter.asked.any() else -1e9)
    assert halving.answers[-1].chosen == "as it is"


def test_all_starts_get_the_same_random_numbers():
    made, drawn = make(), {}
    halving = halving_of(made)
    model, criterion, optimizer = made
    for step in halving:
        drawn.setdefault(step, []).append(torch.rand(()).item())
        criterion(model(batches(1)[0])).backward()
        optimizer.step()
        optimizer.zero_grad()
        if halving.wants_score:
            halving.score(1.0)
    assert [len(drawn[step]) for step in (0, 8, 9, 26, 27)] == [5, 5, 2, 2, 1]
    assert all(len(set(values)) == 1 for values in drawn.values())
    assert len({values[0] for values in drawn.values()}) == STEPS


def test_python_and_numpy_draw_the_same_in_all_starts():
    numpy = pytest.importorskip("numpy")
    made, drawn = make(), {}
    halving = halving_of(made)
    model, criterion, optimizer = made
    for step in halving:
        drawn.setdefault(step, []).append((random.random(), numpy.random.rand()))
        criterion(model(batches(1)[0])).backward()
        optimizer.step()
        if halving.wants_score:
            halving.score(1.0)
    assert len(drawn[0]) == 5
    assert all(len(set(values)) == 1 for values in drawn.values())


def test_a_start_does_not_get_the_held_out_loss_of_the_one_before():
    made = make(signal=trainonce.HeldOut(travel=8.0, steps=STEPS))
    halving = halving_of(made)
    model, criterion, optimizer = made
    called = []
    for step in halving:
        called.clear()
        optimizer.zero_grad()
        criterion(model(batches(1)[0])).backward()
        assert step > 0 or called == []  # nothing was said yet in this start
        criterion.held_out(lambda: called.append(1) or model(batches(1)[0])[TERMS[0]])
        optimizer.step()
        if halving.wants_score:
            halving.score(1.0)


def test_what_was_asked_before_stays():
    made = make()
    made[1].meter.asked[0] = -1.0
    halving = halving_of(made)
    loop(made, batches(STEPS), halving, lambda criterion: float(criterion.meter.asked[0] == -1.0))
    assert halving.answers[-1].chosen == "as it is"
    assert made[1].meter.asked.tolist() == [-1.0, 0.0]


def test_the_history_is_that_of_the_one_that_goes_on(tmp_path):
    made = _, criterion, optimizer = make()
    criterion.attachment.remove()
    history = trainonce.History(tmp_path / "history.jsonl")
    trainonce.attach(optimizer, criterion, history=history)
    loop(made, batches(STEPS), halving_of(made), prefer(1.0, 10.0))
    history.flush()
    for columns in (history.columns(), trainonce.History.load(tmp_path / "history.jsonl").columns()):
        assert columns["step"] == list(range(1, STEPS + 1))
        ratios = [flat / fit for flat, fit in zip(columns["weight/flat"], columns[f"weight/{TERMS[0]}"], strict=True)]
        assert min(ratios[15:]) > 3  # ten times its unit throughout


def test_few_states_are_kept():
    made = make()
    halving = halving_of(made)
    kept = []

    def after(calls):
        kept.append(sum(start.state is not None for start in (*halving._best, *halving._waiting)))

    loop(made, batches(STEPS), halving, prefer(1.0, 10.0), after)
    assert max(kept) == 2
    assert kept[-1] == 0
    assert halving._first is None


@pytest.mark.parametrize("stop", [0, 7, 9, 30, 46, 60, 62, 79, 85, 120])
def test_a_saved_training_goes_on_as_if_it_had_not_been_stopped(stop):
    data, whole, first, second = batches(STEPS), make(), make(), make()
    complete = halving_of(whole)
    loop(whole, data, complete, prefer(0.1, 1.0))
    halving = halving_of(first)
    loop(first, data, halving, prefer(0.1, 1.0), lambda calls: calls == stop)
    saved, place = copy.deepcopy(([part.state_dict() for part in first], halving.state_dict()))
    again = halving_of(second)
    for part, state in zip(second, saved, strict=True):
        part.load_state_dict(state)
    again.load_state_dict(place)
    loop(second, data, again, prefer(0.1, 1.0))
    for a, b in zip(whole[0].parameters(), second[0].parameters(), strict=True):
        assert torch.equal(a, b)
    assert again.answers == complete.answers


def drifting(made, data, halving, score, *, late):
    """A loop with a held-out loss, told before or after the criterion."""
    model, criterion, optimizer = made
    held = [x + 0.5 for x in batches(7)]

    def loss():
        return model(held[criterion.meter.steps % 7])[TERMS[0]]

    for step in halving:
        optimizer.zero_grad()
        if not late:
            criterion.held_out(loss)
        criterion(model(data[step])).backward()
        if late:
            criterion.held_out(loss)
        optimizer.step()
        if getattr(halving, "wants_score", False):
            halving.score(score(criterion))


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("asked", [(1.0, 1.0), (0.1, 1.0), (1.0, 10.0)])
def test_the_drift_of_what_goes_on_is_that_of_the_training_alone(asked, late):
    data, drift = batches(STEPS), trainonce.HeldOut(travel=8.0, steps=STEPS)
    made, alone = make(signal=drift), make(signal=drift)
    drifting(made, data, halving_of(made), prefer(*asked), late=late)
    alone[1].meter.asked.copy_(torch.tensor(asked).log())
    drifting(alone, data, range(STEPS), None, late=late)
    assert alone[1].exponents.abs().max() > 0.1
    assert torch.equal(made[1].exponents, alone[1].exponents)
    for a, b in zip(made[0].parameters(), alone[0].parameters(), strict=True):
        assert torch.equal(a, b)


class Growing(Heads):
    """Its second layer joins after 30 steps, so that there are more parameters to measure at."""

    step = 0

    def forward(self, x):
        z = self.trunk(x) if self.step >= 30 else self.trunk[:2](x)
        a, b = self.fit(z), self.twice(z)
        return {"fit": (a - x[:, :1]).square().mean(), "twice": (b - 2 * x[:, 1:2]).square().mean(), "flat": a.var()}


def test_each_start_looks_for_the_shared_parameters_as_the_training_alone_does():
    data, wish, trained = batches(STEPS), (1.0, 10.0), []
    for halved in (False, True):
        torch.manual_seed(0)
        model, criterion = Growing(), trainonce.CompositeLoss(TERMS, units="gradient")
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        trainonce.attach(optimizer, criterion)
        loop = halving_of((model, criterion, optimizer)) if halved else range(STEPS)
        if not halved:
            criterion.meter.asked.copy_(torch.tensor(wish).log())
        for step in loop:
            model.step = step
            optimizer.zero_grad()
            criterion(model(data[step])).backward()
            optimizer.step()
            if halved and loop.wants_score:
                loop.score(prefer(*wish)(criterion))
        trained.append(list(model.parameters()))
    for a, b in zip(*trained, strict=True):
        assert torch.equal(a, b)


def test_the_drift_counts_what_was_asked():
    """A term with 30 times the weight is nearly all of the mean, and so hardly drifts away from it."""
    moved = {}
    for factor in (1.0, 30.0):
        made = _, criterion, _ = make(signal=trainonce.HeldOut(travel=8.0, steps=STEPS))
        criterion.meter.asked.fill_(0.0)
        criterion.meter.asked[0] = math.log(factor)
        shares = criterion.shares
        assert shares[1].item() == pytest.approx(factor / (2 + factor))
        drifting(made, batches(STEPS)[:10], range(10), None, late=False)
        moved[factor] = criterion.exponents[0].abs().item()
    assert moved[30.0] < 0.5 * moved[1.0]


# Misuse


def test_a_score_that_is_not_given_or_not_asked_for():
    made = make()
    model, criterion, optimizer = made
    halving = halving_of(made)

    def run():
        for _step in halving:
            optimizer.zero_grad()
            criterion(model(batches(1)[0])).backward()
            optimizer.step()
            if halving.wants_score:
                assert not halving.can_save
                with pytest.raises(RuntimeError, match=r"wait until halving\.can_save is true"):
                    halving.state_dict()

    for _ in range(2):  # and again by whoever goes on regardless
        with pytest.raises(RuntimeError, match="was not given"):
            run()
    with pytest.raises(RuntimeError, match="for the steps at which"):
        halving_of(make()).score(1.0)


def test_a_state_of_other_settings_is_refused():
    halving = halving_of(make())
    state = halving.state_dict()
    halving.load_state_dict(state)
    for options in ({"rounds": (0.1, 0.2)}, {"factors": (0.1, 20.0)}, {"keep": (3, 1)}):
        with pytest.raises(ValueError, match="This state is of another Halving"):
            halving_of(make(), **options).load_state_dict(state)
    with pytest.raises(ValueError, match="This state is of another Halving"):
        halving.load_state_dict({})


def test_it_needs_an_attached_criterion():
    model, criterion, optimizer = make()
    criterion.attachment.remove()
    with pytest.raises(ValueError, match="Halving needs a criterion that is attached"):
        Halving(criterion, STEPS, [model, optimizer], higher=True)


def test_it_needs_units_that_the_loss_does_not_move_and_the_optimizer():
    for options in ({"units": "raw"}, {"signal": "loss"}):
        with pytest.raises(ValueError, match="Halving needs a criterion with units='gradient'"):
            halving_of(make(**options))
    model, criterion, _ = make()
    with pytest.raises(ValueError, match="The parts of Halving lack the optimizer"):
        Halving(criterion, STEPS, [model], higher=True)
    _, criterion, optimizer = make()
    with pytest.raises(ValueError, match="The parts of Halving lack a model that the optimizer trains"):
        Halving(criterion, STEPS, [optimizer], higher=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"factors": ()}, "different positive numbers other than 1"),
        ({"factors": (2.0, -1.0)}, "different positive numbers other than 1"),
        ({"factors": 10.0}, "different positive numbers other than 1"),
        ({"factors": (1e-310,)}, "different positive numbers other than 1"),
        ({"rounds": 0.1}, "are tuples; got 0.1"),
        ({"keep": (2, True)}, "in the end 1"),
        ({"factors": (10.01, 10.04)}, "different positive numbers other than 1"),  # both would be called 10
        ({"keep": (2,)}, r"ever fewer and in the end 1; got \[2\] for the rounds \[0.1, 0.3\]"),
        ({"keep": (2, 2)}, "in the end 1"),
        ({"rounds": (0.1, 1.5)}, "up to 1"),
        ({"rounds": (0.3, 0.1)}, r"after \[27, 9\] steps are too short"),
    ],
)
def test_wrong_settings(options, message):
    with pytest.raises(ValueError, match=message):
        halving_of(make(), **options)


def test_rounds_of_a_short_training():
    assert round_ends(18, (1 / 18, 1 / 9, 1 / 3), (3, 2, 1)) == [1, 2, 6]
    with pytest.raises(ValueError, match="needs the number of steps"):
        round_ends(0, (1 / 9,), (1,))
    with pytest.raises(ValueError, match="needs a longer training"):
        round_ends(10, (1 / 18, 1 / 9, 1 / 3), (3, 2, 1))


# On two ranks


def train_on_a_rank():
    """The ranks see other batches and tell other scores; returns what was chosen, and the weights of the model."""
    model, criterion, optimizer = make()
    rank, wrapped = dist.get_rank(), DistributedDataParallel(model)
    halving = halving_of((model, criterion, optimizer))
    data = [x + rank for x in batches(STEPS)]
    for step in halving:
        assert halving.can_save is not halving.is_branching
        optimizer.zero_grad()
        criterion(wrapped(data[step])).backward()
        optimizer.step()
        if halving.wants_score:
            wish = (0.1, 1.0) if rank == 0 else (1.0, 10.0)
            halving.score(prefer(*wish)(criterion))
    return [answer.chosen for answer in halving.answers], [p.detach() for p in model.parameters()]


@pytest.mark.dist
@pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="needs gloo")
def test_all_ranks_go_on_with_what_the_first_one_finds_best(ranks):
    (chosen, weights), (theirs, other) = ranks(train_on_a_rank)
    assert chosen == theirs == ["with twice at 1/10"] * 2
    for a, b in zip(weights, other, strict=True):
        assert torch.equal(a, b)
