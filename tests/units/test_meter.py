"""What is measured, when, and what becomes of it in the loss."""

import copy
import math

import pytest
import torch
from torch import nn

import trainonce
from tests.units._task import TERMS, Heads, batches, make, norms, train
from trainonce import GradientUnits
from trainonce.units import places


def test_the_first_call_measures_the_norms_at_the_shared_parameters():
    model, criterion, _ = make(dtype=torch.float64)
    losses = model(batches(1, torch.float64)[0])
    criterion(losses)
    found = norms(model, losses)
    expected = [found["fit"] / found[name] for name in TERMS]
    torch.testing.assert_close(1 / criterion.units, torch.tensor(expected, dtype=torch.float64))


def test_the_loss_is_the_mean_of_the_losses_in_units():
    """Every term acts at the trunk with the norm of the base's gradient, each with a third of the weight."""
    model, criterion, _ = make(GradientUnits(rise=0), dtype=torch.float64)
    losses = model(batches(1, torch.float64)[0])
    total = criterion(losses)
    by_hand = sum(losses[name] / unit for name, unit in zip(TERMS, criterion.units, strict=True)) / 3
    torch.testing.assert_close(total, by_hand)
    torch.testing.assert_close(criterion.weights * criterion.total, 1 / (3 * criterion.units))
    torch.testing.assert_close(criterion.weights.sum(), torch.tensor(1.0, dtype=torch.float64))
    torch.testing.assert_close(criterion.shares, torch.full((3,), 1 / 3, dtype=torch.float64))


def test_a_run_is_what_a_slow_reference_makes_of_it():
    """The whole rule written again, with plain backward passes at every step."""
    data = batches(30, torch.float64)
    units = GradientUnits(blend=0.3, limit=3.0, keep=0.6, every=0.0, rise=7)
    model, criterion, optimizer = make(units, dtype=torch.float64)
    train(model, criterion, optimizer, data)

    torch.manual_seed(0)
    twin = Heads(torch.float64)
    steps = torch.optim.Adam(twin.parameters(), lr=1e-2)
    running, peak = {}, {}
    for step, x in enumerate(data):
        losses = twin(x)
        for name, norm in norms(twin, losses).items():
            before = running.get(name, norm)
            running[name] = math.sqrt(0.6 * before**2 + 0.4 * norm**2)
            peak[name] = max(peak.get(name, 0.0), running[name])
        total = 0
        for name in TERMS:
            faded = (running["fit"] / peak["fit"]) / (running[name] / peak[name])
            weight = peak["fit"] / peak[name] * min(3.0, max(1 / 3.0, faded**0.3)) / 3
            total = total + losses[name] * weight * (min(1.0, step / 7) if name != "fit" else 1)
        steps.zero_grad()
        total.backward()
        steps.step()
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, trainonce.SGDW])
@pytest.mark.parametrize("factor", [0.01, 100])
def test_the_scale_of_an_auxiliary_loss_does_not_matter(optimizer, factor):
    data = batches(20, torch.float64)
    plain, other = make(optimizer=optimizer, dtype=torch.float64), make(optimizer=optimizer, dtype=torch.float64)
    train(*plain, data)
    train(*other, data, factors=(1, factor, 1 / factor))
    for a, b in zip(plain[0].parameters(), other[0].parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


def test_the_base_keeps_its_weight_whatever_the_units_are():
    """Were the sum held, SGD would stand still while a term without gradient takes all of it."""
    model, criterion, _ = make(dtype=torch.float64)
    for x in batches(5, torch.float64):
        losses = model(x)
        total = criterion(losses | {"flat": 1e-9 * losses["flat"]})
        (slope,) = torch.autograd.grad(total, losses["fit"])
        torch.testing.assert_close(slope.item(), 1 / 3)


# When


def test_measurements_are_log_spaced():
    model, criterion, optimizer = make(GradientUnits(shared="last"))
    seen = []
    for x in batches(1) * 400:
        before = criterion.meter.norms.clone()
        train(model, criterion, optimizer, [x])
        if not torch.equal(before, criterion.meter.norms):
            seen.append(criterion.meter.steps)
    expected, step = [], 0
    while step < 400:
        expected.append(step + 1)
        step += max(1, math.ceil(0.05 * step))
    assert seen == expected
    assert abs(len(expected) - (20 + 20 * math.log(400 / 20))) < 10


def test_as_many_steps_measure_as_the_docs_say():
    meter, found = make()[1].meter, []
    while meter.steps < 100_000:
        found.append(meter.steps)
        meter._count([1, 2])
        meter.steps = meter.next
    assert found[:22] == [*range(22)]
    assert [sum(step < steps for step in found) for steps in (100, 1000, 10_000, 100_000)] == [47, 93, 140, 187]


def test_terms_come_in_over_their_first_steps():
    model, criterion, optimizer = make(GradientUnits(rise=4))
    shown = []
    for x in batches(6):
        losses = model(x)
        criterion(losses | {"flat": None if len(shown) < 2 else losses["flat"]})
        ratios = (criterion.weights / criterion.weights[0] * criterion.units)[1:].tolist()
        shown.append([round(ratio, 4) for ratio in ratios])
        optimizer.step()
    assert shown == [[0, 0], [0.25, 0], [0.5, 0], [0.75, 0.25], [1, 0.5], [1, 0.75]]


def test_micro_batches_and_closures_measure_once_a_step():
    model, criterion, optimizer = make()
    calls = 0
    measure = criterion.meter.measure

    def count(*args):
        nonlocal calls
        calls += 1
        measure(*args)

    criterion.meter.measure = count
    for x in batches(4):
        for part in x.chunk(4):
            (criterion(model(part)) / 4).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert calls == 4

    def closure():
        optimizer.zero_grad()
        for _ in range(3):
            loss = criterion(model(x))
        loss.backward()
        return loss

    optimizer.step(closure)
    assert calls == 5


def test_validation_neither_measures_nor_counts():
    model, criterion, optimizer = make()
    train(model, criterion, optimizer, batches(2))
    before = copy.deepcopy(criterion.state_dict())
    with torch.no_grad():
        value = criterion(model(batches(1)[0]))
    assert value.isfinite()
    assert_same(criterion.state_dict(), before)


def test_validation_in_inference_mode_does_not_spoil_the_next_step():
    model, criterion, optimizer = make()
    train(model, criterion, optimizer, batches(2))
    with torch.inference_mode():
        criterion(model(batches(1)[0]))
    train(model, criterion, optimizer, batches(1))
    criterion.meter.next = 10**9
    with torch.inference_mode():
        criterion(model(batches(1)[0]))
    optimizer.zero_grad()
    criterion(model(batches(1)[0])).backward()
    assert model.trunk[0].weight.grad.abs().max() > 0


def test_the_weights_of_the_sum_follow_whatever_changes_them():
    model, criterion, optimizer = make(GradientUnits(rise=0), dtype=torch.float64)
    x = batches(1, torch.float64)[0]

    def slopes():
        losses = [loss.detach().requires_grad_() for loss in model(x).values()]
        criterion.meter.next = 10**9
        return torch.stack(torch.autograd.grad(criterion(losses), losses))

    train(model, criterion, optimizer, [x])
    before = slopes() / 2
    for change in (
        lambda: criterion.exponents.detach().fill_(0.7),
        lambda: criterion.meter.peaks.mul_(torch.tensor([[1.0, 2.0]], dtype=torch.float64)),
        lambda: criterion.meter.norms.mul_(torch.tensor([[1.0, 0.5]], dtype=torch.float64)),
        lambda: criterion.meter.risen.fill_(0.5),
        lambda: criterion.meter.asked.fill_(-1.0),
        lambda: criterion.meter.norms[0].fill_(math.nan),
        lambda: criterion.meter.raw.fill_(1.0),
        lambda: criterion.load_state_dict(criterion.state_dict() | {"exponents": torch.tensor([-1.0, 1.0])}),
        lambda: criterion.reset_parameters(),
    ):
        change()
        torch.testing.assert_close(slopes(), criterion.weights * criterion.total)
        assert not torch.equal(slopes(), before)
        before = slopes()


def test_freeze_holds_the_units():
    model, criterion, optimizer = make()
    train(model, criterion, optimizer, batches(3))
    criterion.freeze()
    before = criterion.weights
    train(model, criterion, optimizer, batches(3))
    assert torch.equal(criterion.weights, before)
    criterion.unfreeze()
    train(model, criterion, optimizer, batches(3))
    assert not torch.equal(criterion.weights, before)


@pytest.mark.parametrize("rise", [0, 1, 10])
@pytest.mark.parametrize("signal", ["loss", "held_out"])
def test_weights_frozen_from_the_start_are_those_of_the_first_call(signal, rise):
    """And not 0 for the auxiliary terms, which have no unit before."""
    model, criterion, optimizer = make(GradientUnits(rise=rise), dtype=torch.float64, signal=signal, init=0.5)
    criterion.freeze()
    data = batches(30, torch.float64)
    found = norms(model, model(data[0]))
    ratios = [found["fit"] / found[name] * (1 if name == "fit" else 0.5) for name in TERMS]
    shown = []
    for x in data[:4]:
        train(model, criterion, optimizer, [x])
        shown.append(criterion.weights / criterion.weights[0])
    torch.testing.assert_close(shown[0], torch.tensor(ratios, dtype=torch.float64))
    assert all(torch.equal(one, shown[0]) for one in shown)
    criterion.unfreeze()
    criterion(model(data[4]))
    assert (criterion.weights / criterion.weights[0] > 0.1 * shown[0]).all()  # they do not come in again
    before = criterion.weights
    train(model, criterion, optimizer, data[4:])
    assert not torch.equal(criterion.weights, before)


def test_a_term_that_first_comes_while_frozen_gets_a_unit_and_leaves_the_others_alone():
    model, criterion, optimizer = make()
    for x in batches(15):
        optimizer.zero_grad()
        criterion(model(x) | {"flat": None}).backward()
        optimizer.step()
    criterion.freeze()
    before, next_one = criterion.units, criterion.meter.next
    assert criterion.weights[2] == 0
    shown = []
    for x in batches(3):
        train(model, criterion, optimizer, [x])
        shown.append(criterion.weights)
    assert criterion.units[1] == before[1]
    assert shown[0][2] > 0
    assert all(torch.equal(one, shown[0]) for one in shown)
    assert criterion.meter.next == next_one


@pytest.mark.parametrize("factor", [0.0, math.inf])
def test_a_frozen_term_without_a_gradient_waits_for_one(factor):
    model, criterion, _ = make()
    criterion.freeze()
    losses = model(batches(1)[0])
    criterion(losses | {"flat": losses["flat"] * factor})
    assert criterion.weights[1] > 0
    assert criterion.weights[2] == 0
    before = criterion.units
    criterion(model(batches(2)[1]))
    assert criterion.units[1] == before[1]
    assert criterion.weights[2] > 0


def test_a_frozen_term_that_shares_nothing_is_measured_once(monkeypatch):
    model, apart = Heads(), nn.Linear(4, 1)
    criterion = trainonce.CompositeLoss(["fit", "apart"], units="gradient").freeze()
    calls = []
    measure = criterion.meter.measure
    monkeypatch.setattr(criterion.meter, "measure", lambda *args: calls.append(args) or measure(*args))
    for x in batches(3):
        criterion(fit=model(x)["fit"], apart=apart(x).square().mean())
    assert len(calls) == 1
    assert criterion.as_dict() == {"fit": 0.5, "apart": 0.5}


@pytest.mark.parametrize("cut", [1, 5, 12])
def test_a_resumed_run_that_is_frozen_for_a_while_is_the_same_bit_for_bit(cut):
    data = batches(30)

    def run(made, begin, end):
        for step in range(begin, end):
            if step == 0:
                made[1].freeze()
            if step == 10:
                made[1].unfreeze()
            train(*made, data[step : step + 1])

    whole, first, second = make(), make(), make()
    run(whole, 0, 30)
    run(first, 0, cut)
    for part, state in zip(second, copy.deepcopy([part.state_dict() for part in first]), strict=True):
        part.load_state_dict(state)
    run(second, cut, 30)
    for a, b in zip(whole[0].parameters(), second[0].parameters(), strict=True):
        assert torch.equal(a, b)


def test_without_attach_the_calls_are_counted():
    model = Heads()
    criterion = trainonce.CompositeLoss(TERMS, units="gradient")
    for x in batches(3):
        criterion(model(x)).backward()
    assert criterion.meter.steps == 3
    assert (criterion.units[1:] != 1).all()
    criterion.freeze()
    criterion(model(x))
    assert criterion.meter.steps == 3


# What is odd about a batch


def test_an_absent_term_keeps_its_unit_and_is_measured_when_it_first_comes():
    model, criterion, optimizer = make()
    train(model, criterion, optimizer, batches(150))
    late = trainonce.CompositeLoss(TERMS, units="gradient")
    optimizer = torch.optim.Adam(model.parameters())
    trainonce.attach(optimizer, late)
    for x in batches(151):
        losses = model(x)
        late(losses | {"flat": None}).backward()
        optimizer.step()
    assert late.units[2] == 1
    assert late.units[1] != 1
    assert late.meter.next > late.meter.steps  # nothing is due, but for the new term
    late(model(batches(1)[0]))
    assert late.units[2] != 1
    before, late.meter.next = late.units, 0
    late(model(batches(2)[1]) | {"flat": None})
    assert late.units[2] == before[2]
    assert late.units[1] != before[1]


def test_a_batch_without_the_base_measures_nothing():
    model, criterion, _ = make()
    criterion(model(batches(1)[0]))
    before, criterion.meter.next = criterion.units, 0
    assert criterion(model(batches(2)[1]) | {"fit": None}).isfinite()
    assert torch.equal(criterion.units, before)


def test_a_term_without_gradient_keeps_the_raw_scale_until_it_has_one():
    model, criterion, _ = make()
    losses = model(batches(1)[0])
    total = criterion(losses | {"flat": losses["flat"] * 0})
    assert criterion.units[2] == 1
    assert total.isfinite()
    criterion.meter.advance()
    criterion(model(batches(2)[1]))
    assert criterion.units[2] != 1


def test_a_term_with_a_network_of_its_own_keeps_the_raw_scale_and_is_named():
    model, apart = Heads(), nn.Linear(4, 1)
    criterion = trainonce.CompositeLoss([*TERMS, "apart"], units="gradient")
    optimizer = torch.optim.Adam([*model.parameters(), *apart.parameters()])
    trainonce.attach(optimizer, criterion)

    def run():
        for x in batches(12):
            optimizer.zero_grad()
            criterion(model(x) | {"apart": apart(x).square().mean()}).backward()
            optimizer.step()

    with pytest.warns(trainonce.health.NothingShared, match="the base and 'apart'"):
        run()
    assert criterion.units[3] == 1
    assert (criterion.units[1:3] != 1).all()


def test_a_term_without_a_unit_yet_waits():
    """Its gradient was 0 so far: at its raw scale it could be anything when it comes."""
    model, criterion, _ = make(GradientUnits(rise=0))
    losses = model(batches(1)[0])
    criterion(losses | {"flat": losses["flat"] * 0})
    criterion.meter.next = 10**9
    losses = model(batches(2)[1])
    (slope,) = torch.autograd.grad(criterion(losses), losses["flat"])
    assert slope == 0
    assert criterion.weights[2] == 0


def test_a_term_that_never_meets_the_base_is_named():
    model, criterion, optimizer = make()

    def run():
        for i, x in enumerate(batches(4)):
            losses = model(x)
            lacking = ["twice", "flat"] if i % 2 else ["fit"]
            criterion(losses | dict.fromkeys(lacking)).backward()
            optimizer.step()

    with pytest.warns(trainonce.health.ApartFromBase, match="had 'twice', 'flat' without the base, 'fit'"):
        run()


def test_a_layer_may_be_frozen_during_training():
    model, criterion, optimizer = make()
    train(model, criterion, optimizer, batches(5))
    model.trunk[0].requires_grad_(False)
    train(model, criterion, optimizer, batches(5))
    assert len(criterion.meter._place) == 2


def test_another_precision_keeps_the_units():
    model, criterion, optimizer = make()
    train(model, criterion, optimizer, batches(5))
    before, steps = criterion.units, criterion.meter.steps
    criterion.double()
    torch.testing.assert_close(criterion.units, before.double())
    assert criterion.meter.steps == steps


def test_a_loss_may_be_a_parameter_itself():
    w = nn.Parameter(torch.ones(()))
    criterion = trainonce.CompositeLoss(["a", "b"], units="gradient")
    criterion(a=w, b=3 * w)
    assert criterion.units.tolist() == pytest.approx([1, 3])


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_leaves_the_units_alone(bad):
    model, criterion, _ = make()
    x, y = batches(2)
    criterion(model(x))
    before = criterion.units
    criterion.meter.advance()
    losses = model(y)
    criterion(losses | {"flat": losses["flat"] * bad})
    assert torch.equal(criterion.units[2], before[2])
    assert criterion.units.isfinite().all()


# Copies and checkpoints


def assert_same(state, other):
    assert state.keys() == other.keys()
    for name, value in state.items():
        torch.testing.assert_close(value, other[name], rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("cut", [3, 130])
def test_a_resumed_run_is_the_same_bit_for_bit(cut):
    data = batches(150)
    whole = make()
    train(*whole, data)
    first = make()
    train(*first, data[:cut])
    saved = copy.deepcopy([part.state_dict() for part in first])
    second = make()
    for part, state in zip(second, saved, strict=True):
        part.load_state_dict(state)
    train(*second, data[cut:])
    for a, b in zip(whole[0].parameters(), second[0].parameters(), strict=True):
        assert torch.equal(a, b)
    assert_same(whole[1].state_dict(), second[1].state_dict())


@pytest.mark.parametrize("lacking", [True, False])
@pytest.mark.parametrize("attached", [True, False])
@pytest.mark.parametrize("cut", [7, 13, 22, 33])
def test_a_resumed_run_measures_at_the_same_layers_bit_for_bit(cut, attached, lacking):
    """While layers are frozen and unfrozen, and batches lack the term that has a head of its own."""
    data = batches(40)

    def new():
        made = make(GradientUnits(every=0.02))
        if not attached:
            made[1].attachment.remove()
        return made

    def run(made, begin, end):
        model, criterion, optimizer = made
        for step in range(begin, end):
            model.trunk[0].requires_grad_(step < 10 or step > 20)
            losses = model(data[step])
            optimizer.zero_grad()
            criterion(losses | ({"twice": None} if lacking and step % 3 == 1 else {})).backward()
            optimizer.step()

    whole, first, second = new(), new(), new()
    run(whole, 0, 40)
    run(first, 0, cut)
    for part, state in zip(second, copy.deepcopy([part.state_dict() for part in first]), strict=True):
        part.load_state_dict(state)
    run(second, cut, 40)
    assert_same(whole[1].state_dict(), second[1].state_dict())
    for a, b in zip(whole[0].parameters(), second[0].parameters(), strict=True):
        assert torch.equal(a, b)


def test_the_graph_is_searched_only_where_it_may_have_changed(monkeypatch):
    model, criterion, optimizer = make(GradientUnits(every=0.0))
    searched, find = [], places.find
    monkeypatch.setattr(places, "find", lambda *args: searched.append(criterion.meter.steps) or find(*args))
    train(model, criterion, optimizer, batches(40))
    assert searched == [0, 2, 4, 8, 16, 32]
    model.trunk[0].requires_grad_(False)
    train(model, criterion, optimizer, batches(2))
    model.trunk[0].requires_grad_(True)
    train(model, criterion, optimizer, batches(2))
    assert searched[6:] == [40, 42]


def test_a_checkpoint_with_the_terms_in_another_order_is_sorted():
    model, criterion, optimizer = make()
    train(model, criterion, optimizer, batches(3))
    other = trainonce.CompositeLoss(["fit", "flat", "twice"], units="gradient")
    other.load_state_dict(criterion.state_dict())
    assert dict(zip(other.terms, other.units.tolist(), strict=True)) == dict(
        zip(criterion.terms, criterion.units.tolist(), strict=True)
    )
    assert other.meter.steps == criterion.meter.steps


def test_a_raw_checkpoint_does_not_load_into_gradient_units_unnoticed():
    saved = trainonce.CompositeLoss(TERMS).state_dict()
    with pytest.raises(RuntimeError, match="Missing key"):
        trainonce.CompositeLoss(TERMS, units="gradient").load_state_dict(saved)


def test_a_copy_measures_at_its_own_model():
    model, criterion, optimizer = make()
    train(model, criterion, optimizer, batches(3))
    twin_model, twin = copy.deepcopy((model, criterion))
    twin.meter.next = 0
    before = twin.units
    twin(twin_model(batches(4)[3]))
    assert not torch.equal(twin.units, before)
    assert torch.equal(criterion.units, before)


def test_narrow_modules_keep_the_norms_wide():
    _, criterion, _ = make()
    criterion.half()
    assert {b.dtype for b in criterion.meter.buffers()} == {torch.float32}


def test_the_meta_device_and_reset():
    with torch.device("meta"):
        criterion = trainonce.CompositeLoss(TERMS, units="gradient")
    criterion.to_empty(device="cpu")
    criterion.reset_parameters()
    assert criterion.units.tolist() == [1, 1, 1]
    assert criterion.meter.scale > 1


def test_loading_into_the_meta_device_keeps_what_is_loaded():
    model, criterion, optimizer = make()
    train(model, criterion, optimizer, batches(3))
    with torch.device("meta"):
        other = trainonce.CompositeLoss(TERMS, units="gradient")
    other.load_state_dict(criterion.state_dict(), assign=True)
    assert torch.equal(other.units, criterion.units)
    assert torch.equal(other.weights, criterion.weights)
    assert other.meter.steps == 3


# Settings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"blend": 1.5}, "blend between 0 and 1; got 1.5"),
        ({"keep": -0.1}, "keep between 0 and 1; got -0.1"),
        ({"every": 2}, "every between 0 and 1; got 2"),
        ({"rise": 1.5}, "whole number of steps of at least 0 as rise; got 1.5"),
        ({"rise": -1}, "whole number of steps of at least 0 as rise; got -1"),
        ({"limit": 0.5}, "limit of at least 1; got 0.5"),
        ({"limit": math.inf}, "limit of at least 1; got inf"),
        ({"shared": "first"}, "'last' layer of them.*got 'first'"),
    ],
)
def test_wrong_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        GradientUnits(**settings)


@pytest.mark.parametrize("shared", [[], [torch.ones(2)], ["trunk"], 5])
def test_shared_needs_parameters(shared):
    with pytest.raises(TypeError, match="parameters that require gradients"):
        GradientUnits(shared=shared)


def test_unknown_units_and_signals():
    with pytest.raises(ValueError, match=r"'raw', 'gradient' or a trainonce.GradientUnits; got 'loss'"):
        trainonce.CompositeLoss(TERMS, units="loss")
    with pytest.raises(ValueError, match=r"signal must be 'loss', 'held_out' or a trainonce.HeldOut; got 'none'"):
        trainonce.CompositeLoss(TERMS, signal="none")
    with pytest.raises(ValueError, match="needs units='gradient'"):
        trainonce.CompositeLoss(TERMS, signal="held_out")


def test_learned_weights_need_a_decay_and_units_do_not():
    optimizer = torch.optim.SGD(Heads().parameters(), lr=0.1)
    with pytest.raises(ValueError, match="attach needs decay="):
        trainonce.attach(optimizer, trainonce.CompositeLoss(TERMS))
    trainonce.attach(optimizer, trainonce.CompositeLoss(TERMS, units="gradient"))


def test_the_paper_s_signal_works_in_units():
    """The exponents' gradient compares the losses in units, whatever their raw scale."""

    def run(factor):
        model, criterion, optimizer = make(dtype=torch.float64, signal="loss", init=0.5)
        train(model, criterion, optimizer, batches(10, torch.float64), factors=(1, factor, 1))
        return criterion.exponents

    assert run(1.0)[0] != math.log(0.5)
    torch.testing.assert_close(run(1.0), run(100.0))


def test_a_runaway_is_named():
    model, criterion, optimizer = make(GradientUnits(blend=1.0, limit=1e6, keep=0.0))

    def run():
        for step, x in enumerate(batches(12)):
            losses = model(x)
            optimizer.zero_grad()
            criterion(losses | {"flat": losses["flat"] * 10.0 ** -min(step, 8)}).backward()
            optimizer.step()

    with pytest.warns(trainonce.health.Runaway, match="'flat' has all but vanished"):
        run()


def test_other_scales_are_no_concern_in_units(recwarn):
    train(*make(), batches(12), factors=(1, 1e4, 1e-4))
    train(*make(signal="loss"), batches(12), factors=(1, 1e4, 1e-4))
    assert not [w for w in recwarn if w.category is trainonce.health.OtherScale]
