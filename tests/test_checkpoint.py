"""Checkpoints: names travel with what is declared, and every mismatch is one sentence."""

import io
import json
import math

import pytest
import safetensors.torch
import torch
from torch import nn

from trainonce import BalancedLoss, CompositeLoss, FixedLoss, declared, health

TERMS = ["base", "a", "b", "c"]


def moved(terms=TERMS):
    """A criterion whose exponents are all different: 0.1, 0.2, ..."""
    criterion = CompositeLoss(terms)
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


KINDS = {
    "paper": moved,
    "fixed": lambda: FixedLoss({"base": 1, "a": 2, "b": 0, "c": 5}),
    "balance": lambda: BalancedLoss({"base": 1, "a": 2}),
}


@pytest.mark.parametrize("transport", [through_file, through_safetensors])
@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("inside", [False, True])
def test_safetensors_and_weights_only_carry_all_of_it(transport, make, inside):
    def wrap(criterion):
        return nn.ModuleDict({"net": nn.Linear(2, 2), "criterion": criterion}) if inside else criterion

    source, target = wrap(make()), wrap(make())
    for tensor in (*target.parameters(), *target.buffers()):
        tensor.detach().fill_(-9.0)
    saved = transport(source.state_dict())
    assert all(isinstance(value, torch.Tensor) for value in saved.values())
    missing, unexpected = target.load_state_dict(saved)
    assert not missing
    assert not unexpected
    for name, value in source.state_dict().items():
        torch.testing.assert_close(target.state_dict()[name], value, rtol=0, atol=0, equal_nan=True)


def test_the_description_is_readable_json_on_the_cpu_and_has_one_width():
    """A sharded checkpoint is read into a tensor of the same length."""
    with torch.device("meta"):
        saved = BalancedLoss(["base", "Größe"]).get_extra_state()
    assert (saved.dtype, saved.device.type) == (torch.uint8, "cpu")
    found = json.loads(bytes(saved.tolist()))
    counts = found.pop("counts")
    assert found == {"version": 2, "rule": "BalancedLoss", "terms": ["base", "Größe"], "frozen": 0}
    assert {name: counts[name] for name in ("step", "since")} == {"step": f"{0:+020d}", "since": [f"{-1:+020d}"]}
    later = BalancedLoss(["base", "Größe"]).freeze()
    later.step = 123456
    assert len(later.get_extra_state()) == len(saved)


# What is refused


def refused(criterion, saved, words):
    before = {k: v.clone() for k, v in criterion.state_dict().items()}
    for strict in (True, False):
        with pytest.raises(RuntimeError, match=words):
            criterion.load_state_dict(saved, strict=strict)
    assert all(torch.equal(v.nan_to_num(7), before[k].nan_to_num(7)) for k, v in criterion.state_dict().items())


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: CompositeLoss(["base", "a", "d"]),
            r"this criterion's are 'base', 'a', 'd'\. Missing from the checkpoint: 'd'; not in this .*: 'b', 'c'",
        ),
        (lambda: CompositeLoss(["base", "a"]), "checkpoint: none; not in this criterion: 'b', 'c'"),
        (lambda: CompositeLoss(["a", "base", "b", "c"]), "base term is 'base'; this criterion's is 'a'"),
        (lambda: FixedLoss(dict.fromkeys(TERMS, 1)), "holds a CompositeLoss; this criterion is a FixedLoss"),
        (lambda: BalancedLoss(TERMS), "holds a CompositeLoss; this criterion is a BalancedLoss"),
    ],
)
def test_another_criterions_state_is_refused(make, words):
    refused(make(), moved().state_dict(), words)


def test_a_newer_format_is_refused(monkeypatch):
    monkeypatch.setattr(declared, "VERSION", 3)
    saved = moved().state_dict()
    monkeypatch.undo()
    refused(CompositeLoss(TERMS), saved, "saved in format 3; this trainonce reads up to 2. Update trainonce")


def as_bytes(text):
    return torch.tensor(list(text.encode()), dtype=torch.uint8)


@pytest.mark.parametrize(
    "damaged",
    [
        torch.empty(0, dtype=torch.uint8),
        moved().state_dict()["_extra_state"][:-3],
        moved().state_dict()["_extra_state"] | 128,
        torch.tensor([1.5]),
        torch.tensor(7),
        torch.tensor([300, -1]),
        "text",
        None,
        as_bytes("[]"),
        as_bytes('{"version": 1}'),
        as_bytes('{"version": 2, "rule": "CompositeLoss", "terms": null, "frozen": 0, "counts": {}}'),
        as_bytes('{"version": 2, "rule": "CompositeLoss", "terms": ["a"], "frozen": 0, "counts": 3}'),
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
    with pytest.warns(health.NoSavedState, match="nothing for the CompositeLoss 'criterion'.*begins at its start"):
        model.load_state_dict(old)
    assert torch.equal(model["net"].weight, old["net.weight"])
    assert model["criterion"].exponents.tolist() == pytest.approx([math.log(0.3)] * 3)


def test_names_that_were_not_saved():
    saved = {"exponents": torch.tensor([0.1, 0.2, 0.3])}
    criterion = CompositeLoss(TERMS, lr="model")
    with pytest.warns(health.NoSavedNames, match="taken in the order 'base', 'a', 'b', 'c'"):
        criterion.load_state_dict(saved)
    assert criterion.exponents.tolist() == saved["exponents"].tolist()


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_low_precision_checkpoint_loads_as_float32(assign, dtype):
    saved = {k: v.to(dtype) if v.is_floating_point() else v for k, v in moved().state_dict().items()}
    criterion = moved()
    criterion.load_state_dict(saved, assign=assign)
    assert {v.dtype for k, v in criterion.state_dict().items() if k != "_extra_state"} == {torch.float32}
    assert torch.equal(criterion.exponents, saved["exponents"].float())


def test_an_unfrozen_checkpoint_unfreezes():
    criterion = CompositeLoss(["a", "b"])
    saved = criterion.state_dict()
    criterion.freeze().load_state_dict(saved)
    assert not criterion.frozen
    assert criterion.exponents.requires_grad


def test_a_state_of_something_else():
    with pytest.raises(RuntimeError, match="holds nothing of a CompositeLoss"):
        CompositeLoss(["a", "b"]).load_state_dict({})
