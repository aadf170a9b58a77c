"""The Trainer on two processes, with the flags it gives DDP, and under FSDP2."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from _problem import LR, Case, Result, criterion, data, optimizer, plain, result, terms
from _tester import Adapter, on_two_processes
from _transformers import Model, StopAfter
from accelerate import DistributedType, FullyShardedDataParallelPlugin
from accelerate.state import PartialState
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from trainonce.integrations.transformers import Trainer

if TYPE_CHECKING:
    from pathlib import Path
from _bert import bert_trainer
from _transformers_runs import CASE, SHARDED, exponents, make, trained


class InComputeLoss(Trainer):
    """The criterion is called outside the wrapped module's forward."""

    def compute_loss(self, model: nn.Module, inputs: dict[str, Tensor], *_: Any, **__: Any) -> Tensor:
        inner = self.accelerator.unwrap_model(model)
        return inner.criterion(terms(model(inputs["x"]), inputs["y"]))


class OnlyNet(Model):
    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return self.net(x)


def train_bert(folder: Path) -> Result:
    accumulate = 1 if torch.distributed.is_torchelastic_launched() else 2
    trainer = bert_trainer(folder, per_device_train_batch_size=4, gradient_accumulation_steps=accumulate)
    trainer.train()
    return result(trainer.model, trainer.model.criterion)


def train_in_compute_loss(folder: Path) -> Result:
    model = OnlyNet(CASE)
    trained(folder, model=model, kind=InComputeLoss, optimizers=(optimizer(model), None))
    return result(model.net, model.criterion)


def evaluate(folder: Path) -> Result:
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


def train_under_fsdp2(folder: Path) -> Result:
    """Stopped, started anew from the checkpoint and finished."""
    make(folder, SHARDED, kind=UnderFSDP2, learning_rate=LR, callbacks=[StopAfter(2)]).train()
    trainer = make(folder, SHARDED, kind=UnderFSDP2, learning_rate=LR)
    trainer.train(resume_from_checkpoint=str(folder / "checkpoint-2"))
    return Result(trainer.model.criterion.exponents.full_tensor().tolist(), [])


class Variants(Adapter):
    """Trains what the folder is named after."""

    module = "test_transformers_processes"

    def train(self, folder: Path, case: Case) -> Result:
        named = {
            "bert": train_bert,
            "compute_loss": train_in_compute_loss,
            "fsdp2": train_under_fsdp2,
            "terms": evaluate,
        }
        return named[folder.name](folder)


ADAPTER = Variants()


def on_two(folder: Path, name: str) -> list[Result]:
    (folder / name).mkdir()
    return on_two_processes(ADAPTER, folder / name, CASE)


def test_bert_on_two_processes_is_one_that_accumulates(tmp_path):
    ranks = on_two(tmp_path, "bert")
    alone = train_bert(tmp_path)
    assert ranks[0] == ranks[1]
    assert ranks[0].exponents == pytest.approx(alone.exponents, abs=1e-5)
    assert ranks[0].model == pytest.approx(alone.model, abs=1e-3)


def test_called_in_compute_loss_on_two_processes(tmp_path):
    ranks = on_two(tmp_path, "compute_loss")
    assert ranks[0] == ranks[1]
    assert ranks[0].exponents == pytest.approx(plain(CASE).exponents, abs=1e-6)


def test_terms_of_an_evaluation_are_those_of_all_processes(tmp_path):
    ranks = on_two(tmp_path, "terms")
    assert ranks[0] == ranks[1]
    for name, (alone, _) in evaluate(tmp_path).logged.items():
        assert ranks[0].logged[name][0] == pytest.approx(alone, rel=1e-5)
    total, *each = (torch.tensor(values) for _, values in sorted(ranks[0].logged.items()))
    weights = criterion(CASE).as_dict()
    terms = [weights[name.rpartition("/")[2]] for name in sorted(ranks[0].logged)[1:]]
    torch.testing.assert_close(total, sum(w * value for w, value in zip(terms, each, strict=True)))


def test_fsdp2_on_two_processes(tmp_path):
    ranks = on_two(tmp_path, "fsdp2")
    assert ranks[0] == ranks[1]
    alone = trained(tmp_path, SHARDED, learning_rate=LR)
    assert ranks[0].exponents == pytest.approx(exponents(alone), abs=1e-6)
