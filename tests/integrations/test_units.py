"""Gradient units in every trainer: the same code as for learned weights, without a decay."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import accelerate
import pytest
import torch
from _bert import ThreeTerms, bert, bert_trainer
from _lightning import columns
from _lightning_modules import Module, fit, half
from _problem import LR, TERMS, Case, Net, Result, criterion, data, falling, optimizer, plain, terms
from _tester import Adapter, assert_same, case_of, on_two_processes
from _transformers import Model, StopAfter
from _transformers_runs import make, trained
from accelerate.state import AcceleratorState
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.plugins.precision import MixedPrecision
from test_accelerate import fsdp
from test_adapters import MODULES
from test_transformers_processes import UnderFSDP2
from torch import Tensor
from torch.optim import lr_scheduler as schedules
from torch.utils.data import DataLoader

import trainonce
from trainonce.integrations.accelerate import attach
from trainonce.integrations.lightning import LearnedWeights

if TYPE_CHECKING:
    from pathlib import Path

CASE = Case(steps=12, units="gradient")


@pytest.fixture(params=MODULES)
def adapter(request: pytest.FixtureRequest) -> Adapter:
    found: Adapter = importlib.import_module(request.param).ADAPTER
    return found


def in_units(adapter: Adapter, **more: Any) -> Case:
    return case_of(adapter, **{"units": "gradient", "steps": 12} | more)


def assert_same_units(found: Result, expected: Result, adapter: Adapter) -> None:
    assert_same(found, expected, adapter)
    assert found.units == pytest.approx(expected.units, rel=100 * adapter.tolerance)


@pytest.mark.parametrize(
    "more",
    [{}, {"accumulate": 3}, {"clip": 0.05}, {"schedule": True}],
    ids=["plain", "accumulation", "clip", "schedule"],
)
def test_the_same_as_the_plain_loop(adapter: Adapter, more: dict[str, Any], tmp_path: Path) -> None:
    case = in_units(adapter, **more)
    expected = plain(case)
    assert max(expected.units) / min(expected.units) > 1.5
    assert_same_units(adapter.train(tmp_path, case), expected, adapter)


def test_a_resumed_run_is_the_same_bit_for_bit(adapter: Adapter, tmp_path: Path) -> None:
    """In the middle of the rise of the terms, and before the next measurement."""
    case = in_units(adapter, steps=30)
    (tmp_path / "whole").mkdir()
    whole = adapter.train(tmp_path / "whole", case)
    for after in (7, 26):
        (folder := tmp_path / str(after)).mkdir()
        resumed = adapter.interrupted(folder, case, after)
        assert resumed.model == whole.model
        assert resumed.units == whole.units


def test_units_are_logged(adapter: Adapter, tmp_path: Path) -> None:
    found = adapter.train(tmp_path, in_units(adapter))
    assert {"total", *(f"unit/{t}" for t in TERMS), *(f"weight/{t}" for t in TERMS)} <= set(found.logged)
    assert [found.logged[f"unit/{t}"][-1] for t in TERMS] == pytest.approx(found.units, rel=1e-5)


def test_two_processes_agree(adapter: Adapter, tmp_path: Path) -> None:
    """Not with one process: a rank's gradients have the noise of its own samples."""
    case = in_units(adapter, accumulate=2)
    ranks = on_two_processes(adapter, tmp_path, case)
    assert ranks[0].units == ranks[1].units
    assert ranks[0].model == ranks[1].model
    assert ranks[0].units == pytest.approx(plain(case).units, rel=0.5)


# Lightning


class InUnits(Module):
    def make(self):
        self.criterion = trainonce.CompositeLoss(["fit", "small"], units="gradient")


def units_of(module: Module) -> list[float]:
    found: list[float] = module.chosen().units.tolist()
    return found


@pytest.mark.parametrize(
    "options",
    [
        {"precision": "bf16-mixed"},
        {"plugins": MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=1024.0))},
        {"precision": "bf16-true"},
    ],
    ids=["bf16-mixed", "16-mixed", "bf16-true"],
)
def test_lightning_in_narrow_precision(options: dict[str, Any]) -> None:
    module, usual = InUnits(), InUnits()
    fit(module, LearnedWeights(), **options)
    fit(usual, LearnedWeights())
    assert module.criterion.meter.norms.dtype == torch.float32
    assert units_of(module) == pytest.approx(units_of(usual), rel=0.05)
    assert units_of(usual)[1] != 1


def test_lightning_before_a_scheduler_is_built() -> None:
    module = InUnits(lambda made: ([made], [schedules.LambdaLR(made, [half, half])]))  # one for each group
    trainer = fit(module, LearnedWeights())
    assert [group.get("name") for group in trainer.optimizers[0].param_groups] == [None, "loss_weights"]
    assert module.criterion.attachment is None  # given back after the fit


def test_lightning_leaves_a_module_that_attaches_alone() -> None:
    class Attaches(InUnits):
        def configure_optimizers(self):
            made = super().configure_optimizers()
            self.own = trainonce.attach(made, self.criterion)
            return [made], [schedules.LambdaLR(made, half)]

    module = Attaches()
    fit(module, LearnedWeights())
    assert module.own.steps == 6
    assert units_of(module)[1] != 1


def test_lightning_with_held_out_data(tmp_path: Path) -> None:
    class HoldsOut(InUnits):
        def training_step(self, batch, index):
            self.criterion.held_out(lambda: self.losses([batch[0].flip(0) + 1])["fit"])
            return super().training_step(batch, index)

    module = HoldsOut()
    fit(module, LearnedWeights(), logger=CSVLogger(tmp_path), log_every_n_steps=1)
    assert module.criterion.exponents.item() != 0
    assert columns(tmp_path)["exponent/small"][-1] == pytest.approx(module.criterion.exponents.item(), rel=1e-5)


# Hugging Face


def test_the_trainer_in_bf16(tmp_path: Path) -> None:
    narrow = trained(tmp_path / "bf16", CASE, bf16=True, decay=None)
    usual = trained(tmp_path / "usual", CASE, decay=None)
    units = [trainer.model.criterion.units.tolist() for trainer in (narrow, usual)]
    assert units[0] == pytest.approx(units[1], rel=0.05)


def test_the_trainer_twice_and_with_an_attachment_of_the_users(tmp_path: Path) -> None:
    trainer = make(tmp_path, CASE, decay=None)
    trainer.train()
    trainer.train()
    assert trainer.model.criterion.attachment is None
    model = trainer.model
    made = optimizer(model)
    own = trainonce.attach(made, model.criterion)
    make(tmp_path, CASE, model=model, decay=None, optimizers=(made, None)).train()
    assert model.criterion.attachment is own
    assert own.steps == CASE.steps


class InGradientUnits(ThreeTerms):
    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.criterion = trainonce.CompositeLoss(["mlm", "classify", "contrast"], units="gradient")


def bert_in_units(folder: Path, **more: Any) -> Any:
    torch.manual_seed(0)
    return bert_trainer(folder, model=InGradientUnits(bert().config), decay=None, **more)


def test_bert_resumes_bit_for_bit(tmp_path: Path) -> None:
    whole = bert_in_units(tmp_path / "whole", steps=20)
    whole.train()
    bert_in_units(tmp_path / "parts", steps=20, callbacks=[StopAfter(9)]).train()
    resumed = bert_in_units(tmp_path / "parts", steps=20)
    resumed.train(resume_from_checkpoint=True)
    assert torch.equal(resumed.model.criterion.units, whole.model.criterion.units)
    assert torch.equal(resumed.model.words.weight, whole.model.words.weight)
    rows = [row for row in whole.state.log_history if "loss/mlm" in row]
    assert all(set(row) >= {"unit/classify", "total", "weight/contrast"} for row in rows)


def state_of(found: trainonce.CompositeLoss) -> dict[str, list[float]]:
    parts = dict(found.named_buffers()) | {"exponents": found.exponents.detach()}
    return {name: str(value.tolist()) for name, value in parts.items()} | {
        "steps": found.meter.get_extra_state().tolist()
    }


def test_from_pretrained_takes_units_from_the_file(tmp_path: Path) -> None:
    trainer = bert_in_units(tmp_path, steps=6)
    trainer.train()
    trainer.save_model(str(tmp_path / "own"))
    loaded = InGradientUnits.from_pretrained(tmp_path / "own")
    assert state_of(loaded.criterion) == state_of(trainer.model.criterion)


def test_from_pretrained_without_units_in_the_file_starts_at_the_start(tmp_path: Path) -> None:
    import transformers

    transformers.BertForMaskedLM(bert().config).save_pretrained(tmp_path)
    loaded = InGradientUnits.from_pretrained(tmp_path)
    assert state_of(loaded.criterion) == state_of(InGradientUnits(bert().config).criterion)
    assert not loaded.criterion.exponents.requires_grad


# Accelerate


def test_accelerate_in_bf16() -> None:
    units = []
    for precision in ("bf16", "no"):
        AcceleratorState._reset_state(reset_partial_state=True)
        found = accelerate.Accelerator(cpu=True, mixed_precision=precision)
        model, chosen = Net(), criterion(CASE)
        made = optimizer(model)
        attach(found, made, chosen)
        forward, made, loader, schedule = found.prepare(model, made, DataLoader(data(CASE), 8), falling(made, CASE))
        for x, y in loader:
            found.backward(chosen(terms(forward(x), y)))
            made.step()
            schedule.step()
            made.zero_grad()
        units.append(chosen.units.tolist())
    AcceleratorState._reset_state(reset_partial_state=True)
    assert units[0] == pytest.approx(units[1], rel=0.05)


# Two processes under FSDP2: the model names its features


class NamesItsFeatures(Model):
    def forward(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        features = torch.tanh(self.net.inner(x))
        self.criterion.share(features)
        return {"loss": self.criterion(terms(self.net.outer(features), y))}


def run_trainer(folder: Path, kind: Any, **more: Any) -> Any:
    given = {"model": NamesItsFeatures(CASE), "kind": kind, "learning_rate": LR, "decay": None}
    return make(folder, CASE, **given | more)


def train_under_fsdp2(folder: Path) -> Result:
    """The Trainer: a whole run, and one that is stopped, started anew from the checkpoint and finished."""
    whole = run_trainer(folder / "whole", UnderFSDP2)
    whole.train()
    run_trainer(folder, UnderFSDP2, callbacks=[StopAfter(5)]).train()
    trainer = run_trainer(folder, UnderFSDP2)
    trainer.train(resume_from_checkpoint=str(folder / "checkpoint-5"))
    assert trainer.model.criterion.units.tolist() == whole.model.criterion.units.tolist()
    return sharded_result(trainer.model)


def accelerate_under_fsdp2(folder: Path) -> Result:
    found, model = fsdp(), NamesItsFeatures(CASE)
    model, made, loader = found.prepare(model, optimizer(model), DataLoader(data(CASE), 4))
    attach(found, made, model.criterion)
    for x, y in loader:
        found.backward(model(x, y)["loss"])
        made.step()
        made.zero_grad()
    return sharded_result(model)


def sharded_result(model: Any) -> Result:
    flat = [v for p in model.net.parameters() for v in p.full_tensor().flatten().tolist()]
    return Result([], flat, units=model.criterion.units.tolist())


class Variants(Adapter):
    """Trains what the folder is named after."""

    module = "test_units"

    def train(self, folder: Path, case: Case) -> Result:
        return {"trainer": train_under_fsdp2, "accelerate": accelerate_under_fsdp2}[folder.name](folder)


ADAPTER = Variants()


@pytest.mark.parametrize("name", ["trainer", "accelerate"])
def test_fsdp2_on_two_processes(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    ranks = on_two_processes(ADAPTER, tmp_path / name, CASE)
    assert ranks[0] == ranks[1]
    assert ranks[0].units[1] != 1
