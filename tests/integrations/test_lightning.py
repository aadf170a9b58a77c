"""The Lightning callback: each trap of a module that trains with learned weights."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import lightning as L
import pytest
import torch
from _lightning import columns, quiet
from _lightning_modules import (
    RETURNED,
    STEPS,
    TERMS,
    InAList,
    Module,
    batches,
    fit,
    half,
    start,
    trainer_of,
)
from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.plugins import MixedPrecision
from lightning.pytorch.strategies import DeepSpeedStrategy, FSDPStrategy
from torch.optim import lr_scheduler as schedules

import trainonce
from trainonce.integrations import lightning as integration
from trainonce.integrations.lightning import LearnedWeights

# Precision


def mixed_on_the_cpu():
    return {"plugins": MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=1024.0))}


@pytest.mark.parametrize("kind", [Module, InAList])
@pytest.mark.parametrize(
    "options",
    [{"precision": "bf16-mixed"}, {"precision": "bf16-true"}, {"precision": "16-true"}, mixed_on_the_cpu()],
    ids=["bf16-mixed", "bf16-true", "16-true", "16-mixed"],
)
def test_the_exponents_stay_precise(options, kind):
    module, usual = kind(), Module()
    fit(module, LearnedWeights(1.0), **options)
    fit(usual)
    assert module.chosen().exponents.dtype == torch.float32
    torch.testing.assert_close(module.chosen().exponents, usual.criterion.exponents, rtol=0.01, atol=0.01)
    assert not torch.equal(module.chosen().exponents, start())


def test_a_step_that_the_scaler_skips_leaves_the_exponents():
    module = Module()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40)  # overflows float16 at once
    fit(module, LearnedWeights(1.0), max_steps=3, plugins=MixedPrecision("16-mixed", "cpu", scaler))
    assert torch.equal(module.criterion.exponents, start())


# Logs


def test_all_values_are_logged_at_the_trainers_steps(tmp_path):
    class Logs(Module):
        def training_step(self, batch, index):
            loss = super().training_step(batch, index)
            self.log("users_own", loss)
            return loss

    fit(Logs(), logger=CSVLogger(tmp_path), log_every_n_steps=3)
    found = columns(tmp_path)
    names = {"loss/fit", "loss/small", "weight/fit", "weight/small", "exponent/small", "reference"}
    assert set(found) == names | {"users_own", "step", "epoch"}
    assert all(len(found[name]) == 2 for name in (*names, "users_own"))
    assert set(found["step"]) == {2, 5}


def test_log_every_is_in_steps_and_reads_nothing_between(tmp_path):
    read = []

    class Counts(Module):
        def make(self):
            class Loss(trainonce.CompositeLoss):
                def log_dict(self):
                    read.append(1)
                    return super().log_dict()

            self.criterion = Loss(TERMS)

    fit(Counts(), LearnedWeights(1.0, log_every=2, prefix="train/"), logger=CSVLogger(tmp_path), log_every_n_steps=6)
    assert columns(tmp_path)["step"] == [1, 3, 5]
    assert len(columns(tmp_path)["train/reference"]) == len(read) == 3


def test_accumulated_batches_are_one_step_of_the_log(tmp_path):
    fit(Module(), accumulate_grad_batches=2, max_steps=3, logger=CSVLogger(tmp_path), log_every_n_steps=1)
    assert columns(tmp_path)["step"] == [0, 1, 2]


def test_log_every_must_be_a_number_of_steps():
    with pytest.raises(ValueError, match="at least 1; got 0"):
        LearnedWeights(1.0, log_every=0)


def test_other_callbacks_see_the_reference():
    class Watches(EarlyStopping):
        seen = False

        def on_train_epoch_end(self, trainer, pl_module):
            self.seen = "reference" in trainer.callback_metrics
            super().on_train_epoch_end(trainer, pl_module)

    watching = Watches("reference", check_on_train_epoch_end=True)
    fit(Module(), LearnedWeights(1.0), watching, log_every_n_steps=1, max_steps=-1, max_epochs=2)
    assert watching.seen
    assert watching.best_score.isfinite()


def test_the_learning_rate_monitor_names_the_group(tmp_path):
    monitor = LearningRateMonitor()
    fit(
        Module(RETURNED["two lists"]),
        LearnedWeights(1.0, lr=0.5),
        monitor,
        logger=CSVLogger(tmp_path),
        log_every_n_steps=1,
        max_steps=3,
    )
    assert columns(tmp_path)["lr-AdamW/loss_weights"][0] == 0.5


def test_a_history_records_every_step():
    history = trainonce.History()
    fit(Module(), LearnedWeights(1.0, history=history))
    assert len(history) == STEPS


# Other ways to run


def test_a_module_that_attaches_itself_keeps_its_attachment(tmp_path):
    class Attaches(Module):
        def configure_optimizers(self):
            made = super().configure_optimizers()
            trainonce.attach(made, self.criterion, decay=1.0)
            return [made], [schedules.LambdaLR(made, half)]

    module, usual = Attaches(), Module()
    for _ in range(2):  # the second fit has an optimizer of its own
        fit(module, LearnedWeights(), logger=CSVLogger(tmp_path), log_every_n_steps=1)
    assert "weight/small" in columns(tmp_path)
    for _ in range(2):
        fit(usual)
    assert torch.equal(module.criterion.exponents, usual.criterion.exponents)
    with pytest.warns(UserWarning, match=r"attached its criterion with decay=1\.0, so .*decay=2\.0\) has no effect"):
        fit(module, LearnedWeights(2.0))


def test_no_decay_and_no_attachment_is_one_sentence():
    with pytest.raises(ValueError, match=r"given no decay, and the module has not attached"):
        fit(Module(), LearnedWeights())


def test_attached_to_another_optimizer_is_one_sentence():
    module = Module()
    other = torch.optim.SGD(module.net.parameters(), lr=0.1)
    trainonce.attach(other, module.criterion, decay=1.0)
    with pytest.raises(RuntimeError, match="attached to an optimizer that this trainer does not step"):
        fit(module)


def test_fixed_weights_train_under_the_same_callback():
    class Fixed(Module):
        def make(self):
            self.criterion = trainonce.FixedLoss({"fit": 1.0, "small": 0.5})

    module = Fixed()
    fit(module)
    assert module.criterion.as_dict() == pytest.approx({"fit": 2 / 3, "small": 1 / 3})


def test_fast_dev_run():
    module = Module()
    with quiet():
        trainer_of(LearnedWeights(1.0), fast_dev_run=True).fit(module, batches(), batches())
    assert not torch.equal(module.criterion.exponents, start())


@pytest.mark.parametrize("kind", [Module, InAList])
def test_validation_does_not_disturb(kind):
    with_validation, without = kind(), kind()
    fit(with_validation, validate=batches(2), val_check_interval=2)
    fit(without)
    assert torch.equal(with_validation.chosen().exponents, without.chosen().exponents)
    assert torch.equal(with_validation.net.weight, without.net.weight)


@pytest.mark.parametrize("kind", [Module, InAList])
@pytest.mark.parametrize("method", ["validate", "test"])
def test_evaluation_needs_no_fit(kind, method):
    module = kind()
    with quiet():
        (found,) = getattr(trainer_of(LearnedWeights(1.0)), method)(module, batches(), verbose=False)
    assert found["val/reference"] > 0
    assert torch.equal(module.chosen().exponents, start())


def test_modelcheckpoint_keeps_the_weights_and_load_from_checkpoint_finds_them(tmp_path):
    saving = ModelCheckpoint(tmp_path, save_weights_only=True, filename="kept")
    module = Module()
    fit(module, LearnedWeights(1.0), saving, enable_checkpointing=True)
    loaded = Module.load_from_checkpoint(tmp_path / "kept.ckpt", weights_only=False)
    assert torch.equal(loaded.criterion.exponents, module.criterion.exponents)


@pytest.mark.parametrize("kind", [Module, InAList])
@pytest.mark.parametrize("returned", ["optimizer", "two lists", "sequence"])
def test_a_checkpoint_from_before_the_criterion_is_a_warning(tmp_path, kind, returned):
    class Before(Module):
        def make(self):
            pass

        def training_step(self, batch, index):
            return self.losses(batch)["fit"]

    epochs = {"max_steps": -1, "log_every_n_steps": 1}
    old = fit(Before(RETURNED[returned]), L.Callback(), max_epochs=1, **epochs)
    old.save_checkpoint(tmp_path / "old.ckpt", weights_only=False)
    module = kind(RETURNED[returned])
    with pytest.warns(trainonce.health.NoSavedState), pytest.warns(trainonce.health.NoSavedGroup):
        trainer = fit(module, resume=tmp_path / "old.ckpt", max_epochs=4, **epochs)
    model, own = trainer.optimizers[0].param_groups
    assert own["lr"] == pytest.approx(model["lr"])
    assert not torch.equal(module.chosen().exponents, start())


@pytest.mark.parametrize("kind", [DeepSpeedStrategy, FSDPStrategy])
def test_strategies_that_cannot_hold_exponents_are_one_sentence(kind):
    with pytest.raises(RuntimeError, match=rf"does not work with {kind.__name__}: .* Use strategy='ddp'"):
        integration._check_strategy(object.__new__(kind))


def test_the_older_name_of_the_package():
    code = """
import pytorch_lightning as pl, torch, trainonce
from trainonce.integrations.lightning import LearnedWeights

class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net, self.criterion = torch.nn.Linear(2, 1), trainonce.CompositeLoss(["a", "b"])

    def training_step(self, batch, index):
        out = self.net(batch)
        return self.criterion(a=(out - 1).square().mean(), b=out.abs().mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.net.parameters(), lr=0.1)

assert LearnedWeights.__mro__[1] is pl.Callback
module = Module()
pl.Trainer(fast_dev_run=2, accelerator="cpu", enable_progress_bar=False, enable_model_summary=False,
           callbacks=[LearnedWeights(1.0)]).fit(module, torch.utils.data.DataLoader(torch.randn(8, 2), 4))
assert module.criterion.exponents.item() != trainonce.CompositeLoss(["a", "b"]).exponents.item()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]


def test_the_diff_of_the_docs_turns_its_script_into_one_that_learns():
    docs = Path(__file__).parents[2] / "docs"
    page = next(path for path in (docs / "how-to/trainers/lightning.md", docs / "lightning.md") if path.exists())
    script, diff = (re.search(rf"```{kind}\n(.*?)```", page.read_text(), re.S)[1] for kind in ("python", "diff"))
    for hunk in diff.split("\n\n"):
        lines = hunk.splitlines()
        old, new = ("\n".join(line[1:] for line in lines if line[0] in marks) for marks in (" -", " +"))
        assert script.count(old) == 1
        script = script.replace(old, new)
    assert sum(line.startswith("+") for line in diff.splitlines()) == 5
    names = {}
    with quiet():
        exec(script, names)
    moved = names["model"].criterion.exponents
    assert moved.item() != trainonce.CompositeLoss(["a", "b"], init=0.1).exponents.item()
