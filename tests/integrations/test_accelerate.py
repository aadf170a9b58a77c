"""Accelerate's own traps: what is prepared, what is sharded, what is refused."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import accelerate
import pytest
import torch
from _problem import DECAY, EXPONENTS_LR, Case, Net, Result, criterion, data, falling, optimizer, plain, terms
from _tester import Adapter, on_two_processes
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
        return self.criterion(terms(self.net(x), y))


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
    return Result(whole(model.criterion.exponents), [v for p in model.net.parameters() for v in whole(p)])


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    AcceleratorState._reset_state(reset_partial_state=True)


# One process


def test_inside_the_model(tmp_path):
    found, model = accelerator(gradient_accumulation_steps=CASE.accumulate), Inside()
    made = optimizer(model)
    attach(found, made, model.criterion, decay=DECAY, lr=EXPONENTS_LR)
    prepared = found.prepare(model, made, falling(made, CASE), batches(CASE))
    train(found, CASE, *prepared)
    assert result(model).exponents == pytest.approx(plain(CASE).exponents, abs=1e-6)
    own = [g for g in prepared[1].param_groups if any(p is model.criterion.exponents for p in g["params"])]
    assert [(g["name"], g["weight_decay"]) for g in own] == [("loss_weights", 0.0)]


def test_what_is_saved_is_loaded(tmp_path):
    found, model, chosen = accelerator(), Net(), criterion(CASE)
    made = optimizer(model)
    attach(found, made, chosen, decay=DECAY, lr=EXPONENTS_LR)
    model, made = found.prepare(model, made)
    found.backward(chosen(terms(model(torch.ones(2, 4)), torch.ones(2, 1))))
    made.step()
    saved = chosen.exponents.tolist()
    found.save_state(str(tmp_path))
    chosen.reset_parameters()
    found.load_state(str(tmp_path))
    assert chosen.exponents.tolist() == saved
    assert saved != criterion(CASE).exponents.tolist()


def test_bf16():
    found, model = accelerator(mixed_precision="bf16", gradient_accumulation_steps=CASE.accumulate), Inside()
    made = optimizer(model)
    attach(found, made, model.criterion, decay=DECAY, lr=EXPONENTS_LR)
    train(found, CASE, *found.prepare(model, made, falling(made, CASE), batches(CASE)))
    assert model.criterion.exponents.dtype == torch.float32
    assert result(model).exponents == pytest.approx(plain(CASE).exponents, abs=3e-2)


def test_clipping_leaves_the_exponents_out_whatever_it_is_given():
    found, model, other = accelerator(), Inside(), criterion(CASE)
    made = optimizer(model)
    for each in (model.criterion, other):
        attach(found, made, each, decay=DECAY)
    for parameter in [*model.parameters(), other.exponents]:
        parameter.grad = torch.ones_like(parameter)
    count = sum(p.numel() for p in model.net.parameters())
    norm = found.clip_grad_norm_([*model.parameters(), other.exponents], max_norm=0.1)
    assert norm.item() == pytest.approx(count**0.5)
    found.clip_grad_value_(model.parameters(), 1e-6)
    assert all(each.exponents.grad.tolist() == [1.0, 1.0] for each in (model.criterion, other))
    assert all(p.grad.abs().max() < 2e-6 for p in model.net.parameters())


def test_a_prepared_optimizer_is_refused():
    found, model = accelerator(), Inside()
    _, made = found.prepare(model, optimizer(model))
    with pytest.raises(TypeError, match=r"wrapper AcceleratedOptimizer around AdamW\. Call trainonce\.attach before"):
        attach(found, made, model.criterion, decay=DECAY)


def test_a_scheduler_from_before_is_refused():
    found, model = accelerator(), Inside()
    made = optimizer(model)
    falling(made, CASE)
    with pytest.raises(RuntimeError, match=r"scheduler was built on this optimizer before attach"):
        attach(found, made, model.criterion, decay=DECAY)


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
    model = Inside()
    with pytest.raises(RuntimeError, match=sentence):
        attach(make(), optimizer(model), model.criterion, decay=DECAY)


def test_fsdp2_before_prepare_is_refused():
    model = Inside()
    with pytest.raises(RuntimeError, match=r"^Under FSDP2 accelerator\.prepare makes new parameters"):
        attach(fsdp(), optimizer(model), model.criterion, decay=DECAY)


def test_fsdp2_beside_the_model_is_refused():
    found, model = fsdp(), Inside()
    made = accelerate.optimizer.AcceleratedOptimizer(optimizer(model.net), device_placement=False)
    with pytest.raises(RuntimeError, match=r"^Under FSDP2 Accelerate saves only what is part of the prepared model"):
        attach(found, made, model.criterion, decay=DECAY)


def test_fsdp2_unscales_once():
    found, model = fsdp(), Inside()
    found.native_amp, found.scaler = True, torch.amp.GradScaler("cpu", init_scale=8.0)
    found.state._mixed_precision = "fp16"
    made = accelerate.optimizer.AcceleratedOptimizer(optimizer(model), device_placement=False, scaler=found.scaler)
    found._optimizers, found._models = [made], [model]
    attach(found, made, model.criterion, decay=DECAY)
    found.scaler.scale(model(torch.ones(8, 4), torch.ones(8, 1))).backward()
    scaled = model.criterion.exponents.grad.clone()
    found.clip_grad_norm_(trainonce.model_parameters(model), 1.0)
    assert model.criterion.exponents.grad.tolist() == pytest.approx((scaled / 8).tolist())


# Two processes


def inside_ddp(folder: Path) -> Result:
    found, model = accelerator(gradient_accumulation_steps=CASE.accumulate), Inside()
    made = optimizer(model)
    attach(found, made, model.criterion, decay=DECAY, lr=EXPONENTS_LR)
    train(found, CASE, *found.prepare(model, made, falling(made, CASE), batches(CASE)))
    return result(model)


def inside_fsdp2(folder: Path) -> Result:
    """Trained, saved, trained on, taken back and trained on again; the exponents sharded, or kept whole."""
    model = Inside()
    ignored = [model.criterion] if folder.name == "fsdp2-whole" else None
    found = fsdp(ignored=ignored, gradient_accumulation_steps=CASE.accumulate)
    model, made, loader = found.prepare(model, optimizer(model), batches(CASE))
    attach(found, made, model.criterion, decay=DECAY, lr=EXPONENTS_LR)
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


class Variants(Adapter):
    """Trains what the folder is named after."""

    module = "test_accelerate"

    def train(self, folder: Path, case: Case) -> Result:
        return {"ddp": inside_ddp, "fsdp2": inside_fsdp2, "fsdp2-whole": inside_fsdp2}[folder.name](folder)


ADAPTER = Variants()


@pytest.mark.parametrize("name", ["ddp", "fsdp2", "fsdp2-whole"])
def test_inside_the_model_on_two_processes(tmp_path, name):
    (tmp_path / name).mkdir()
    ranks = on_two_processes(ADAPTER, tmp_path / name, CASE)
    assert ranks[0] == ranks[1]
    assert ranks[0].exponents == pytest.approx(plain(CASE).exponents, abs=1e-6)
    assert ranks[0].model == pytest.approx(plain(CASE).model, abs=1e-5)
