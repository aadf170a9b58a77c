"""The exponents' own parameter group, in every kind of optimizer and order of calls."""

import pytest
import torch
from torch import nn

import trainonce
from trainonce import health


def make(kind=torch.optim.AdamW, own="model", **settings):
    return kind(nn.Linear(2, 1).parameters(), **({"lr": 0.1} | settings)), trainonce.CompositeLoss(["a", "b"], lr=own)


def train(optimizer, criterion, scheduler=None, steps=1):
    w = optimizer.param_groups[0]["params"][0]
    for _ in range(steps):
        optimizer.zero_grad()
        criterion(a=(w**2).sum(), b=(w - 1).abs().sum()).backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()


def test_own_group_without_weight_decay():
    optimizer, criterion = make(weight_decay=0.3, betas=(0.5, 0.6))
    trainonce.attach(optimizer, criterion)
    group = optimizer.param_groups[1]
    assert group["params"] == [criterion.exponents]
    assert (group["name"], group["weight_decay"], group["lr"], group["betas"]) == ("loss_weights", 0.0, 0.1, (0.5, 0.6))
    assert optimizer.param_groups[0]["weight_decay"] == 0.3


def test_settings_come_from_the_models_group_not_the_defaults():
    optimizer = torch.optim.SGD([{"params": nn.Linear(2, 1).parameters(), "momentum": 0.9, "lr": 0.3}], lr=0.1)
    trainonce.attach(optimizer, trainonce.CompositeLoss(["a", "b"]))
    assert optimizer.param_groups[1]["momentum"] == 0.9
    assert optimizer.param_groups[1]["lr"] == 0.3


@pytest.mark.parametrize("given", [False, True])
def test_a_tensor_rate_is_not_shared(given):
    """A scheduler writes into each group's tensor: one for both would follow the last written."""
    rate = torch.tensor(0.1)
    optimizer, criterion = make(torch.optim.SGD, rate if given else "model", lr=rate)
    trainonce.attach(optimizer, criterion)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, [lambda t: 0.5**t, lambda t: 1.0])
    train(optimizer, criterion, scheduler)
    assert [g["lr"].item() for g in optimizer.param_groups] == pytest.approx([0.05, 0.1])


def test_the_cheap_variant_is_chosen_where_the_user_left_it_open():
    for asked, found in [({}, False), ({"foreach": True}, True), ({"foreach": False}, False)]:
        optimizer, criterion = make(**asked)
        trainonce.attach(optimizer, criterion)
        assert optimizer.param_groups[1]["foreach"] is found
    optimizer, criterion = make(fused=True)
    trainonce.attach(optimizer, criterion)
    assert (optimizer.param_groups[1]["fused"], optimizer.param_groups[1]["foreach"]) == (True, None)


def test_named_parameters():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.AdamW(model.named_parameters(), lr=0.1)
    trainonce.attach(optimizer, trainonce.CompositeLoss(["a", "b"]))
    assert optimizer.param_groups[1]["param_names"] == ["loss_weights.exponents"]


@pytest.mark.parametrize("named", [False, True])
def test_exponents_that_came_with_the_model_are_moved(named):
    model = nn.ModuleDict({"net": nn.Linear(2, 1), "criterion": trainonce.CompositeLoss(["a", "b"])})
    params = model.named_parameters() if named else model.parameters()
    optimizer = torch.optim.AdamW(params, lr=0.1, weight_decay=0.5)
    trainonce.attach(optimizer, model["criterion"])
    assert [len(g["params"]) for g in optimizer.param_groups] == [2, 1]
    assert optimizer.param_groups[1]["params"][0] is model["criterion"].exponents
    if named:
        assert optimizer.param_groups[0]["param_names"] == ["net.weight", "net.bias"]
    optimizer.load_state_dict(optimizer.state_dict())


def test_a_group_made_by_hand_is_used():
    model, criterion = nn.Linear(2, 1), trainonce.CompositeLoss(["a", "b"])
    groups = [{"params": model.parameters()}, {"params": criterion.parameters(), "lr": 0.7, "weight_decay": 0.2}]
    optimizer = torch.optim.AdamW(groups, lr=0.1)
    trainonce.attach(optimizer, criterion)
    assert len(optimizer.param_groups) == 2
    assert optimizer.param_groups[1]["name"] == "loss_weights"
    assert optimizer.param_groups[1]["lr"] == 0.7
    assert optimizer.param_groups[1]["weight_decay"] == 0.0


def test_two_criteria_in_one_optimizer():
    optimizer, first = make()
    second = trainonce.CompositeLoss(["c", "d"])
    trainonce.attach(optimizer, first)
    trainonce.attach(optimizer, second)
    assert [g.get("name") for g in optimizer.param_groups] == [None, "loss_weights", "loss_weights_2"]
    assert [c.attachment.group["params"][0] is c.exponents for c in (first, second)] == [True, True]


# Refused at once, with what to do instead


@pytest.mark.parametrize(
    ("optimizer", "why"),
    [
        (lambda: torch.optim.LBFGS(nn.Linear(2, 1).parameters()), "single parameter group"),
        (lambda: torch.optim.SparseAdam(list(nn.Embedding(2, 2, sparse=True).parameters())), "sparse gradients only"),
        (lambda: torch.optim.Muon([nn.Linear(2, 2).weight]), "matrices only"),
    ],
    ids=["LBFGS", "SparseAdam", "Muon"],
)
def test_optimizers_that_cannot(optimizer, why):
    optimizer = optimizer()
    with pytest.raises(TypeError, match=why) as error:
        trainonce.attach(optimizer, trainonce.CompositeLoss(["a", "b"]))
    assert "torch.optim.AdamW(criterion.parameters()" in str(error.value)
    assert len(optimizer.param_groups) == 1


def test_the_advice_for_muon_works():
    model, criterion = nn.Linear(4, 4, bias=False), trainonce.CompositeLoss(["a", "b"])
    matrices = torch.optim.Muon(model.parameters(), lr=0.01)
    exponents = torch.optim.AdamW(criterion.parameters(), lr=0.01, weight_decay=0)
    trainonce.attach(exponents, criterion)
    assert len(exponents.param_groups) == 1
    start = criterion.exponents.detach().clone()
    out = model(torch.randn(3, 4))
    criterion(a=out.square().mean(), b=out.abs().mean()).backward()
    matrices.step(), exponents.step()
    assert not torch.equal(criterion.exponents, start)


def test_wrappers_are_refused():
    class Wrapper:
        def __init__(self, optimizer):
            self.optimizer = optimizer

    optimizer, criterion = make()
    with pytest.raises(TypeError, match=r"got the wrapper Wrapper around AdamW. Call trainonce.attach before"):
        trainonce.attach(Wrapper(optimizer), criterion)
    with pytest.raises(TypeError, match=r"needs a torch.optim.Optimizer; got str"):
        trainonce.attach("adam", criterion)


@pytest.mark.parametrize("kind", ["StepLR", "CosineAnnealingLR", "LambdaLR", "OneCycleLR"])
def test_late_attach_is_refused(kind):
    optimizer, criterion = make()
    settings = {
        "StepLR": {"step_size": 1},
        "CosineAnnealingLR": {"T_max": 5},
        "LambdaLR": {"lr_lambda": lambda t: 1.0},
        "OneCycleLR": {"max_lr": 0.1, "total_steps": 5},
    }[kind]
    getattr(torch.optim.lr_scheduler, kind)(optimizer, **settings)
    with pytest.raises(RuntimeError, match="scheduler was built on this optimizer before attach"):
        trainonce.attach(optimizer, criterion)
    assert len(optimizer.param_groups) == 1


# Schedulers


@pytest.mark.parametrize(
    "scheduler",
    [
        lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 20),
        lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda t: 0.9**t),
        lambda o: torch.optim.lr_scheduler.OneCycleLR(o, max_lr=[0.001, 0.01], total_steps=20),
        lambda o: torch.optim.lr_scheduler.CyclicLR(
            o, base_lr=[0.001, 0.01], max_lr=[0.002, 0.02], cycle_momentum=False
        ),
    ],
    ids=["cosine", "lambda", "onecycle-per-group", "cyclic-per-group"],
)
def test_schedulers_that_keep_the_ratio_are_silent(scheduler):
    optimizer, criterion = make(own=0.01, lr=0.001)
    trainonce.attach(optimizer, criterion)
    train(optimizer, criterion, scheduler(optimizer), steps=12)
    rates = [group["lr"] for group in optimizer.param_groups]
    assert rates[1] == pytest.approx(10 * rates[0])


@pytest.mark.parametrize(
    "scheduler",
    [
        lambda o: torch.optim.lr_scheduler.OneCycleLR(o, max_lr=0.1, total_steps=20),
        lambda o: torch.optim.lr_scheduler.CyclicLR(o, base_lr=0.1, max_lr=0.2, cycle_momentum=False),
    ],
    ids=["onecycle", "cyclic"],
)
def test_schedulers_that_reset_the_rate_get_a_warning(scheduler):
    optimizer, criterion = make(own=1.0)
    trainonce.attach(optimizer, criterion)
    with pytest.warns(health.LearningRateReset, match="10 times the model's was asked for, it is at 1 times"):
        train(optimizer, criterion, scheduler(optimizer), steps=2)


# Checkpoints of the optimizer


def test_a_state_with_the_exponents_in_the_models_group_is_torchs_to_refuse():
    """Without names nobody can say which of its parameters they were; no false word that it was loaded."""
    model = nn.ModuleDict({"net": nn.Linear(2, 1), "criterion": trainonce.CompositeLoss(["a", "b"])})
    saved = torch.optim.AdamW(model.parameters(), lr=0.1).state_dict()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    trainonce.attach(optimizer, model["criterion"])
    with pytest.raises(ValueError, match="different number of parameter groups"):
        optimizer.load_state_dict(saved)


@pytest.mark.parametrize(("lr", "rates"), [("model", (0.1, 0.4)), (0.02, (0.02, 0.02))])
def test_a_group_that_joins_a_scheduled_state_follows_the_next_scheduler(lr, rates):
    """The state has come from 0.4 to 0.1; the exponents' rate is the model's now, or the one that is given."""
    old, _ = make(lr=0.4)
    schedule = torch.optim.lr_scheduler.LambdaLR(old, lambda t: 0.5**t)
    train(old, trainonce.CompositeLoss(["a", "b"]), schedule, steps=2)
    optimizer, criterion = make(own=lr, lr=0.7)
    optimizer.load_state_dict(old.state_dict())
    trainonce.attach(optimizer, criterion)
    group = optimizer.param_groups[1]
    assert (group["lr"], group["initial_lr"]) == pytest.approx(rates)
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: 0.5**t, last_epoch=2)
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.4 / 8, rates[1] / 8])


def test_group_is_found_after_the_groups_were_replaced():
    optimizer, criterion = make()
    attachment = trainonce.attach(optimizer, criterion)
    optimizer.load_state_dict(optimizer.state_dict())  # torch makes new group dicts here
    assert attachment.group is optimizer.param_groups[1]
