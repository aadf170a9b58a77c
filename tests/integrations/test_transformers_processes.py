"""The Trainer on two processes, with the flags it gives DDP, and under FSDP2."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest
import torch
from _problem import LR, MOVING, TERMS, Case, Result, criterion, data, optimizer, plain, result, terms
from _tester import on_two_processes
from _transformers import CASE, SHARDED, Model, StopAfter, make, trained
from accelerate import DistributedType, FullyShardedDataParallelPlugin
from accelerate.state import PartialState
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from trainonce.integrations.transformers import Trainer

if TYPE_CHECKING:
    from pathlib import Path


class InComputeLoss(Trainer):
    """The criterion is called outside the wrapped module's forward."""

    def compute_loss(self, model: nn.Module, inputs: dict[str, Tensor], *_: Any, **__: Any) -> Tensor:
        inner = self.accelerator.unwrap_model(model)
        return inner.criterion(terms(model(inputs["x"]), inputs["y"]))


class OnlyNet(Model):
    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return self.net(x)


def train_in_compute_loss(folder: Path, case: Case) -> Result:
    model = OnlyNet(CASE)
    trained(folder, model=model, kind=InComputeLoss, optimizers=(optimizer(model), None))
    return result(model.net, model.criterion)


def evaluate(folder: Path, case: Case = CASE) -> Result:
    """On whole batches, and on a number of samples that two processes cannot share."""
    trainer = make(folder, label_names=["y"])
    whole, uneven = (trainer.evaluate(TensorDataset(*data(CASE)[:count])) for count in (32, 21))
    return Result([], [], {name: [whole[name], uneven[name]] for name in whole if "loss" in name})


class UnderFSDP2(Trainer):
    """On CPUs Accelerate leaves the plugin aside when it starts, and only there: all after it is its own code."""

    def create_accelerator_and_postprocess(self) -> None:
        super().create_accelerator_and_postprocess()
        state = self.accelerator.state
        state.distributed_type = PartialState._shared_state["distributed_type"] = DistributedType.FSDP
        state.fsdp_plugin = FullyShardedDataParallelPlugin(fsdp_version=2, cpu_ram_efficient_loading=False)
        self.is_fsdp_enabled = True


class NamesItsFeatures(Model):
    def forward(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        features = torch.tanh(self.net.inner(x))
        return {"loss": self.criterion(terms(self.net.outer(features), y), at=features)}


def train_under_fsdp2(folder: Path, case: Case) -> Result:
    """Stopped, started anew from the checkpoint and finished; and in one go."""

    def fresh(at: Path, **more: Any) -> Any:
        return make(at, case, kind=UnderFSDP2, model=NamesItsFeatures(case), learning_rate=LR, **more)

    whole = fresh(folder / "whole")
    whole.train()
    fresh(folder, callbacks=[StopAfter(2)]).train()
    trainer = fresh(folder)
    trainer.train(resume_from_checkpoint=str(folder / "checkpoint-2"))
    found = trainer.model.criterion.coefficients().tolist()
    assert found == whole.model.criterion.coefficients().tolist()
    return Result(found, [v for p in trainer.model.net.parameters() for v in p.full_tensor().flatten().tolist()])


def test_called_in_compute_loss_on_two_processes(tmp_path):
    ranks = on_two_processes("test_transformers_processes.train_in_compute_loss", tmp_path, CASE)
    assert ranks[0] == ranks[1]
    assert ranks[0].coefficients == pytest.approx(plain(CASE).coefficients, abs=1e-6)


def test_terms_of_an_evaluation_are_those_of_all_processes(tmp_path):
    ranks = on_two_processes("test_transformers_processes.evaluate", tmp_path, CASE)
    assert ranks[0] == ranks[1]
    for name, (alone, _) in evaluate(tmp_path).logged.items():
        assert ranks[0].logged[name][0] == pytest.approx(alone, rel=1e-5)
    total, *each = (torch.tensor(values) for _, values in sorted(ranks[0].logged.items()))
    weights = dict(zip(TERMS, criterion().coefficients().tolist(), strict=True))
    terms = [weights[name.rpartition("/")[2]] for name in sorted(ranks[0].logged)[1:]]
    torch.testing.assert_close(total, sum(w * value for w, value in zip(terms, each, strict=True)))


@pytest.mark.parametrize("rule", MOVING)
def test_fsdp2_on_two_processes(tmp_path, rule):
    ranks = on_two_processes(
        "test_transformers_processes.train_under_fsdp2", tmp_path, dataclasses.replace(SHARDED, rule=rule)
    )
    assert ranks[0] == ranks[1]
    assert ranks[0].coefficients[1] != ranks[0].coefficients[2]
    if rule == "CompositeLoss":
        alone = trained(tmp_path, SHARDED, learning_rate=LR).model.criterion
        assert ranks[0].coefficients == pytest.approx(alone.coefficients().tolist(), abs=1e-6)
