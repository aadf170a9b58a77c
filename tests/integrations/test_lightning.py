"""The Lightning callback: each trap of a module that trains with learned weights."""

from __future__ import annotations

import copy
import math
import re
import subprocess
import sys
import warnings
from pathlib import Path

import lightning as L
import pytest
import torch
from _lightning import LightningByHand, LightningInAList, columns, quiet
from _problem import plain
from _tester import assert_same, case_of, on_two_processes
from lightning.pytorch.callbacks import EarlyStopping, LearningRateFinder, LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.plugins import MixedPrecision
from lightning.pytorch.strategies import DeepSpeedStrategy, FSDPStrategy
from torch import nn
from torch.optim import lr_scheduler as schedules
from torch.utils.data import DataLoader, TensorDataset

import trainonce
from trainonce.integrations import lightning as integration
from trainonce.integrations.lightning import LearnedWeights

TERMS = ("fit", "small")
STEPS = 6


def criterion():
    return trainonce.CompositeLoss(TERMS, init=0.5)


class Module(L.LightningModule):
    """A small model with its criterion as an attribute. ``configure`` stands for the user's configure_optimizers."""

    def __init__(self, configure=None):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Linear(4, 2)
        self.make()
        self.configure = configure or (lambda made: made)

    def make(self):
        self.criterion = criterion()

    def chosen(self):
        return self.criterion

    def losses(self, batch):
        out = self.net(batch[0])
        return {"fit": (out - 1).square().mean(), "small": out.abs().mean()}

    def training_step(self, batch, index):
        return self.chosen()(self.losses(batch))

    def validation_step(self, batch, index):
        self.chosen()(self.losses(batch))
        self.log("val/reference", self.chosen().reference(self.losses(batch)))

    test_step = validation_step

    def configure_optimizers(self):
        return self.configure(torch.optim.AdamW(self.net.parameters(), lr=0.05, weight_decay=0.1))


class Nested(Module):
    def make(self):
        self.parts = nn.ModuleDict({"loss": nn.ModuleList([criterion()])})

    def chosen(self):
        return self.parts["loss"][0]


class InAList(Module):
    def make(self):
        self.all_losses = [criterion()]

    def chosen(self):
        return self.all_losses[0]


class InADict(Module):
    def make(self):
        self.all_losses = {"train": (criterion(), None)}

    def chosen(self):
        return self.all_losses["train"][0]


class Deeper(Module):
    """In a plain list of a part, inside another module."""

    def make(self):
        self.net.hidden = [nn.ModuleDict({"loss": criterion()})]

    def chosen(self):
        return self.net.hidden[0]["loss"]


class MadeInSetup(Module):
    def make(self):
        pass

    def setup(self, stage):
        self.criterion = criterion()


PLACES = [Module, Nested, InAList, InADict, Deeper, MadeInSetup]


def batches(count=STEPS):
    generator = torch.Generator().manual_seed(1)
    return DataLoader(TensorDataset(torch.randn(8 * count, 4, generator=generator)), 8)


def trainer_of(*callbacks, **options):
    options = {"max_steps": STEPS, "logger": False, "enable_checkpointing": False} | options
    return L.Trainer(
        accelerator="cpu",
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=list(callbacks),
        **options,
    )


def fit(module, *callbacks, resume=None, validate=None, **options):
    trainer = trainer_of(*callbacks or [LearnedWeights(decay=1.0)], **options)
    with quiet():
        trainer.fit(module, batches(), validate, ckpt_path=resume, weights_only=False if resume else None)
    return trainer


def exponents_group(trainer, index=0):
    (group,) = [g for g in trainer.optimizers[index].param_groups if g.get("name") == "loss_weights"]
    return group


def start():
    return criterion().exponents.detach()


# Finding


@pytest.mark.parametrize("kind", PLACES)
def test_the_criterion_is_found_and_trained_wherever_it_lies(kind):
    module, usual = kind(), Module()
    group = exponents_group(fit(module))
    fit(usual)
    assert group["params"][0] is module.chosen().exponents
    assert group["weight_decay"] == 0
    assert not torch.equal(module.chosen().exponents, start())
    assert torch.equal(module.chosen().exponents, usual.criterion.exponents)


def test_a_module_without_a_criterion_is_one_sentence():
    class Without(Module):
        def make(self):
            pass

    with pytest.raises(ValueError, match=r"found no CompositeLoss in Without\. Make one in its __init__"):
        fit(Without())


class Two(Module):
    def make(self):
        self.first, self.others = criterion(), [criterion()]

    def chosen(self):
        return self.others[0]


def test_two_criteria_are_one_sentence_that_names_them():
    with pytest.raises(ValueError, match=r"Two holds 2 criteria, 'first', 'others\[0\]', .* criterion='first'"):
        fit(Two())


@pytest.mark.parametrize("by", ["name", "object"])
def test_one_of_two_criteria_is_chosen(by):
    module = Two()
    fit(module, LearnedWeights(1.0, criterion="others[0]" if by == "name" else module.others[0]))
    assert torch.equal(module.first.exponents, start())
    assert not torch.equal(module.others[0].exponents, start())


def test_a_name_that_is_not_there_is_one_sentence():
    with pytest.raises(ValueError, match=r"Two has no CompositeLoss named 'second'; it has 'first', 'others\[0\]'"):
        fit(Two(), LearnedWeights(1.0, criterion="second"))


def test_two_callbacks_serve_two_criteria(tmp_path):
    class Both(Two):
        def training_step(self, batch, index):
            return self.first(self.losses(batch)) + self.others[0](self.losses(batch))

    each = [LearnedWeights(1.0, criterion=name, prefix=f"{name}/") for name in ("first", "others[0]")]
    module = Both()
    trainer = fit(module, *each, logger=CSVLogger(tmp_path), log_every_n_steps=1)
    assert [g.get("name") for g in trainer.optimizers[0].param_groups] == [None, "loss_weights", "loss_weights_2"]
    assert torch.equal(module.first.exponents, module.others[0].exponents)
    assert {"first/reference", "others[0]/reference"} <= set(columns(tmp_path))
    assert "configure_optimizers" not in vars(module)


def test_the_copies_of_save_hyperparameters_do_not_count():
    class Given(Module):
        def __init__(self, loss):
            super().__init__()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Lightning's own: the argument is a module
                self.save_hyperparameters()

        def make(self):
            pass

        def chosen(self):
            return self.hparams.loss

    module = Given(criterion())
    fit(module)
    assert not torch.equal(module.hparams.loss.exponents, start())


def test_a_criterion_known_by_two_names_is_one():
    class Twice(Module):
        def make(self):
            super().make()
            self.all_losses = [self.criterion]

    trainer = fit(Twice())
    assert trainer.lightning_module.criterion.exponents is exponents_group(trainer)["params"][0]


# A criterion in a list


def test_a_hidden_criterion_is_converted_with_the_module():
    module = InAList()
    with quiet():
        trainer_of(LearnedWeights(1.0), precision="64-true", max_steps=1).fit(module, batches())
    assert module.chosen().exponents.dtype == torch.float64


def test_a_hidden_criterion_is_sent_to_the_trainers_device():
    sent = []

    class Recorded(trainonce.CompositeLoss):
        def to(self, *args, **kwargs):
            sent.append(args)
            return super().to(*args, **kwargs)

    class Holds(InAList):
        def make(self):
            self.all_losses = [Recorded(TERMS)]

        def configure_optimizers(self):
            assert sent == [(torch.device("cpu"),)]
            return super().configure_optimizers()

    fit(Holds())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("kind", [Module, InAList])
@pytest.mark.parametrize("precision", ["32-true", "16-mixed", "bf16-mixed", "bf16-true"])
def test_on_a_gpu_the_criterion_is_where_the_module_is(kind, precision):
    class Seen(kind):
        def training_step(self, batch, index):
            assert self.chosen().exponents.device == self.device
            return super().training_step(batch, index)

    module = Seen()
    trainer = L.Trainer(
        accelerator="gpu",
        devices=1,
        precision=precision,
        max_steps=STEPS,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[LearnedWeights(1.0)],
    )
    with quiet():
        trainer.fit(module, batches())
    assert module.chosen().exponents.dtype == torch.float32
    assert module.chosen().exponents.device == module.device
    assert not torch.equal(module.chosen().exponents.cpu(), start())


def test_a_hidden_criterion_is_saved_and_resumed(tmp_path):
    adapter = LightningInAList()
    case = case_of(adapter)
    assert_same(adapter.interrupted(tmp_path, case, after=3), plain(case), adapter)


def on_two_ranks(kind, folder, monkeypatch):
    """An adapter that is not its module's ADAPTER, from a module of its own."""
    (folder / "other_adapter.py").write_text(f"from _lightning import {kind.__name__}\nADAPTER = {kind.__name__}()")
    monkeypatch.syspath_prepend(folder)
    adapter = kind()
    adapter.module = "other_adapter"
    case = case_of(adapter, schedule=True)
    ranks = on_two_processes(adapter, folder, case)
    assert ranks[0].exponents == ranks[1].exponents
    assert_same(ranks[0], plain(case), adapter)


def test_a_hidden_criterion_is_the_same_on_two_ranks(tmp_path, monkeypatch):
    on_two_ranks(LightningInAList, tmp_path, monkeypatch)


def test_a_hidden_criterion_is_loaded_for_a_test_alone(tmp_path):
    trained, fresh = InAList(), InAList()
    fit(trained).save_checkpoint(tmp_path / "kept.ckpt", weights_only=False)
    with quiet():
        trainer_of(LearnedWeights()).test(fresh, batches(), ckpt_path=tmp_path / "kept.ckpt", weights_only=False)
    assert torch.equal(fresh.chosen().exponents, trained.chosen().exponents)


def test_a_hidden_criterion_that_became_an_attribute_is_still_loaded(tmp_path):
    trained, fresh = InAList(), Module()
    fit(trained).save_checkpoint(tmp_path / "kept.ckpt", weights_only=False)
    with pytest.warns(trainonce.health.NoSavedState):
        fit(fresh, resume=tmp_path / "kept.ckpt")
    assert torch.equal(fresh.criterion.exponents, trained.chosen().exponents)


def test_weights_alone_would_lose_a_hidden_criterion(tmp_path):
    saving = ModelCheckpoint(tmp_path, save_weights_only=True)
    with pytest.raises(ValueError, match=r"The criterion 'all_losses\[0\]' .* save_weights_only=True would lose it"):
        fit(InAList(), LearnedWeights(1.0), saving, enable_checkpointing=True)


# Schedulers and what configure_optimizers returns


def half(step):
    return 0.5**step


class Late(schedules.LRScheduler):
    """A user's own: it counts the groups in its first lines, as torch's do."""

    def __init__(self, optimizer):
        self.count = len(optimizer.param_groups)
        super().__init__(optimizer)

    def get_lr(self):
        return [base * half(self.last_epoch) for base in self.base_lrs[: self.count]]


RETURNED = {
    "optimizer": lambda made: made,
    "list": lambda made: [made],
    "two lists": lambda made: ([made], [schedules.LambdaLR(made, half)]),
    "dict": lambda made: {"optimizer": made, "lr_scheduler": schedules.ExponentialLR(optimizer=made, gamma=0.5)},
    "nested dict": lambda made: {"optimizer": made, "lr_scheduler": {"scheduler": Late(made), "interval": "step"}},
    "list of dicts": lambda made: [{"optimizer": made, "lr_scheduler": schedules.StepLR(made, 1, 0.5)}],
    "sequence": lambda made: (
        [made],
        [schedules.SequentialLR(made, [schedules.ConstantLR(made), schedules.LambdaLR(made, half)], [1])],
    ),
    "chain": lambda made: ([made], [schedules.ChainedScheduler([schedules.LambdaLR(made, half)])]),
    "one cycle": lambda made: ([made], [schedules.OneCycleLR(made, [0.05, 0.5], total_steps=9)]),
    "plateau": lambda made: {
        "optimizer": made,
        "lr_scheduler": schedules.ReduceLROnPlateau(made, patience=0, factor=0.5, mode="max", threshold=1e9),
        "monitor": "val/reference",
    },
}


@pytest.mark.parametrize("returned", RETURNED)
def test_schedulers_reach_the_exponents_whatever_is_returned(returned):
    module = Module(RETURNED[returned])
    trainer = fit(
        module, LearnedWeights(1.0, lr=0.5), max_steps=-1, max_epochs=3, validate=batches(1), num_sanity_val_steps=0
    )
    model, own = trainer.optimizers[0].param_groups
    assert own["params"][0] is module.criterion.exponents
    assert own["lr"] == pytest.approx(10 * model["lr"])
    assert (model["lr"] == 0.05) == (returned in ("optimizer", "list"))


def test_one_rate_for_all_groups_is_said():
    module = Module(lambda made: ([made], [schedules.OneCycleLR(made, 0.05, total_steps=9)]))
    with pytest.warns(trainonce.health.LearningRateReset):
        fit(module, LearnedWeights(1.0, lr=0.5))


def test_schedulers_are_as_before_afterwards():
    before = {kind: kind.__init__ for kind in (schedules.LRScheduler, schedules.LambdaLR, Late)}
    fit(Module(RETURNED["two lists"]))

    def fails(made):
        raise KeyError("the user's own mistake")

    with pytest.raises(KeyError, match="the user's own mistake"):
        fit(Module(fails))
    assert {kind: kind.__init__ for kind in before} == before


def test_a_scheduler_of_another_package_is_one_sentence():
    class Foreign:
        def __init__(self, optimizer):
            self.optimizer = optimizer

        def step(self, epoch=None):
            pass

        def state_dict(self):
            return {}

        def load_state_dict(self, state):
            pass

    class Stepping(Module):
        def lr_scheduler_step(self, scheduler, metric):
            scheduler.step()

    with pytest.raises(RuntimeError, match="Foreign is not a torch scheduler and was built before"):
        fit(Stepping(lambda made: ([made], [Foreign(made)])))


def test_no_optimizer_is_one_sentence():
    with pytest.raises(ValueError, match="configure_optimizers returned no optimizer"):
        fit(Module(lambda made: None))


def test_a_module_may_give_all_its_parameters():
    class All(Module):
        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=0.05, weight_decay=0.1)

    module, usual = All(), Module()
    trainer = fit(module)
    fit(usual)
    assert [len(group["params"]) for group in trainer.optimizers[0].param_groups] == [2, 1]
    assert torch.equal(module.criterion.exponents, usual.criterion.exponents)


# Several optimizers


class Pair(Module):
    """As a GAN: two networks, two optimizers, each with a schedule, stepped by hand."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.other = nn.Linear(4, 2)

    def training_step(self, batch, index):
        first, second = self.optimizers()
        self.toggle_optimizer(first)
        first.zero_grad()
        self.manual_backward(self.other(batch[0]).square().mean())
        first.step()
        self.untoggle_optimizer(first)
        self.toggle_optimizer(second)
        second.zero_grad()
        self.manual_backward(self.criterion(self.losses(batch)))
        self.clip_gradients(second, gradient_clip_val=1e-3, gradient_clip_algorithm="norm")
        second.step()
        self.untoggle_optimizer(second)
        for schedule in self.lr_schedulers():
            schedule.step()

    def configure_optimizers(self):
        first = torch.optim.SGD(self.other.parameters(), lr=0.1)
        second = torch.optim.AdamW(self.net.parameters(), lr=0.05, weight_decay=0.1)
        return [first, second], [schedules.LambdaLR(first, half), schedules.LambdaLR(second, half)]


@pytest.mark.parametrize("part", ["net", "net.weight"])
def test_the_optimizer_of_a_named_part_learns_the_weights(part, tmp_path):
    module, usual = Pair(), Module(RETURNED["two lists"])
    logger = CSVLogger(tmp_path)
    trainer = fit(module, LearnedWeights(1.0, optimizer=part), max_steps=2 * STEPS, logger=logger, log_every_n_steps=2)
    assert [len(made.param_groups) for made in trainer.optimizers] == [1, 2]
    usual.configure = lambda made: {
        "optimizer": made,
        "lr_scheduler": {"scheduler": schedules.LambdaLR(made, half), "interval": "step"},
    }
    fit(usual, gradient_clip_val=1e-3)
    assert torch.equal(module.criterion.exponents, usual.criterion.exponents)
    torch.testing.assert_close(module.net.weight, usual.net.weight)
    assert columns(tmp_path)["step"] == [1, 3, 5]


def test_manual_optimization_on_two_ranks_that_look_for_unused_parameters(tmp_path, monkeypatch):
    on_two_ranks(LightningByHand, tmp_path, monkeypatch)


def test_several_optimizers_and_no_name_is_one_sentence():
    with pytest.raises(ValueError, match=r"Pair has 2 optimizers, .* optimizer='generator'"):
        fit(Pair())


@pytest.mark.parametrize("part", ["generator", "ne"])
def test_a_part_that_nothing_trains_is_one_sentence(part):
    with pytest.raises(ValueError, match=rf"optimizer='{part}' must name a part of Pair .* 0 of 2 hold"):
        fit(Pair(), LearnedWeights(1.0, optimizer=part))


# Clipping


class Steep(Module):
    """One step of plain gradient descent, with gradients far above any clip."""

    def losses(self, batch):
        return {name: 5 * loss for name, loss in super().losses(batch).items()}

    def configure_optimizers(self):
        return torch.optim.SGD(self.net.parameters(), lr=1.0)


class ClipsItself(Steep):
    def configure_gradient_clipping(self, optimizer, gradient_clip_val=None, gradient_clip_algorithm=None):
        nn.utils.clip_grad_norm_(self.parameters(), 0.01)


class ClipsThroughLightning(Steep):
    def configure_gradient_clipping(self, optimizer, gradient_clip_val=None, gradient_clip_algorithm=None):
        self.clip_gradients(optimizer, gradient_clip_val=0.01, gradient_clip_algorithm="norm")


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (Steep, {"gradient_clip_val": 0.01}),
        (Steep, {"gradient_clip_val": 0.01, "gradient_clip_algorithm": "value"}),
        (ClipsItself, {}),
        (ClipsThroughLightning, {}),
    ],
)
def test_clipping_is_of_the_model_alone(kind, options):
    clipped, free, begin = kind(), Steep(), Module()
    fit(clipped, max_steps=1, **options)
    fit(free, max_steps=1)
    moved = torch.cat(
        [(a - b).flatten() for a, b in zip(clipped.net.parameters(), begin.net.parameters(), strict=True)]
    )
    size = moved.abs().max() if options.get("gradient_clip_algorithm") == "value" else moved.norm()
    assert size.item() == pytest.approx(0.01, rel=1e-3)
    assert torch.equal(clipped.criterion.exponents, free.criterion.exponents)
    assert not torch.equal(free.criterion.exponents, start())


class SkipsBadBatches(Module):
    """The second batch has no finite loss, and the module takes all gradients away for it."""

    def losses(self, batch):
        found = super().losses(batch)
        return {name: loss * math.nan for name, loss in found.items()} if self.global_step == 1 else found

    def configure_gradient_clipping(self, optimizer, gradient_clip_val=None, gradient_clip_algorithm=None):
        if not nn.utils.clip_grad_norm_(self.parameters(), 1.0).isfinite():
            self.zero_grad()


def test_a_module_that_skips_a_bad_batch_skips_the_exponents_too():
    module = SkipsBadBatches()
    fit(module)
    assert module.criterion.exponents.isfinite().all()
    assert not torch.equal(module.criterion.exponents, start())


@pytest.mark.parametrize("first", ["finder", "weights"])
def test_the_learning_rate_finder_runs_before(first, tmp_path):
    class Found(Module):
        def __init__(self):
            super().__init__()
            self.lr = 0.05

        def configure_optimizers(self):
            return torch.optim.AdamW(self.net.parameters(), lr=self.lr)

    finder = LearningRateFinder(num_training_steps=4)
    callbacks = [finder, LearnedWeights(decay=1.0)] if first == "finder" else [LearnedWeights(decay=1.0), finder]
    module = Found()
    trainer = fit(module, *callbacks, default_root_dir=tmp_path)
    group = exponents_group(trainer)
    assert group["params"][0] is module.criterion.exponents
    assert not torch.equal(module.criterion.exponents, start())


def test_the_modules_methods_are_put_back():
    def own(*args, **kwargs):
        """Of the instance, not of the class."""

    module = Module()
    module.clip_gradients = own
    fit(module)
    assert vars(module).pop("clip_gradients") is own

    class Stops(Module):
        def training_step(self, batch, index):
            raise KeyError("stop")

    stopped = Stops()
    with pytest.raises(KeyError, match="stop"):
        fit(stopped)
    for each in (module, stopped):
        assert not {"configure_optimizers", "configure_gradient_clipping", "clip_gradients"} & set(vars(each))
        assert each.criterion.attachment is None


def test_a_copy_made_in_training_is_the_copys_own():
    class Copies(L.Callback):
        def on_train_start(self, trainer, pl_module):
            self.copy = copy.deepcopy(pl_module)

    copies = Copies()
    fit(Module(), LearnedWeights(1.0), copies)
    assert copies.copy.clip_gradients.args == (
        copies.copy.criterion,
        L.LightningModule.clip_gradients.__get__(copies.copy),
    )
    fit(copies.copy, gradient_clip_val=0.1)
    assert not torch.equal(copies.copy.criterion.exponents, start())


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
