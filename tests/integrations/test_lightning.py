"""The Lightning callback: precision, logs, evaluation and other ways to run."""

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
    STEPS,
    InAList,
    Module,
    balance,
    batches,
    criterion,
    fit,
    half,
    start,
    trainer_of,
)
from lightning.pytorch.callbacks import EarlyStopping
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.plugins import MixedPrecision
from lightning.pytorch.strategies import DeepSpeedStrategy, FSDPStrategy
from torch.optim import lr_scheduler as schedules

import trainonce
from trainonce.integrations import lightning as integration
from trainonce.integrations.lightning import LossWeights

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
    fit(module, LossWeights(), **options)
    fit(usual)
    assert module.chosen().exponents.dtype == torch.float32
    torch.testing.assert_close(module.chosen().exponents, usual.criterion.exponents, rtol=0.01, atol=0.01)
    assert not torch.equal(module.chosen().exponents, start())


# Logs


def test_all_values_are_logged_at_the_trainers_steps(tmp_path):
    class Logs(Module):
        def training_step(self, batch, index):
            loss = super().training_step(batch, index)
            self.log("users_own", loss)
            return loss

    fit(Logs(), logger=CSVLogger(tmp_path), log_every_n_steps=3, accumulate_grad_batches=2)
    found = columns(tmp_path)
    names = {"loss/fit", "loss/small", "coefficient/fit", "coefficient/small", "ratio/small", "exponent/small"}
    assert set(found) == names | {"reference", "users_own", "step", "epoch"}
    assert set(found["step"]) == {2, 5}
    assert all(len(found[name]) == 2 for name in (*names, "users_own"))


def test_log_every_is_in_steps(tmp_path):
    fit(Module(), LossWeights(log_every=2, prefix="train/"), logger=CSVLogger(tmp_path), log_every_n_steps=6)
    assert columns(tmp_path)["step"] == [1, 3, 5]
    assert len(columns(tmp_path)["train/reference"]) == 3


def test_other_callbacks_see_the_reference():
    watching = EarlyStopping("reference", check_on_train_epoch_end=True)
    fit(Module(), LossWeights(), watching, log_every_n_steps=1, max_steps=-1, max_epochs=2)
    assert watching.best_score.isfinite()


def test_a_history_records_every_step():
    history = trainonce.History()
    fit(Module(), LossWeights(history=history))
    assert len(history) == STEPS


# Evaluation


class Differentiates(Module):
    """Its losses are derivatives, so validation has gradients on, as in PINA."""

    def make(self):
        self.criterion = balance()

    def validation_step(self, batch, index):
        with torch.enable_grad():
            self.chosen()(self.losses([batch[0] + 1]))

    test_step = validation_step

    def predict_step(self, batch, index):
        self.validation_step(batch, index)
        return batch


class DifferentiatesBeside(Differentiates):
    def make(self):
        self.all_losses = [balance()]

    def chosen(self):
        return self.all_losses[0]


class KeepsTraining(Differentiates):
    """It leaves dropout on in validation."""

    def on_validation_model_eval(self):
        pass


@pytest.mark.parametrize("kind", [Differentiates, DifferentiatesBeside, KeepsTraining])
def test_evaluation_with_gradients_measures_nothing(kind):
    evaluated, alone = kind(), kind()
    fit(evaluated, validate=batches(2), val_check_interval=2, inference_mode=False)
    fit(alone)
    assert evaluated.chosen().training
    assert torch.equal(evaluated.chosen().coefficients(), alone.chosen().coefficients())
    assert torch.equal(evaluated.net.weight, alone.net.weight)
    assert alone.chosen().step == STEPS
    with quiet():
        for method in ("validate", "test", "predict"):
            getattr(trainer_of(LossWeights(), inference_mode=False), method)(alone, batches())
    assert torch.equal(evaluated.chosen().norms, alone.chosen().norms)


def test_an_evaluation_that_fails_leaves_the_criterion_in_training_mode():
    class Fails(DifferentiatesBeside):
        def validation_step(self, batch, index):
            raise KeyError("stop")

    module = Fails()
    with pytest.raises(KeyError, match="stop"):
        fit(module, validate=batches(1))
    assert module.chosen().training


# Other ways to run


@pytest.mark.parametrize("make", [criterion, balance])
def test_a_module_that_attaches_itself_keeps_its_attachment(tmp_path, make):
    class Attaches(Module):
        def make(self):
            self.criterion = make()

        def configure_optimizers(self):
            made = super().configure_optimizers()
            self.own = trainonce.attach(made, self.criterion)
            return [made], [schedules.LambdaLR(made, half)]

    module = Attaches()
    for _ in range(2):  # the second fit has an optimizer of its own
        fit(module, logger=CSVLogger(tmp_path), log_every_n_steps=1)
        assert module.own.steps == STEPS
        assert module.criterion.attachment is None  # given back after the fit
    assert "coefficient/small" in columns(tmp_path)


def test_a_checkpoint_from_before_the_criterion_is_a_warning(tmp_path):
    class Before(Module):
        def make(self):
            pass

        def training_step(self, batch, index):
            return self.losses(batch)["fit"]

    class After(Module):
        def make(self):
            self.criterion = balance()

    epochs = {"max_steps": -1, "log_every_n_steps": 1}
    fit(Before(), L.Callback(), max_epochs=1, **epochs).save_checkpoint(tmp_path / "old.ckpt", weights_only=False)
    module = After()
    with pytest.warns(trainonce.health.NoSavedState):
        fit(module, resume=tmp_path / "old.ckpt", max_epochs=2, **epochs)
    assert module.criterion.step == STEPS


@pytest.mark.parametrize("kind", [DeepSpeedStrategy, FSDPStrategy])
def test_strategies_whose_steps_no_rule_can_follow_are_one_sentence(kind):
    strategy = object.__new__(kind)
    with pytest.raises(RuntimeError, match=rf"does not work with {kind.__name__}: .* Use strategy='ddp'"):
        integration._check_strategy(strategy, balance())
    integration._check_strategy(strategy, trainonce.FixedLoss({"fit": 1.0, "small": 0.1}))


def test_attached_to_another_optimizer_is_one_sentence():
    module = Module()
    other = torch.optim.SGD(module.net.parameters(), lr=0.1)
    trainonce.attach(other, module.criterion)
    with pytest.raises(RuntimeError, match="attached to an optimizer that this trainer does not step"):
        fit(module)


@pytest.mark.parametrize("kind", [Module, InAList])
@pytest.mark.parametrize("method", ["validate", "test"])
def test_evaluation_needs_no_fit(kind, method):
    module = kind()
    with quiet():
        (found,) = getattr(trainer_of(LossWeights()), method)(module, batches(), verbose=False)
    assert found["val/reference"] > 0
    assert torch.equal(module.chosen().exponents, start())


def test_the_older_name_of_the_package():
    code = """
import pytorch_lightning as pl, torch, trainonce
from trainonce.integrations.lightning import LossWeights

class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net, self.criterion = torch.nn.Linear(2, 1), trainonce.CompositeLoss(["a", "b"])

    def training_step(self, batch, index):
        out = self.net(batch)
        return self.criterion(a=(out - 1).square().mean(), b=out.abs().mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.net.parameters(), lr=0.1)

assert LossWeights.__mro__[1] is pl.Callback
module = Module()
pl.Trainer(fast_dev_run=2, accelerator="cpu", enable_progress_bar=False, enable_model_summary=False,
           callbacks=[LossWeights()]).fit(module, torch.utils.data.DataLoader(torch.randn(8, 2), 4))
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
