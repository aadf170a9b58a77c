"""Checkpoints: names travel with the exponents, every mismatch is one sentence, a resumed run is bit-identical."""

import io
import json
import math

import pytest
import safetensors.torch
import torch
from torch import nn

from trainonce import CompositeLoss, FixedLoss, ReplayLoss, attach, checkpoint, health

TERMS = ["base", "a", "b", "c"]


def moved(terms=TERMS, cls=CompositeLoss):
    """A criterion whose exponents are all different: 0.1, 0.2, ..."""
    criterion = cls(terms)
    with torch.no_grad():
        criterion.exponents.copy_(torch.arange(1, len(terms)) / 10)
    return criterion


def through_file(saved):
    file = io.BytesIO()
    torch.save(saved, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def through_safetensors(saved):
    return safetensors.torch.load(safetensors.torch.save(dict(saved)))


def kinds():
    return {
        "learned": lambda: moved(),
        "fixed": lambda: FixedLoss({"base": 1, "a": 2, "b": 0, "c": 5}),
        "replay": lambda: ReplayLoss(("base", "a"), torch.tensor([[0.5, 0.5], [0.25, 0.75]])),
    }


# What is saved


@pytest.mark.parametrize("transport", [through_file, through_safetensors])
@pytest.mark.parametrize("kind", kinds())
@pytest.mark.parametrize("inside", [False, True])
def test_safetensors_and_weights_only_carry_all_of_it(transport, kind, inside):
    make = kinds()[kind]

    def wrap(criterion):
        return nn.ModuleDict({"net": nn.Linear(2, 2), "criterion": criterion}) if inside else criterion

    source, target = wrap(make()), wrap(make())
    with torch.no_grad():
        for tensor in target.parameters():
            tensor.fill_(-9.0)
    saved = transport(source.state_dict())
    assert all(isinstance(value, torch.Tensor) for value in saved.values())
    missing, unexpected = target.load_state_dict(saved)
    assert not missing
    assert not unexpected
    for name, value in source.state_dict().items():
        assert torch.equal(target.state_dict()[name], value), name


def test_the_description_is_readable_json():
    saved = moved(["base", "Größe"]).state_dict()["_extra_state"]
    assert saved.dtype == torch.uint8
    assert json.loads(bytes(saved.tolist())) == {
        "version": 1,
        "kind": "CompositeLoss",
        "terms": ["base", "Größe"],
        "frozen": False,
    }


def test_the_description_lies_on_the_cpu_whatever_the_default_device():
    with torch.device("meta"):
        saved = checkpoint.encode("CompositeLoss", ("a", "b"), False)
    assert saved.device.type == "cpu"


def test_reordered_names_map_by_name():
    saved = moved().state_dict()
    other = CompositeLoss(["base", "c", "a", "b"])
    other.load_state_dict(saved)
    torch.testing.assert_close(other.exponents.detach(), torch.tensor([0.3, 0.1, 0.2]), rtol=0, atol=1e-7)
    torch.testing.assert_close(other.as_dict(), {t: moved().as_dict()[t] for t in other.terms}, rtol=1e-6, atol=0)
    assert saved["exponents"].tolist() == pytest.approx([0.1, 0.2, 0.3])  # the caller's dict is left alone
    fixed = FixedLoss({"c": 1, "a": 1})
    fixed.load_state_dict(FixedLoss({"c": 3, "a": 1}).state_dict())
    assert fixed.as_dict() == {"c": 0.75, "a": 0.25}
    three = FixedLoss({"x": 1, "z": 1, "y": 1})
    three.load_state_dict(FixedLoss({"x": 1, "y": 2, "z": 5}).state_dict())
    assert three.as_dict() == {"x": 0.125, "z": 0.625, "y": 0.25}


# What is refused


def refused(criterion, saved, words):
    before = {k: v.clone() for k, v in criterion.state_dict().items()}
    for strict in (True, False):
        with pytest.raises(RuntimeError, match=words):
            criterion.load_state_dict(saved, strict=strict)
    assert all(torch.equal(v, before[k]) for k, v in criterion.state_dict().items())


def test_missing_and_extra_names_are_listed_both():
    refused(
        CompositeLoss(["base", "a", "d"]),
        moved().state_dict(),
        r"loss terms are 'base', 'a', 'b', 'c'; this criterion's are 'base', 'a', 'd'\. "
        r"Missing from the checkpoint: 'd'; not in this criterion: 'b', 'c'\.",
    )
    refused(CompositeLoss(["base", "a"]), moved().state_dict(), "checkpoint: none; not in this criterion: 'b', 'c'")


def test_another_base_is_refused():
    refused(
        CompositeLoss(["a", "base", "b", "c"]), moved().state_dict(), "base term is 'base'; this criterion's is 'a'"
    )


def test_another_kind_is_refused():
    fixed = FixedLoss(dict.fromkeys(TERMS, 1))
    refused(fixed, moved().state_dict(), "holds a CompositeLoss; this criterion is a FixedLoss")
    refused(CompositeLoss(TERMS), fixed.state_dict(), "holds a FixedLoss; this criterion is a CompositeLoss")


def test_a_newer_format_is_refused(monkeypatch):
    monkeypatch.setattr(checkpoint, "VERSION", 2)
    saved = moved().state_dict()
    monkeypatch.undo()
    refused(CompositeLoss(TERMS), saved, "saved in format 2; this trainonce reads up to 1. Update trainonce")


def as_bytes(text):
    return torch.tensor(list(text.encode()), dtype=torch.uint8)


@pytest.mark.parametrize(
    "damaged",
    [
        torch.zeros(5, dtype=torch.uint8),
        torch.empty(0, dtype=torch.uint8),
        moved().state_dict()["_extra_state"][:-3],
        moved().state_dict()["_extra_state"] | 128,
        torch.tensor([1.5]),
        torch.tensor(7),
        torch.tensor([300, -1]),
        "text",
        None,
        as_bytes("[]"),
        as_bytes("7"),
        as_bytes('{"version": 1}'),
        as_bytes('{"version": "x", "kind": "CompositeLoss", "terms": ["base"], "frozen": false}'),
        as_bytes('{"version": 1, "kind": "CompositeLoss", "terms": null, "frozen": false}'),
        as_bytes('{"version": 1, "kind": "CompositeLoss", "terms": [[1]], "frozen": false}'),
    ],
)
def test_damaged_bytes_are_refused(damaged):
    refused(CompositeLoss(TERMS), moved().state_dict() | {"_extra_state": damaged}, "the checkpoint is damaged")


def test_exponents_without_an_entry_per_term_are_refused():
    saved = moved().state_dict()
    with pytest.raises(RuntimeError, match="size mismatch for exponents"):
        CompositeLoss(TERMS).load_state_dict(saved | {"exponents": torch.zeros(7)})
    with pytest.raises(RuntimeError, match=r"Missing key.*exponents"):
        CompositeLoss(TERMS).load_state_dict({k: v for k, v in saved.items() if k != "exponents"})


# What is loaded with a word


def test_a_model_from_before_the_criterion_existed():
    old = nn.ModuleDict({"net": nn.Linear(2, 2)}).state_dict()
    model = nn.ModuleDict({"net": nn.Linear(2, 2), "criterion": CompositeLoss(TERMS, init=0.3)})
    with pytest.warns(health.NoSavedState, match="nothing for the CompositeLoss 'criterion'.*start from init"):
        model.load_state_dict(old)
    assert torch.equal(model["net"].weight, old["net.weight"])
    assert model["criterion"].exponents.tolist() == pytest.approx([math.log(0.3)] * 3)


def test_names_that_were_not_saved():
    saved = {"exponents": torch.tensor([0.1, 0.2, 0.3])}
    criterion = CompositeLoss(TERMS)
    with pytest.warns(health.NoSavedNames, match="taken in the order 'base', 'a', 'b', 'c'"):
        criterion.load_state_dict(saved)
    assert criterion.exponents.tolist() == saved["exponents"].tolist()


def test_an_optimizer_from_before_attach():
    model = nn.Linear(3, 1)
    old = torch.optim.AdamW(model.parameters(), lr=0.5)
    model(torch.ones(3)).sum().backward()
    old.step()
    optimizer, criterion = torch.optim.AdamW(model.parameters(), lr=0.1), CompositeLoss(TERMS)
    attachment = attach(optimizer, criterion, decay=2.0, lr=0.01)
    with pytest.warns(health.NoSavedGroup, match="exponents' starts fresh"):
        optimizer.load_state_dict(through_file(old.state_dict()))
    assert optimizer.param_groups[0]["lr"] == 0.5
    assert torch.equal(optimizer.state[model.weight]["exp_avg"], old.state[model.weight]["exp_avg"])
    assert (attachment.group["lr"], attachment.decay, attachment.group["params"]) == (0.01, 2.0, [criterion.exponents])
    assert criterion.exponents not in optimizer.state


# How it is loaded


@pytest.mark.parametrize("transport", [through_file, through_safetensors])
def test_frozen_round_trip(transport):
    criterion = moved()
    criterion.freeze()
    other = CompositeLoss(TERMS)
    other.load_state_dict(transport(criterion.state_dict()))
    assert other.frozen
    assert not other.exponents.requires_grad
    assert torch.equal(other.exponents, criterion.exponents)
    third = CompositeLoss(TERMS)
    third.load_state_dict(transport(moved().state_dict()))
    assert not third.frozen


def test_assign_before_attach_works_and_after_it_is_reported():
    criterion = CompositeLoss(TERMS)
    criterion.load_state_dict(moved().state_dict(), assign=True)
    assert isinstance(criterion.exponents, nn.Parameter)
    assert criterion.exponents.requires_grad
    w = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([w], lr=0.1)
    attach(optimizer, criterion, decay=1.0)

    def step():
        criterion([w.sum() + i for i in range(4)]).backward()
        optimizer.step()

    step()
    assert criterion.exponents.tolist() != pytest.approx([0.1, 0.2, 0.3])
    criterion.load_state_dict(moved().state_dict(), assign=True)
    with pytest.raises(RuntimeError, match=r"exponents were replaced after attach.*Attach afterwards"):
        step()


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("make", [moved, lambda: FixedLoss({"base": 1, "a": 2, "b": 4})])
def test_a_low_precision_checkpoint_loads_as_float32(assign, dtype, make):
    saved = {k: v.to(dtype) if v.is_floating_point() else v for k, v in make().state_dict().items()}
    criterion = make()
    criterion.load_state_dict(saved, assign=assign)
    assert {v.dtype for k, v in criterion.state_dict().items() if k != "_extra_state"} == {torch.float32}
    assert torch.equal(criterion.exponents, saved["exponents"].float())


def test_float64_is_kept():
    source, target = moved().double(), CompositeLoss(TERMS).double()
    with torch.no_grad():
        source.exponents.copy_(torch.tensor([1 / 3, 1 / 7, 1 / 9]))
    target.load_state_dict(through_safetensors(source.state_dict()))
    assert target.exponents.tolist() == source.exponents.tolist()


# Resuming


class Training:
    """Everything a checkpoint has to bring back, with the criterion inside the model or beside it."""

    def __init__(self, make_optimizer, inside):
        torch.manual_seed(5)
        self.net, self.criterion = nn.Linear(4, 2), CompositeLoss(["fit", "small", "smooth"], init=0.4)
        self.model = nn.ModuleDict({"net": self.net} | ({"criterion": self.criterion} if inside else {}))
        self.optimizer = make_optimizer(self.model.parameters())
        attach(self.optimizer, self.criterion, decay=1.5, lr=0.03)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=40)
        self.parts = {"model": self.model, "optimizer": self.optimizer, "scheduler": self.scheduler}
        if not inside:
            self.parts["criterion"] = self.criterion

    def run(self, steps):
        for t in steps:
            x = torch.randn(8, 4, generator=torch.Generator().manual_seed(t))
            y = self.net(x)
            self.optimizer.zero_grad()
            fit, small = ((y - x[:, :2]) ** 2).mean(), (self.net.weight**2).mean()
            self.criterion(fit=fit, small=small, smooth=(y[1:] - y[:-1]).abs().mean()).backward()
            self.optimizer.step()
            self.scheduler.step()

    def save(self):
        return {name: part.state_dict() for name, part in self.parts.items()}

    def load(self, saved):
        for name, part in self.parts.items():
            part.load_state_dict(saved[name])


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize(
    "make_optimizer",
    [
        lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
        lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
        lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True, amsgrad=True),
    ],
    ids=["AdamW", "SGD", "foreach"],
)
def test_a_resumed_run_is_the_uninterrupted_run_bit_for_bit(make_optimizer, inside):
    whole = Training(make_optimizer, inside)
    whole.run(range(40))
    first = Training(make_optimizer, inside)
    first.run(range(17))
    saved = through_file(first.save())
    second = Training(make_optimizer, inside)
    second.run(range(100, 103))  # whatever it did before the load must leave no trace
    second.load(saved)
    assert torch.equal(second.criterion.exponents, first.criterion.exponents)
    second.run(range(17, 40))
    assert torch.equal(second.criterion.exponents, whole.criterion.exponents)
    assert torch.equal(second.net.weight, whole.net.weight)
    assert torch.equal(second.net.bias, whole.net.bias)
    assert second.optimizer.param_groups[1]["lr"] == whole.optimizer.param_groups[1]["lr"]
    assert not torch.equal(whole.criterion.exponents, first.criterion.exponents)


def test_an_unfrozen_checkpoint_unfreezes():
    criterion = CompositeLoss(["a", "b"])
    saved = criterion.state_dict()
    criterion.freeze().load_state_dict(saved)
    assert not criterion.frozen
    assert criterion.exponents.requires_grad


def test_a_state_of_something_else():
    with pytest.raises(RuntimeError, match="holds nothing of a CompositeLoss"):
        CompositeLoss(["a", "b"]).load_state_dict({})
