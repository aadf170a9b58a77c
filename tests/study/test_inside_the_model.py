"""A criterion that is a part of the model, as in a LightningModule, trains as one beside it, under every plan."""

import copy

import pytest
import torch
from _stores import balance, final, replay, yoto
from torch import nn

import trainonce
from trainonce.study import layout
from trainonce.study.peers import PEERS
from trainonce.study.rules import Rule, fixed

OPTIMIZERS = {
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.05, weight_decay=0.5),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.02, momentum=0.9, weight_decay=0.1),
}
RULES = [yoto(), balance(), fixed((0.5, 0.5)), replay(yoto()), final(yoto()), *map(Rule, PEERS)]
TERMS = ("fit", "small")


class Model(nn.Module):
    def __init__(self, criterion, inside):
        super().__init__()
        self.net = nn.Linear(3, 2)
        self.criterion = criterion if inside else [criterion]  # in a list torch does not see it

    def forward(self, x, y):
        out = self.net(x)
        return criterion_of(self)(fit=(out[:, 0] - y).square().mean(), small=out.square().mean() + 0.1)


def criterion_of(model):
    return model.criterion if isinstance(model.criterion, nn.Module) else model.criterion[0]


def train(rule, source=None, path=None, *, inside, optimizer="adamw", steps=6):
    """A linear model, with its criterion inside or beside it, and a schedule: its parameters and coefficients."""
    torch.manual_seed(0)
    x = torch.randn(32, 3)
    history = trainonce.History(path)
    model = Model(rule.build(TERMS, source=source), inside)
    made = OPTIMIZERS[optimizer](model.parameters())
    rule.attach(made, criterion_of(model), history)
    schedule = torch.optim.lr_scheduler.LambdaLR(made, lambda step: 1 - step / steps)
    for _ in range(steps):
        made.zero_grad()
        model(x, x.sum(1)).backward()
        made.step()
        schedule.step()
    history.flush()
    return [*model.net.parameters(), criterion_of(model).coefficients()]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.plan)
def test_a_criterion_inside_the_model_trains_as_one_beside_it(tmp_path, rule, optimizer):
    train(yoto(), path=tmp_path / layout.HISTORY, inside=False)  # for the controls
    beside = train(rule, tmp_path, inside=False, optimizer=optimizer)
    inside = train(rule, tmp_path, inside=True, optimizer=optimizer)
    assert all(map(torch.equal, inside, beside))


@pytest.mark.parametrize("method", ["uw", "imtl-l"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_what_a_peer_learns_leaves_the_models_group_and_its_weight_decay(method, optimizer):
    rule = Rule(method)
    model = Model(rule.build(TERMS), inside=True)
    made = OPTIMIZERS[optimizer](model.named_parameters())
    rule.attach(made, model.criterion, trainonce.History())
    first, *own = made.param_groups
    assert first["param_names"] == ["net.weight", "net.bias"]
    assert [group["params"] for group in own] == [list(model.criterion.scalarizer.parameters())]
    assert (own[0]["lr"], own[0]["weight_decay"]) == (first["lr"], 0.0)
    assert own[0].get("momentum") == first.get("momentum")


@pytest.mark.parametrize("method", PEERS)
def test_a_model_with_a_peer_inside_can_be_copied(method):
    model = Model(Rule(method).build(TERMS), inside=True)
    twin = copy.deepcopy(model)
    x = torch.ones(4, 3)
    assert torch.equal(twin(x, x.sum(1)), model(x, x.sum(1)))
