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
