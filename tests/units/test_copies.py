"""Copies of a model that holds a criterion in gradient units: pickled, copied, averaged."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import trainonce
from tests.units._task import TERMS, Heads, batches
from trainonce import GradientUnits


class Model(nn.Module):
    """The heads and the criterion; ``named`` measures at the trunk by name."""

    def __init__(self, named=False):
        super().__init__()
        torch.manual_seed(0)
        self.heads = Heads()
        units = GradientUnits(shared=self.heads.trunk if named else "all")
        self.criterion = trainonce.CompositeLoss(TERMS, units=units)

    def forward(self, x):
        return self.criterion(self.heads(x))


def attach(model):
    optimizer = torch.optim.Adam(model.heads.parameters(), lr=1e-2)
    trainonce.attach(optimizer, model.criterion)
    return optimizer


def train(model, optimizer, data, after=None):
    for x in data:
        model.criterion.held_out(lambda x=x: model.heads(x.flip(0) + 1)["fit"])
        optimizer.zero_grad()
        model(x).backward()
        optimizer.step()
        if after is not None:
            after()
    return model


def copies():
    return {"deepcopy": copy.deepcopy, "pickle": lambda model: pickle.loads(pickle.dumps(model))}


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("make", copies().values(), ids=copies())
def test_a_copy_trains_on_as_the_original_does(make, named):
    """It measures at its own parameters and has nothing of the original's optimizer."""
    model = Model(named)
    optimizer = attach(model)
    train(model, optimizer, batches(23))
    twin = make(model)
    assert twin.criterion.attachment is None
    assert str(twin.criterion) == str(model.criterion)
    steps = attach(twin)
    steps.load_state_dict(copy.deepcopy(optimizer.state_dict()))  # which shares its tensors
    before = model.criterion.units
    train(twin, steps, batches(10))
    assert torch.equal(model.criterion.units, before)
    train(model, optimizer, batches(10))
    for a, b in zip(model.state_dict().values(), twin.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    own = {id(p) for p in twin.heads.parameters()}
    assert {id(p) for p in twin.criterion.meter._place} <= own


@pytest.mark.parametrize("how", ["module", "parameters"])
def test_a_copy_of_the_criterion_alone_measures_at_the_same_parameters(how):
    heads = Heads()
    shared = heads.trunk if how == "module" else list(heads.trunk.parameters())
    criterion = trainonce.CompositeLoss(TERMS, units=GradientUnits(shared=shared))
    criterion(heads(batches(1)[0]))
    twin = copy.deepcopy(criterion)
    assert [id(one) for one in twin.meter.settings.named] == [id(one) for one in criterion.meter.settings.named]
    twin(heads(batches(2)[1]))
    criterion(heads(batches(2)[1]))
    assert torch.equal(twin.units, criterion.units)
    assert twin.exponents is not criterion.exponents
    assert twin.meter.norms is not criterion.meter.norms


@pytest.mark.parametrize("criterion_first", [False, True])
def test_a_model_may_hold_the_criterion_before_what_it_measures_at(criterion_first):
    heads = Heads()
    parts = {"heads": heads, "criterion": trainonce.CompositeLoss(TERMS, units=GradientUnits(shared=heads.trunk))}
    model = nn.ModuleDict(dict(reversed(parts.items())) if criterion_first else parts)
    twin = copy.deepcopy(model)
    assert twin["criterion"].meter.settings.shared is twin["heads"].trunk
    twin["criterion"](twin["heads"](batches(1)[0]))
    assert (twin["criterion"].units != 1).any()


def test_a_model_beside_a_copied_criterion_is_copied_too():
    model = Model(named=True)
    twin, heads = copy.deepcopy((model.criterion, model.heads))
    assert heads.trunk is not model.heads.trunk
    assert twin.meter.settings.shared is model.heads.trunk
    with pytest.raises(RuntimeError, match="No loss reaches the parameters that GradientUnits"):
        twin(heads(batches(1)[0]))


def test_a_copy_that_measures_at_a_model_of_its_own_is_refused_in_a_sentence():
    model = Model(named=True)
    twin = pickle.loads(pickle.dumps(model.criterion))
    before = copy.deepcopy(twin.state_dict())
    with pytest.raises(RuntimeError, match=r"they are another model's.*copy or pickle the criterion.*with its model"):
        twin(model.heads(batches(1)[0]))
    for name, value in twin.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0, equal_nan=True)


def test_a_batch_that_does_not_reach_the_named_parameters_is_no_error_later():
    model = Model(named=True)
    optimizer = attach(model)
    train(model, optimizer, batches(2))
    losses = {name: p.square().sum() for name, p in zip(TERMS, model.heads.fit.parameters(), strict=False)}
    model.criterion({"flat": None} | losses)


def test_a_copy_between_a_call_and_its_step_keeps_no_graph():
    model = Model()
    model.criterion.held_out(lambda: model.heads(batches(1)[0])["fit"])
    model.criterion.share(model.heads.trunk(batches(1)[0]))
    twin = pickle.loads(pickle.dumps(model))
    assert twin.criterion._call_state.held_out is None
    assert twin.criterion._call_state.places == ()


@pytest.mark.parametrize("use_buffers", [False, True])
@pytest.mark.parametrize("at", [0, 5])
def test_an_averaged_model_can_be_read_and_evaluated(at, use_buffers):
    """Made before the first measurement, too, when the norms are NaN."""
    model, data = Model(), batches(30)
    optimizer = attach(model)
    train(model, optimizer, data[:at])
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=use_buffers)
    train(model, optimizer, data[at:], after=lambda: average.update_parameters(model))
    found = average.module.criterion
    assert found.weights.isfinite().all()
    assert found.weights.sum() == pytest.approx(1)
    assert found.exponents.abs().max() > 0
    if not use_buffers:
        assert torch.equal(found.units, model.criterion.units)
    with torch.no_grad():
        assert average(data[0]).isfinite()
    average.load_state_dict(copy.deepcopy(average.state_dict()))


def test_a_criterion_outlives_its_optimizer():
    model = Model()
    optimizer = attach(model)
    train(model, optimizer, batches(3))
    del optimizer
    model.criterion.meter.next = 0
    assert model(batches(1)[0]).isfinite()
    assert {id(p) for p in model.criterion.meter._place} == {id(p) for p in model.heads.trunk.parameters()}
