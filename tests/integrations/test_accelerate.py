"""Accelerate's own traps: what is prepared, what is sharded, what is refused."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import accelerate
import pytest
import torch
from _problem import Case, Net, Result, criterion, data, falling, optimizer, plain, state_of, terms
from _tester import on_two_processes
from accelerate import DistributedType
from accelerate.state import AcceleratorState, PartialState
from torch import Tensor, nn
from torch.utils.data import DataLoader

import trainonce
from trainonce.integrations.accelerate import attach

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CASE = Case(accumulate=2, clip=0.05)


class Inside(nn.Module):
    """The problem with the criterion as a part of the model, called in its forward."""

    def __init__(self, case: Case = CASE) -> None:
        super().__init__()
        self.net, self.criterion = Net(case.dtype), criterion(case)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        features = torch.tanh(self.net.inner(x))
        return self.criterion(terms(self.net.outer(features), y), at=features)


def accelerator(**more: Any) -> accelerate.Accelerator:
    AcceleratorState._reset_state(reset_partial_state=True)
    return accelerate.Accelerator(cpu=True, **more)


def pretend(found: accelerate.Accelerator, kind: DistributedType, plugin: object = None) -> accelerate.Accelerator:
    """On CPUs Accelerate leaves such plugins aside when it starts, and only there: all after it is its own code."""
    found.state.distributed_type = PartialState._shared_state["distributed_type"] = kind
    found.state.fsdp_plugin = plugin
    return found


def fsdp(version: int = 2, ignored: Any = None, **more: Any) -> accelerate.Accelerator:
    options = {"fsdp_version": version, "cpu_ram_efficient_loading": False, "ignored_modules": ignored}
    plugin = accelerate.FullyShardedDataParallelPlugin(**options)
    return pretend(accelerator(**more), DistributedType.FSDP, plugin)


def batches(case: Case) -> DataLoader[Any]:
    return DataLoader(data(case), 8 // int(os.environ.get("WORLD_SIZE", "1")))


def train(found: accelerate.Accelerator, case: Case, forward: Any, made: Any, schedule: Any, loader: Any) -> None:
    for x, y in loader:
        with found.accumulate(forward):
            found.backward(forward(x, y))
            if found.sync_gradients:
                found.clip_grad_norm_(trainonce.model_parameters(forward), case.clip)
            made.step()
            schedule.step()
            made.zero_grad()


def whole(tensor: Tensor) -> list[float]:
    tensor = tensor.detach()
    return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).flatten().tolist()


def result(model: Inside) -> Result:
    return Result(model.criterion.coefficients().tolist(), [v for p in model.net.parameters() for v in whole(p)])


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    AcceleratorState._reset_state(reset_partial_state=True)


# One process


def train_inside(folder: Path, **more: Any) -> tuple[Inside, Any]:
    found, model = accelerator(gradient_accumulation_steps=CASE.accumulate, **more), Inside()
    made = optimizer(model)
    attach(found, made, model.criterion)
    prepared = found.prepare(model, made, falling(made, CASE), batches(CASE))
    train(found, CASE, *prepared)
    return model, made


def test_inside_the_model(tmp_path):
    model, made = train_inside(tmp_path)
    assert result(model).coefficients == pytest.approx(plain(CASE).coefficients, abs=1e-6)
    own = [g for g in made.param_groups if any(p is model.criterion.exponents for p in g["params"])]
    assert [(g["name"], g["weight_decay"]) for g in own] == [("loss_weights", 0.0)]


@pytest.mark.parametrize("prepared", [False, True])
def test_a_rule_that_trains_nothing_is_attached_in_any_order(tmp_path, prepared):
    """Also after a scheduler, and after prepare; it has no group, and a history is passed on."""
    case = Case("BalancedLoss", steps=12)
    found, model, chosen, history = accelerator(), Net(), criterion(case), trainonce.History()
    made = optimizer(model)
    forward, wrapped, schedule, loader = found.prepare(model, made, falling(made, case), batches(case))
    attach(found, wrapped if prepared else made, chosen, history=history)
    for x, y in loader:
        found.backward(chosen(terms(forward(x), y)))
        wrapped.step()
        schedule.step()
        wrapped.zero_grad()
    assert chosen.coefficients().tolist() == pytest.approx(plain(case).coefficients, rel=1e-5)
    assert len(made.param_groups) == 1
    assert len(history) == case.steps
    saved = state_of(chosen)
    found.save_state(str(tmp_path))
    chosen.reset_parameters()
    found.load_state(str(tmp_path))
    assert state_of(chosen) == saved


def test_bf16(tmp_path):
    model, _ = train_inside(tmp_path, mixed_precision="bf16")
    assert model.criterion.exponents.dtype == torch.float32
    assert result(model).coefficients == pytest.approx(plain(CASE).coefficients, abs=3e-2)


def test_clipping_leaves_the_exponents_out_whatever_it_is_given():
    found, model, other = accelerator(), Inside(), criterion(CASE)
    made = optimizer(model)
    for each in (model.criterion, other):
        attach(found, made, each)
    for parameter in [*model.parameters(), other.exponents]:
        parameter.grad = torch.ones_like(parameter)
    count = sum(p.numel() for p in model.net.parameters())
    norm = found.clip_grad_norm_([*model.parameters(), other.exponents], max_norm=0.1)
    assert norm.item() == pytest.approx(count**0.5)
    found.clip_grad_value_(model.parameters(), 1e-6)
    assert all(each.exponents.grad.tolist() == [1.0, 1.0] for each in (model.criterion, other))
    assert all(p.grad.abs().max() < 2e-6 for p in model.net.parameters())


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: pretend(accelerator(), DistributedType.DEEPSPEED), r"^DeepSpeed is not supported: .*FSDP2"),
        (lambda: pretend(accelerator(), DistributedType.MEGATRON_LM), r"^Megatron-LM is not supported: .*FSDP2"),
        (lambda: fsdp(version=1), r"^FSDP version 1 is not supported: .* Use fsdp_version=2\.$"),
    ],
    ids=["deepspeed", "megatron", "fsdp1"],
)
@pytest.mark.filterwarnings("ignore:FSDP1 is deprecated:FutureWarning")
def test_what_cannot_be_supported_is_refused(make, sentence):
    for rule in ("CompositeLoss", "BalancedLoss"):
        model = Inside(Case(rule))
        with pytest.raises(RuntimeError, match=sentence):
            attach(make(), optimizer(model), model.criterion)
    attach(make(), optimizer(model), criterion(Case("FixedLoss")))  # it follows no steps


def test_fsdp2_before_prepare_or_beside_the_model_is_refused():
    found, model = fsdp(), Inside()
    with pytest.raises(RuntimeError, match=r"^Under FSDP2 accelerator\.prepare makes new parameters"):
        attach(found, optimizer(model), model.criterion)
    made = accelerate.optimizer.AcceleratedOptimizer(optimizer(model.net), device_placement=False)
    with pytest.raises(RuntimeError, match=r"^Under FSDP2 Accelerate saves only what is part of the prepared model"):
        attach(found, made, model.criterion)


def test_fsdp2_unscales_once():
    found, model = fsdp(), Inside()
    found.native_amp, found.scaler = True, torch.amp.GradScaler("cpu", init_scale=8.0)
    found.state._mixed_precision = "fp16"
    made = accelerate.optimizer.AcceleratedOptimizer(optimizer(model), device_placement=False, scaler=found.scaler)
    found._optimizers, found._models = [made], [model]
    attach(found, made, model.criterion)
    found.scaler.scale(model(torch.ones(8, 4), torch.ones(8, 1))).backward()
    scaled = model.criterion.exponents.grad.clone()
    found.clip_grad_norm_(trainonce.model_parameters(model), 1.0)
    assert model.criterion.exponents.grad.tolist() == pytest.approx((scaled / 8).tolist())


# Two processes


def inside_fsdp2(folder: Path, case: Case) -> Result:
    """Trained, saved, trained on, taken back and trained on again; the exponents sharded, or kept whole."""
    model = Inside(Case("BalancedLoss") if folder.name == "fsdp2-balance" else CASE)
    ignored = [model.criterion] if folder.name == "fsdp2-whole" else None
    found = fsdp(ignored=ignored, gradient_accumulation_steps=CASE.accumulate)
    model, made, loader = found.prepare(model, optimizer(model), batches(CASE))
    attach(found, made, model.criterion)
    if folder.name != "fsdp2-balance":
        assert (type(model.criterion.exponents) is nn.Parameter) is (ignored is not None)
    schedule = found.prepare(falling(made, CASE))
    train(found, CASE, model, made, schedule, loader)
    once = result(model)
    found.save_state(str(folder / "state"))
    train(found, CASE, model, made, schedule, loader)
    twice = result(model)
    found.load_state(str(folder / "state"))
    assert result(model) == once
    train(found, CASE, model, made, schedule, loader)
    assert result(model) == twice != once
    return once


@pytest.mark.parametrize("name", ["fsdp2", "fsdp2-whole", "fsdp2-balance"])
def test_inside_the_model_on_two_processes(tmp_path, name):
    (tmp_path / name).mkdir()
    ranks = on_two_processes("test_accelerate.inside_fsdp2", tmp_path / name, CASE)
    assert ranks[0] == ranks[1]
    if name == "fsdp2-balance":
        assert ranks[0].coefficients[1] != ranks[0].coefficients[2]
    else:
        assert ranks[0].coefficients == pytest.approx(plain(CASE).coefficients, abs=1e-6)
        assert ranks[0].model == pytest.approx(plain(CASE).model, abs=1e-5)
